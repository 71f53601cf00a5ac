use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use spandrel_cluster::store::{StateStore, StateWatch, StoreErrorKind, Transaction};
use tempfile::TempDir;

use super::*;
use crate::RedbState;
use crate::tests::{block_on, commit, everything, kind, put};

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    (folder, path)
}

fn refusal(path: &Path) -> Error {
    RedbState::open(path).err().expect("it must be refused")
}

#[test]
fn a_file_is_open_once() {
    let (_folder, path) = folder();
    let state = RedbState::open(&path).unwrap();
    let error = refusal(&path);
    assert_eq!(error.code, "STATE_FILE_IN_USE");
    assert!(error.what.contains(path.to_str().unwrap()));
    commit(&state, put("a", b"1"));
    drop(state);
    assert_eq!(everything(&RedbState::open(&path).unwrap()).groups[0].len(), 1);
}

#[test]
fn foreign_files_are_refused_and_left_alone() {
    let (folder, path) = folder();
    std::fs::write(&path, b"a letter to a friend").unwrap();
    assert_eq!(refusal(&path).code, "STATE_FILE_FOREIGN");
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter to a friend");
    assert_eq!(refusal(folder.path()).code, "STATE_FILE_FOREIGN");

    let other = folder.path().join("other");
    let table: TableDefinition<'_, u64, u64> = TableDefinition::new("stock");
    let database = Database::create(&other).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(table).unwrap().insert(1, 2).unwrap();
    write.commit().unwrap();
    drop(database);
    let error = refusal(&other);
    assert_eq!(error.code, "STATE_FILE_FOREIGN");
    assert!(error.why.contains("stock"), "{}", error.why);
    let database = Database::create(&other).unwrap();
    let value = database.begin_read().unwrap().open_table(table).unwrap().get(1).unwrap().unwrap().value();
    assert_eq!(value, 2);
}

#[test]
fn a_missing_folder_is_no_panic() {
    let (folder, _) = folder();
    assert_eq!(refusal(&folder.path().join("no/such/folder")).code, "STATE_FILE_UNAVAILABLE");
}

#[test]
fn an_empty_file_begins_a_new_state() {
    let (_folder, path) = folder();
    std::fs::write(&path, b"").unwrap();
    assert_eq!(everything(&RedbState::open(&path).unwrap()).revision, Revision::ZERO);
    // As if the process had died between making the database and its first commit.
    std::fs::remove_file(&path).unwrap();
    drop(Database::create(&path).unwrap());
    assert_eq!(everything(&RedbState::open(&path).unwrap()).revision, Revision::ZERO);
}

/// Replaces the header of a closed file.
fn set_header(path: &Path, bytes: &[u8]) {
    let database = Database::open(path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(HEADER).unwrap().insert(HEADER_KEY, bytes).unwrap();
    write.commit().unwrap();
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let (_folder, path) = folder();
    commit(&RedbState::open(&path).unwrap(), put("a", b"1"));
    let mut header = Header::default().encode().to_vec();
    header[16..20].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    header.extend(b"and more");
    set_header(&path, &header);
    let error = refusal(&path);
    assert_eq!(error.code, "STATE_FILE_TOO_NEW");
    assert!(error.why.contains("2") && error.why.contains("up to 1"), "{}", error.why);
}

#[test]
fn a_header_that_does_not_fit_is_damage() {
    let (_folder, path) = folder();
    commit(&RedbState::open(&path).unwrap(), put("a", b"1"));
    let good = Header { revision: Revision(1), ..Header::default() };
    set_header(&path, &good.encode());
    assert_eq!(refusal(&path).code, "STATE_FILE_DAMAGED", "it counts no entries, and there is one");
    let mut broken = good.encode();
    broken[30] ^= 1;
    set_header(&path, &broken);
    assert_eq!(refusal(&path).code, "STATE_FILE_DAMAGED");
    set_header(&path, &good.encode()[..40]);
    assert_eq!(refusal(&path).code, "STATE_FILE_DAMAGED");
    set_header(&path, b"something else altogether");
    assert_eq!(refusal(&path).code, "STATE_FILE_FOREIGN");
}

/// Files stand on disks for years. If this fails, old ones can no longer be read.
#[test]
fn the_format_never_changes() {
    let entry = Entry {
        key: Key::new("volumes/1"),
        value: b"value"[..].into(),
        created: Revision(3),
        modified: Revision(5),
        lease: Some(LeaseId(9)),
    };
    let header =
        Header { revision: Revision(5), last_lease: 9, entry_count: 1, lease_count: 1, digest: 0x0102_0304 };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&encode_entry(&entry)), PINNED_ENTRY);
    assert_eq!(
        (hex(&header.encode()).as_str(), lease_checksum(9, 1_000_000_000)),
        (PINNED_HEADER, PINNED_LEASE)
    );
    assert_eq!(decode_entry("volumes/1", &encode_entry(&entry)), Some(entry.clone()));
    assert_eq!(decode_entry("volumes/2", &encode_entry(&entry)), None, "the key is part of the checksum");
}

const PINNED_ENTRY: &str = "bcae640503000000000000000500000000000000090000000000000076616c7565";
const PINNED_HEADER: &str = "7370616e6472656c2073746174650d0a01000000df6d2ce4050000000000000009000000000000000100000000000000010000000000000004030201";
const PINNED_LEASE: u32 = 1_446_725_035;

