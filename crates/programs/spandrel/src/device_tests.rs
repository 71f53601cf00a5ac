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

    fn media(&self) -> Option<MediaClass> {
        let system = System { sys: self.folder.path().join("sys"), mounts: "/nowhere".into() };
        system.media(&self.file)
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
    let nothing = System { sys: "/nowhere".into(), mounts: "/nowhere".into() };
    assert_eq!(nothing.media(&machine.file), None);
    assert_eq!(System::here().media(Path::new("/proc/self/status")), None);
    assert_eq!(System::here().media(Path::new("/nowhere")), None);
    assert_eq!(System::here().user(&machine.file), None, "it is no device");
}
