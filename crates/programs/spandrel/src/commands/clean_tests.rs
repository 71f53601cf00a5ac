use spandrel_drive::{Layout, Superblock};
use spandrel_health::{DriveFacts, drive};
use spandrel_shared::SlabGeometry;

use super::*;

const SIZE_BYTES: u64 = 64 << 20;

/// A folder with a directory for a server, which is not there yet, and drives.
struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn directory(&self) -> Directory {
        Directory::choose(Some(&self.folder.path().join("server"))).expect("it is a good path")
    }

    fn drive(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).expect("there is room");
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(SIZE_BYTES))
            .expect("there is room");
        path
    }

    /// Makes a cluster of one node whose first drive is `drive`.
    fn settle(&self, drive: &Path) -> Settings {
        let directory = self.directory();
        let settings = Settings {
            format: crate::local::settings::FORMAT,
            complete: true,
            created_by: "test".to_owned(),
            cluster: cluster(1),
            memory: false,
            nodes: vec![crate::local::settings::NodeSettings { name: "n1".to_owned(), id: node(1) }],
            drives_per_node: 2,
            drive_size_bytes: SIZE_BYTES,
            cache_drives_per_node: 0,
            cache_drive_size_bytes: 0,
            media: crate::local::media::MediaSettings::default(),
            slab_size_bytes: SlabGeometry::new(4 << 20).expect("it is a size of slabs"),
        };
        fs::create_dir_all(directory.node("n1")).expect("there is room");
        settings.write(directory.path()).expect("there is room");
        fs::hard_link(drive, directory.drive_file("n1", "d1")).expect("the file system has links");
        settings
    }

    fn clean(&self, path: &Path, options: &[DriveId]) -> Outcome {
        clean(&self.directory(), &arguments(path, options))
    }

    fn refused(&self, path: &Path, options: &[DriveId]) -> Error {
        let before = fs::read(path).expect("it is there");
        let refused = self.clean(path, options).expect_err("it is refused");
        assert!(fs::read(path).expect("it is there") == before, "nothing was changed: {refused}");
        refused
    }
}

fn arguments(path: &Path, drive_ids: &[DriveId]) -> DriveCleanArguments {
    DriveCleanArguments { path: path.to_owned(), dry_run: false, yes: true, drive_ids: drive_ids.to_vec() }
}

fn cluster(number: u64) -> ClusterId {
    ClusterId::from_random(1, number)
}

fn node(number: u64) -> NodeId {
    NodeId::from_random(2, number)
}

fn id(number: u64) -> DriveId {
    DriveId::from_random(3, number)
}

/// The superblock of the drive with this number.
fn superblock(cluster: ClusterId, node: NodeId, number: u64) -> Vec<u8> {
    let slabs = SlabGeometry::new(4 << 20).expect("it is a size of slabs");
    let layout = Layout::for_drive(SIZE_BYTES, 512, slabs).expect("it is large enough");
    let mut block = vec![0; BLOCK_BYTES];
    Superblock { cluster, node, drive: id(number), layout, created_unix_ms: 1 }.encode(&mut block);
    block
}

fn is_clean(path: &Path) -> bool {
    is_blank(path).expect("it can be read")
}

#[test]
fn yes_alone_does_not_wipe_a_spandrel_drive() {
    let lab = Lab::new();
    let path = lab.drive("other", &superblock(cluster(2), node(2), 7));
    let refused = lab.refused(&path, &[]);
    assert_eq!(refused.code, "DRIVE_ID_NEEDED");
    assert!(refused.next.contains(&format!("--drive-id {}", id(7))), "{refused}");
    assert!(refused.why.contains("is not known"), "{refused}");
    let refused = lab.refused(&path, &[id(8)]);
    assert_eq!(refused.code, "DRIVE_ID_WRONG");
    assert!(refused.why.contains(&id(7).to_string()), "{refused}");
    assert_eq!(lab.refused(&path, &[id(7), id(8)]).code, "DRIVE_ID_WRONG");
    lab.clean(&path, &[id(7)]).expect("it was named");
    assert!(is_clean(&path));
    assert_eq!(lab.refused(&path, &[id(7)]).code, "DRIVE_ID_WRONG", "it is no drive any more");
}

#[test]
fn a_drive_that_may_be_a_newer_ones_needs_a_person() {
    let lab = Lab::new();
    let mut damaged = superblock(cluster(2), node(2), 7);
    damaged[100] ^= 1;
    let path = lab.drive("damaged", &damaged);
    assert_eq!(lab.refused(&path, &[]).code, "DRIVE_ID_UNKNOWN");
    let end = lab.drive("end", &[]);
    let file = File::options().write(true).open(&end).expect("it is there");
    file.write_all_at(&damaged, SIZE_BYTES - BLOCK_BYTES as u64).expect("there is room");
    assert_eq!(lab.refused(&end, &[]).code, "DRIVE_ID_UNKNOWN");
}