/// Whatever bit of the file rots: it is refused, or the state is as it was. (Or as it was one commit
/// earlier, since redb takes a commit whose own checksum fails for one that a crash cut short.)
#[test]
fn no_damage_is_taken_for_a_state() {
    let (_folder, path) = folder();
    let state = RedbState::open(&path).unwrap();
    let lease = block_on(state.grant_lease(Duration::from_secs(600))).unwrap();
    for number in 0..60_u8 {
        commit(&state, put(&format!("key/{number}"), &[number; 300]));
    }
    commit(&state, Transaction::new().put_leased(&Key::new("leased"), *b"x", lease));
    let before = everything(&state);
    commit(&state, put("key/7", b"last"));
    let after = everything(&state);
    drop(state);
    let good = std::fs::read(&path).unwrap();
    let (mut refused, mut intact, mut older) = (0, 0, 0);
    let written: Vec<_> = (0..good.len()).filter(|at| good[*at] != 0).collect();
    for sample in 0..600 {
        // Every byte of redb's own header that is in use, then spread over the rest.
        let at = if sample < 100 { written[sample] } else { written[sample * written.len() / 600] };
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (sample % 8);
        std::fs::write(&path, &bytes).unwrap();
        let opened = catch_unwind(AssertUnwindSafe(|| RedbState::open(&path)));
        match opened.unwrap_or_else(|_| panic!("a panic for byte {at}")) {
            Err(error) => {
                refused += 1;
                let codes = ["STATE_FILE_DAMAGED", "STATE_FILE_FOREIGN", "STATE_FILE_TOO_NEW"];
                assert!(codes.contains(&&*error.code), "byte {at}: {error}");
            }
            Ok(state) => match everything(&state) {
                found if found == after => intact += 1,
                found if found == before => older += 1,
                found => panic!("byte {at} gave a state that never was: {found:?}"),
            },
        }
    }
    assert!(refused > 100, "{refused} refused, {intact} intact, {older} older");
}

/// A file that stops to write or to flush on command.
#[derive(Debug)]
struct FailingBackend {
    file: std::fs::File,
    failure: Arc<AtomicU8>,
}

const NO_FAILURE: u8 = 0;
const WRITES_FAIL: u8 = 1;
const FLUSHES_FAIL: u8 = 2;
const EVERYTHING_FAILS: u8 = 3;

impl FailingBackend {
    fn check(&self, failures: &[u8]) -> Result<(), std::io::Error> {
        if failures.contains(&self.failure.load(Ordering::SeqCst)) {
            return Err(std::io::Error::other("the disk does not answer"));
        }
        Ok(())
    }
}

impl StorageBackend for FailingBackend {
    fn len(&self) -> Result<u64, std::io::Error> {
        self.check(&[EVERYTHING_FAILS])?;
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        self.check(&[EVERYTHING_FAILS])?;
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, length: u64) -> Result<(), std::io::Error> {
        self.check(&[WRITES_FAIL, EVERYTHING_FAILS])?;
        self.file.set_len(length)
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        self.check(&[FLUSHES_FAIL, EVERYTHING_FAILS])?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        self.check(&[WRITES_FAIL, EVERYTHING_FAILS])?;
        self.file.write_all_at(data, offset)
    }
}

fn failing(path: &Path) -> (RedbState, Arc<AtomicU8>) {
    let failure = Arc::new(AtomicU8::new(NO_FAILURE));
    let own = Arc::clone(&failure);
    let open_database = move |path: &Path| {
        let file = std::fs::File::options().read(true).write(true).create(true).truncate(false).open(path);
        let backend = FailingBackend { file: file.unwrap(), failure: Arc::clone(&own) };
        Database::builder().create_with_backend(backend)
    };
    (RedbState::start(FileSource::with(path, open_database)).unwrap(), failure)
}

#[test]
fn a_commit_that_fails_is_unknown_and_then_seen_as_it_is() {
    for failing_part in [WRITES_FAIL, FLUSHES_FAIL, EVERYTHING_FAILS] {
        let (_folder, path) = folder();
        let (state, failure) = failing(&path);
        let from = commit(&state, put("a", b"before"));
        let mut watch = block_on(state.watch("", from.next())).unwrap();
        failure.store(failing_part, Ordering::SeqCst);
        assert_eq!(kind(block_on(state.transact(put("a", b"after")))), StoreErrorKind::Unknown);
        if failing_part == EVERYTHING_FAILS {
            assert_eq!(kind(block_on(state.read(&[]))), StoreErrorKind::Unavailable);
            assert_eq!(kind(block_on(watch.next())), StoreErrorKind::Unavailable);
            assert_eq!(kind(block_on(state.transact(put("b", b"x")))), StoreErrorKind::Unavailable);
        }
        failure.store(NO_FAILURE, Ordering::SeqCst);
        let seen = everything(&state);
        let value = &*seen.groups[0][0].value;
        let applied = seen.revision > from;
        assert_eq!(value, if applied { b"after".as_slice() } else { b"before" });
        assert_eq!(everything(&state), seen, "what was read does not change any more");
        assert_eq!(commit(&state, put("b", b"on it goes")), seen.revision.next());
        match block_on(watch.next()) {
            Ok(events) => assert!(!applied && events.len() == 1, "{events:?}"),
            Err(error) => {
                assert!(applied && matches!(error.kind, StoreErrorKind::Compacted { .. }), "{error}");
            }
        }
        let last = everything(&state);
        drop((state, watch));
        assert_eq!(everything(&RedbState::open(&path).unwrap()), last);
    }
}
