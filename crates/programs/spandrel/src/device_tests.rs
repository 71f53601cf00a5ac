use std::os::unix::fs::symlink;

use super::*;

/// A machine whose kernel tells of one device: the one that temporary files are on.
struct Machine {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Machine {
    /// `device` is its folder's path below `devices`, `rotational` what its queue says.
    fn new(device: &str, rotational: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("d1.drive");
        fs::write(&file, "").expect("there is room");
        let at = folder.path().join("sys/devices").join(device);
        fs::create_dir_all(&at).expect("there is room");
        let whole = if at.parent().is_some_and(|parent| parent.ends_with("devices")) {
            at.clone()
        } else {
            fs::write(at.join("partition"), "1\n").expect("there is room");
            at.parent().expect("it is below its disk").to_owned()
        };
        fs::create_dir_all(whole.join("queue")).expect("there is room");
        fs::write(whole.join("queue/rotational"), rotational).expect("there is room");
        let blocks = folder.path().join("sys/dev/block");
        fs::create_dir_all(&blocks).expect("there is room");
        let id = number(fs::metadata(&file).expect("it was written").dev());
        symlink(&at, blocks.join(id)).expect("there is room");
        Self { folder, file }
    }

    fn system(&self) -> System {
        let at = |name| self.folder.path().join(name);
        System { sys: at("sys"), mounts: at("mountinfo"), swaps: at("swaps") }
    }

    fn media(&self) -> Option<MediaClass> {
        self.system().media(&self.file)
    }
}

#[test]
fn media_are_told_apart_on_disks_and_on_partitions() {
    let cases = [
        ("sda", "1\n", Some(MediaClass::Hdd)),
        ("sda", "0\n", Some(MediaClass::Ssd)),
        ("sda/sda1", "1\n", Some(MediaClass::Hdd)),
        ("nvme0n1", "0\n", Some(MediaClass::Nvme)),
        ("nvme0n1/nvme0n1p2", "0\n", Some(MediaClass::Nvme)),
        ("sda", "?\n", None),
    ];
    for (device, rotational, expected) in cases {
        assert_eq!(Machine::new(device, rotational).media(), expected, "{device} {rotational}");
    }
}

#[test]
fn what_is_on_no_device_is_of_no_known_media() {
    let machine = Machine::new("sda", "1\n");
    let nothing = System { sys: "/nowhere".into(), mounts: "/nowhere".into(), swaps: "/nowhere".into() };
    assert_eq!(nothing.media(&machine.file), None);
    assert_eq!(System::here().media(Path::new("/proc/self/status")), None);
    assert_eq!(System::here().media(Path::new("/nowhere")), None);
    assert_eq!(System::here().user(&machine.file), None, "it is no device");
}

#[test]
fn who_uses_a_device_or_its_partitions_is_told() {
    let machine = Machine::new("sda", "1\n");
    let system = machine.system();
    let device = machine.folder.path().join("sys/devices/sda");
    let user = || system.holder_of_device(&device, "8:0");
    assert_eq!(user(), None);
    fs::create_dir_all(device.join("holders/md0")).expect("there is room");
    assert_eq!(user().as_deref(), Some("is part of md0"));
    fs::write(machine.folder.path().join("swaps"), "Filename Type\n/dev/sda partition 1 0 -2\n")
        .expect("there is room");
    assert_eq!(user().as_deref(), Some("is swap space in use"));
    let line = "36 35 8:0 / /srv rw,noatime master:1 - ext3 /dev/sda rw\n";
    fs::write(machine.folder.path().join("mountinfo"), line).expect("there is room");
    assert_eq!(user().as_deref(), Some("is mounted at /srv"));
}

#[test]
fn a_file_behind_a_loop_device_is_in_use() {
    let machine = Machine::new("sda", "1\n");
    let system = machine.system();
    assert_eq!(system.holder(&machine.file), None);
    let behind = machine.folder.path().join("sys/block/loop3/loop");
    fs::create_dir_all(&behind).expect("there is room");
    let file = fs::canonicalize(&machine.file).expect("it is there");
    fs::write(behind.join("backing_file"), format!("{}\n", file.display())).expect("there is room");
    assert_eq!(system.holder(&machine.file).as_deref(), Some("it is behind the loop device loop3"));
}