#[test]
fn a_drive_of_the_node_is_known_by_what_stands_on_it() {
    let lab = Lab::new();
    let own = lab.drive("own", &superblock(cluster(1), node(1), 7));
    lab.settle(&own);
    for path in [&own, &lab.drive("copy", &superblock(cluster(1), node(1), 8))] {
        for ids in [&[][..], &[id(7)], &[id(8)]] {
            assert_eq!(lab.refused(path, ids).code, "DRIVE_OF_NODE");
        }
    }
}

#[test]
fn what_the_node_would_refuse_at_a_path_of_its_own_can_be_cleaned() {
    let mut damaged = superblock(cluster(1), node(1), 7);
    damaged[100] ^= 1;
    let kept = [damaged, b"something".to_vec()];
    for content in kept {
        let lab = Lab::new();
        let path = lab.drive("drive", &content);
        lab.settle(&path);
        let refused = lab.refused(&path, &[]);
        assert_eq!(refused.code, "DRIVE_OF_NODE");
        assert!(refused.why.contains("by its settings"), "{refused}");
    }
    for content in [b"XFSB and more".to_vec(), Vec::new()] {
        let lab = Lab::new();
        let path = lab.drive("drive", &content);
        lab.settle(&path);
        lab.clean(&path, &[]).expect("nothing of it is ours");
        assert!(is_clean(&path));
    }
    for (cluster, node) in [(cluster(2), node(1)), (cluster(1), node(2))] {
        let lab = Lab::new();
        let path = lab.drive("drive", &superblock(cluster, node, 7));
        lab.settle(&path);
        assert_eq!(lab.refused(&path, &[]).code, "DRIVE_ID_NEEDED");
        lab.clean(&path, &[id(7)]).expect("it was named");
        assert!(is_clean(&path));
    }
}

#[test]
fn settings_that_cannot_be_read_keep_everything() {
    let lab = Lab::new();
    let path = lab.drive("drive", b"XFSB and more");
    lab.settle(&path);
    for file in ["format.json", "node.json"] {
        fs::write(lab.directory().join(file), "{").expect("there is room");
        let refused = lab.refused(&path, &[]);
        assert_eq!(refused.code, "DIR_DAMAGED");
        assert!(refused.why.contains("cannot be known"), "{refused}");
    }
}

fn part(content: Content) -> Part {
    Part { partition: None, thing: Thing::Device(1), content, text: "it carries something".to_owned() }
}

fn drive_part(cluster: ClusterId, node: NodeId, number: u64) -> Part {
    part(Content::Drive(DriveIdentity {
        cluster,
        node,
        drive: id(number),
        is_cache: false,
        roots_end_bytes: 4096,
        second_superblock_bytes: 8192,
    }))
}

fn own() -> Own {
    Own {
        directory: "/srv/n1".into(),
        cluster: Some(cluster(1)),
        nodes: vec![node(1)],
        drives: vec![Thing::Device(2)],
    }
}

fn status(number: u64) -> CountedOn {
    CountedOn {
        id: Some(id(number)),
        name: "n2/d1".to_owned(),
        node: "n2".to_owned(),
        status: drive::status(&DriveFacts { is_node_reachable: true, ..DriveFacts::default() }),
    }
}

#[test]
fn what_the_cluster_counts_on_is_refused_whoever_has_it() {
    let (own, path) = (own(), Path::new("/dev/sdb"));
    let parts = [part(Content::Foreign), drive_part(cluster(1), node(2), 7)];
    let refused =
        own.check_cluster(path, &parts, || Ok(vec![status(6), status(7)])).expect_err("it is needed");
    assert_eq!(refused.code, "DRIVE_IN_CLUSTER");
    let names = format!("the drive n2/d1 ({}) of the node n2, ", id(7));
    assert!(refused.why.contains(&names), "{refused}");
    assert!(refused.next.contains("spandrel node remove n2"), "{refused}");

    let known = own.check_cluster(path, &parts, || Ok(vec![status(6)])).expect("its node was removed");
    assert!(known[0].contains("does not count on"), "{known:?}");
    let silent = || Err(Error::new("NOT_RUNNING", "the cluster", "nobody is there", "start it"));
    let known = own.check_cluster(path, &parts, silent).expect("somebody may decide that");
    assert!(known[0].contains("is not known") && known[0].contains("nobody is there"), "{known:?}");
    let others = [drive_part(cluster(2), node(1), 7), part(Content::Blank)];
    let not_asked = || panic!("it has nothing to do with it");
    let known = own.check_cluster(path, &others, not_asked).expect("somebody may decide that");
    assert!(known[0].contains("is not known"), "{known:?}");
}

