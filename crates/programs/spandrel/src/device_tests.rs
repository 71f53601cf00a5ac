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
        System {
            sys: at("sys"),
            mounts: at("mountinfo"),
            swaps: at("swaps"),
            processes: at("proc"),
            devices: at("dev"),
        }
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
    let nowhere = PathBuf::from("/nowhere");
    let nothing = System {
        sys: nowhere.clone(),
        mounts: nowhere.clone(),
        swaps: nowhere.clone(),
        processes: nowhere.clone(),
        devices: nowhere,
    };
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
    let link = machine.folder.path().join("link");
    fs::hard_link(&machine.file, &link).expect("the file system has links");
    assert_eq!(system.holder(&link).as_deref(), Some("it is behind the loop device loop3"), "by any name");
    fs::remove_dir_all(&behind).expect("it is there");
    fs::write(machine.folder.path().join("swaps"), format!("Filename\n{} file 1 0 -2\n", file.display()))
        .expect("there is room");
    assert_eq!(system.holder(&link).as_deref(), Some("it is swap space in use"));
}

/// Has a process of the machine's have a file open with flags.
fn open_in(machine: &Machine, number: u32, file: &Path, flags: &str) {
    let folder = machine.folder.path().join("proc").join(number.to_string());
    for name in ["fd", "fdinfo"] {
        fs::create_dir_all(folder.join(name)).expect("there is room");
    }
    fs::write(folder.join("comm"), "qemu-system-x86\n").expect("there is room");
    symlink(file, folder.join("fd/7")).expect("there is room");
    fs::write(folder.join("fdinfo/7"), format!("pos:\t0\n{flags}")).expect("there is room");
}

#[test]
fn processes_that_have_a_file_open_are_named() {
    let machine = Machine::new("sda", "1\n");
    let system = machine.system();
    let opener = |number, writes| Opener { name: "qemu-system-x86".to_owned(), number, writes };
    assert_eq!(system.openers(&machine.file), []);
    open_in(&machine, 31, &machine.file, "flags:\t0100002\nmnt_id:\t1\n");
    open_in(&machine, 32, &machine.file, "flags:\t0100000\n");
    open_in(&machine, 33, Path::new("/dev/null"), "flags:\t0100002\n");
    open_in(&machine, 34, &machine.file, "");
    open_in(&machine, 35, &machine.file, "flags:\t0100001\n");
    let others = [opener(31, true), opener(32, false), opener(34, true)];
    symlink("35", machine.folder.path().join("proc/self")).expect("there is room");
    assert_eq!(system.openers(&machine.file), others, "without this process itself");
    let link = machine.folder.path().join("link");
    fs::hard_link(&machine.file, &link).expect("the file system has links");
    assert_eq!(system.openers(&link), others);
    assert_eq!(system.openers(Path::new("/nowhere")), []);
}

#[test]
fn a_thing_is_the_same_by_whatever_path() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name| folder.path().join(name);
    for name in ["one", "other"] {
        fs::write(at(name), "").expect("there is room");
    }
    fs::hard_link(at("one"), at("hard")).expect("the file system has links");
    symlink(at("one"), at("soft")).expect("there is room");
    let thing = |name| Thing::of(&fs::metadata(at(name)).expect("it is there"));
    assert_eq!((thing("hard"), thing("soft")), (thing("one"), thing("one")));
    assert_ne!(thing("other"), thing("one"));
    fs::write(at("dev"), "259:7\n").expect("there is room");
    assert_eq!(number_in(folder.path()), Some(Thing::Device(rustix::fs::makedev(259, 7))));
    assert_eq!(number_in(Path::new("/nowhere")), None);
}

/// The devices themselves are real, since nothing else has a device's number; what is told of them is made up.
#[test]
fn the_partitions_of_a_device_are_found_or_that_they_are_not() {
    let (disk, partition) = (Path::new("/dev/loop0"), Path::new("/dev/loop1"));
    let is_device =
        |path: &&Path| fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
    if ![disk, partition].iter().all(is_device) {
        return println!("left out: there are no devices here");
    }
    let machine = Machine::new("sda", "1\n");
    let system = machine.system();
    let at = |name: &str| machine.folder.path().join(name);
    let number_of = |path| number(fs::metadata(path).expect("it is there").rdev());
    let folder = at("sys/devices/sda");
    symlink(&folder, at("sys/dev/block").join(number_of(disk))).expect("there is room");
    symlink(folder.join("sda1"), at("sys/dev/block").join(number_of(partition))).expect("there is room");
    assert_eq!(system.partition_paths(disk), Ok(Vec::new()));
    fs::create_dir_all(folder.join("sda1")).expect("there is room");
    fs::create_dir_all(at("dev")).expect("there is room");
    fs::write(folder.join("dev"), number_of(disk)).expect("there is room");
    fs::write(folder.join("sda1/partition"), "1\n").expect("there is room");
    fs::write(folder.join("sda1/dev"), number_of(partition)).expect("there is room");
    assert!(system.partition_paths(disk).is_err(), "its device is not there");
    symlink(disk, at("dev/sda1")).expect("there is room");
    assert!(system.partition_paths(disk).is_err(), "it is another device");
    fs::remove_file(at("dev/sda1")).expect("it is there");
    symlink(partition, at("dev/sda1")).expect("there is room");
    assert_eq!(system.partition_paths(disk), Ok(vec![("sda1".to_owned(), at("dev/sda1"))]));
    // Who has one of them open may change the other.
    let things = [disk, partition].map(|path| Thing::of(&fs::metadata(path).expect("it is there")));
    assert_eq!(system.things(disk), things);
    assert_eq!(system.things(partition), [things[1], things[0]]);
    open_in(&machine, 31, partition, "flags:\t0100002\n");
    assert!(system.openers(disk).iter().any(|opener| opener.writes));
}