/// A drive of the node that its settings do not name may have been taken out of the pool: the cluster must say so.
#[test]
fn a_drive_of_the_node_is_cleaned_only_if_the_cluster_says_that_it_was_taken_out() {
    let (own, path) = (own(), Path::new("/dev/sdc"));
    let parts = [drive_part(cluster(1), node(1), 7)];
    own.check(path, &parts).expect("it is at no path of the settings");
    let refused = own.check_cluster(path, &parts, || Ok(vec![status(7)])).expect_err("it is needed");
    assert_eq!(refused.code, "DRIVE_IN_CLUSTER");
    let silent = || Err(Error::new("NOT_RUNNING", "the cluster", "nobody is there", "start it"));
    let refused = own.check_cluster(path, &parts, silent).expect_err("nobody can say");
    assert!(refused.code == "DRIVE_OF_NODE" && refused.why.contains("nobody is there"), "{refused}");
    let known = own.check_cluster(path, &parts, || Ok(vec![status(6)])).expect("it was taken out");
    assert!(known[0].contains("does not count on"), "{known:?}");
}

#[test]
fn partitions_are_guarded_and_named_like_the_whole() {
    let (own, path) = (own(), Path::new("/dev/sdb"));
    let within = |name: &str, part: Part| Part { partition: Some(name.to_owned()), ..part };
    let own_part = Part { thing: Thing::Device(2), ..drive_part(cluster(1), node(1), 7) };
    let of_node = [part(Content::Foreign), within("sdb1", own_part)];
    let refused = own.check(path, &of_node).expect_err("it is the node's");
    assert_eq!(refused.code, "DRIVE_OF_NODE");
    assert!(refused.why.contains("its partition sdb1"), "{refused}");
    let damaged = Part { thing: Thing::Device(2), ..part(Content::Unclear("it cannot be read everywhere")) };
    assert!(own.check(path, &[part(Content::Foreign), within("sdb2", damaged)]).is_err());
    let parts = [
        part(Content::Foreign),
        within("sdb1", drive_part(cluster(2), node(1), 7)),
        within("sdb2", drive_part(cluster(2), node(1), 8)),
        within("sdb3", part(Content::Unknown)),
    ];
    own.check(path, &parts).expect("it is none of the node's");
    let known = own.check_cluster(path, &parts, || Ok(Vec::new())).expect("somebody may decide that");
    assert_eq!(known.len(), 2);
    let refused =
        check_meant(path, &parts, &known, &arguments(path, &[id(7)])).expect_err("there is another");
    assert_eq!(refused.code, "DRIVE_ID_NEEDED");
    assert!(refused.next.contains(&format!("--drive-id {}", id(8))), "{refused}");
    check_meant(path, &parts, &known, &arguments(path, &[id(8), id(7)])).expect("both are named");
    let both = format!("or with --yes --drive-id {} --drive-id {}", id(7), id(8));
    assert!(condition(&parts).ends_with(&both), "{}", condition(&parts));
    assert_eq!(condition(&[part(Content::Foreign)]), "");
    let unclear = part(Content::Unclear("it cannot be read everywhere"));
    assert!(condition(&[unclear]).contains("--yes is not enough"));
    let text = describe(path, 4 << 40, &parts, &known);
    assert!(text.starts_with("/dev/sdb has 4 TiB and the partitions sdb1, sdb2, sdb3; it carries"), "{text}");
    for needed in [
        format!("the partition sdb1: it is the drive {}", id(7)),
        "the partition sdb3: it carries".to_owned(),
    ] {
        assert!(text.contains(&needed), "{text}");
    }
}

#[test]
fn a_cache_drive_is_called_one_before_it_is_wiped() {
    let told = |part: &Part| describe(Path::new("/x"), SIZE_BYTES, std::slice::from_ref(part), &[]);
    let mut part = drive_part(cluster(2), node(2), 7);
    assert!(
        told(&part).contains("it is the drive ") && told(&part).contains("holds copies"),
        "{}",
        told(&part)
    );
    let Content::Drive(identity) = &mut part.content else { panic!("it is a drive") };
    identity.is_cache = true;
    let text = told(&part);
    assert!(text.contains("it is the cache drive ") && !text.contains("copies"), "{text}");
}
