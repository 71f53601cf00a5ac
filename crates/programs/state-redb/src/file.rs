//! The file: a redb database with three tables.
//!
//! ```text
//! header   "header" -> magic 16, format 4, checksum of the rest 4, revision 8, last lease 8,
//!                      entry count 8, lease count 8, digest 4
//! entries  key      -> checksum 4, created 8, modified 8, lease 8 (0: none), value
//! leases   lease    -> time to live, nanoseconds
//! ```
//!
//! All numbers are little-endian, all checksums CRC-32C. An entry's covers its key too. The digest
//! is the XOR of the checksums of all entries and leases: it is kept up to date with every commit,
//! so that a file of which a part is lost or out of date is noticed when it is opened. redb checks
//! its own pages only after a crash; a state is small enough to have all of them checked every time.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use redb::backends::InMemoryBackend;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, StorageError, TableDefinition,
    TableHandle,
};
use spandrel_cluster::memory::{Image, Memory};
use spandrel_cluster::store::{Entry, Event, Key, LeaseId, Revision};
use spandrel_platform::Instant;
use spandrel_shared::Error;
use spandrel_shared::checksum::crc32c;

const HEADER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("header");
const ENTRIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("entries");
const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");

const HEADER_KEY: &str = "header";
const MAGIC: [u8; 16] = *b"spandrel state\r\n";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 60;
const ENTRY_HEAD_BYTES: usize = 28;

/// The first bytes of every redb file.
const REDB_MAGIC: [u8; 4] = *b"redb";

/// Memory for redb's pages: the state itself is held by [`Memory`].
const CACHE_BYTES: usize = 4 << 20;

type OpenDatabase = Box<dyn Fn(&Path) -> Result<Database, DatabaseError> + Send>;

/// Where the file is and how it is opened.
pub struct FileSource {
    path: PathBuf,
    open_database: OpenDatabase,
}

impl FileSource {
    /// The file at `path`.
    pub fn at(path: &Path) -> Self {
        let open_database = |path: &Path| Database::builder().set_cache_size(CACHE_BYTES).create(path);
        Self { path: path.to_owned(), open_database: Box::new(open_database) }
    }

    /// A source that opens the database in another way, for tests.
    #[cfg(test)]
    pub fn with(
        path: &Path,
        open_database: impl Fn(&Path) -> Result<Database, DatabaseError> + Send + 'static,
    ) -> Self {
        Self { path: path.to_owned(), open_database: Box::new(open_database) }
    }

    /// Opens the file and reads the whole state. `now` is when its leases start to count.
    pub fn open(&self, now: Instant) -> Result<(StateFile, Memory), Error> {
        let is_new = match self.examine()? {
            Some(content) => self.refuse_damaged(content).map(|()| false)?,
            None => true,
        };
        let database = (self.open_database)(&self.path).map_err(|error| self.database_error(error))?;
        if is_new {
            self.sync_folder()?;
        }
        match self.load(&database)? {
            Some((image, header)) => {
                let memory = Memory::restore(image, now)
                    .ok_or_else(|| self.damaged("a key is attached to a lease that is not there"))?;
                Ok((StateFile { database, header }, memory))
            }
            None => {
                let mut file = StateFile { database, header: Header::default() };
                let empty = Changes::default();
                file.commit(&empty).map_err(|detail| self.unavailable(detail))?;
                Ok((file, Memory::new()))
            }
        }
    }

    /// Refuses a file that another process uses or that redb did not write, before redb touches it.
    /// What is in the file; `None` if it is new.
    fn examine(&self) -> Result<Option<Vec<u8>>, Error> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io_error(&error)),
        };
        let metadata = file.metadata().map_err(|error| self.io_error(&error))?;
        if !metadata.is_file() {
            return Err(self.foreign("it is not a regular file"));
        }
        // redb holds this lock too while it has the file open.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(self.in_use()),
            Err(TryLockError::Error(error)) => return Err(self.io_error(&error)),
        }
        let mut content = Vec::new();
        let magic = file.by_ref().take(REDB_MAGIC.len() as u64).read_to_end(&mut content);
        magic.map_err(|error| self.io_error(&error))?;
        if content.is_empty() {
            return Ok(None);
        }
        if content != REDB_MAGIC {
            return Err(self.foreign("it does not begin as a state file does"));
        }
        file.read_to_end(&mut content).map_err(|error| self.io_error(&error))?;
        Ok(Some(content))
    }

    /// Has redb check every page, on a copy in memory: on the file itself it would panic at some
    /// kinds of damage and answer others by going back to an older commit.
    fn refuse_damaged(&self, mut content: Vec<u8>) -> Result<(), Error> {
        demand_whole_check(&mut content);
        let copy = InMemoryBackend::new();
        let filled = copy.set_len(content.len() as u64).and_then(|()| copy.write(0, &content));
        filled.map_err(|error| self.io_error(&error))?;
        drop(content);
        let builder = Database::builder();
        let mut database = builder.create_with_backend(copy).map_err(|error| self.database_error(error))?;
        match database.check_integrity() {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.damaged("its pages do not agree with their checksums")),
            Err(error) => Err(self.database_error(error)),
        }
    }

    /// Makes the name of a new file durable.
    fn sync_folder(&self) -> Result<(), Error> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| self.io_error(&error))
    }

    /// The state that the database holds; `None` if it holds nothing at all.
    fn load(&self, database: &Database) -> Result<Option<(Image, Header)>, Error> {
        let failed = |error: redb::Error| match error {
            redb::Error::Io(error) => self.io_error(&error),
            error => self.damaged(&error.to_string()),
        };
        let read = database.begin_read().map_err(|error| failed(error.into()))?;
        let mut tables = read.list_tables().map_err(|error| failed(error.into()))?;
        if tables.all(|table| table.name() != HEADER.name()) {
            let mut tables = read.list_tables().map_err(|error| failed(error.into()))?;
            return match tables.next() {
                None => Ok(None),
                Some(table) => Err(self.foreign(&format!("it holds a table {:?}", table.name()))),
            };
        }
        let header = read.open_table(HEADER).map_err(|error| failed(error.into()))?;
        let header = header.get(HEADER_KEY).map_err(|error| failed(error.into()))?;
        let header = self.decode_header(header.as_ref().map_or(&[], |header| header.value()))?;
        let mut image =
            Image { revision: header.revision, last_lease: header.last_lease, ..Image::default() };
        let mut digest = 0;
        let entries = read.open_table(ENTRIES).map_err(|error| failed(error.into()))?;
        for entry in entries.iter().map_err(|error| failed(error.into()))? {
            let (key, bytes) = entry.map_err(|error| failed(error.into()))?;
            let entry = decode_entry(key.value(), bytes.value())
                .ok_or_else(|| self.damaged(&format!("the entry {:?} fails its checksum", key.value())))?;
            digest ^= entry_checksum(&entry);
            image.entries.push(entry);
        }
        let leases = read.open_table(LEASES).map_err(|error| failed(error.into()))?;
        for lease in leases.iter().map_err(|error| failed(error.into()))? {
            let (id, nanoseconds) = lease.map_err(|error| failed(error.into()))?;
            digest ^= lease_checksum(id.value(), nanoseconds.value());
            image.leases.push((LeaseId(id.value()), Duration::from_nanos(nanoseconds.value())));
        }
        let counts = (image.entries.len() as u64, image.leases.len() as u64);
        if digest != header.digest || counts != (header.entry_count, header.lease_count) {
            return Err(self.damaged("a part of it is missing or out of date"));
        }
        Ok(Some((image, header)))
    }

    fn decode_header(&self, bytes: &[u8]) -> Result<Header, Error> {
        let Some(magic) = bytes.first_chunk::<16>() else {
            return Err(self.damaged("its header is too short"));
        };
        if *magic != MAGIC {
            return Err(self.foreign("its header is not that of a state file"));
        }
        let mut fields = Fields(&bytes[16..]);
        let (format, checksum) = (fields.u32(), fields.u32());
        // A newer format may have a longer header, so its number is judged first.
        if let Some(format) = format
            && format > FORMAT
        {
            return Err(Error::new(
                "STATE_FILE_TOO_NEW",
                format!("the cluster's state in {} cannot be used", self.path.display()),
                format!(
                    "a newer version wrote it: its format is {format}, this version knows up to {FORMAT}"
                ),
                "use the newer version of spandrel",
            ));
        }
        if bytes.len() != HEADER_BYTES || checksum != Some(crc32c(fields.0)) {
            return Err(self.damaged("its header fails its checksum"));
        }
        let header = (|| {
            Some(Header {
                revision: Revision(fields.u64()?),
                last_lease: fields.u64()?,
                entry_count: fields.u64()?,
                lease_count: fields.u64()?,
                digest: fields.u32()?,
            })
        })();
        Ok(header.expect("the header has its length"))
    }

    fn database_error(&self, error: DatabaseError) -> Error {
        match error {
            DatabaseError::DatabaseAlreadyOpen => self.in_use(),
            DatabaseError::Storage(StorageError::Io(error)) => self.io_error(&error),
            error => self.damaged(&error.to_string()),
        }
    }

    /// redb reports a part that cannot be right, or is cut off, as the system's errors too.
    fn io_error(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => self.damaged(&error.to_string()),
            _ => self.unavailable(error.to_string()),
        }
    }

    fn in_use(&self) -> Error {
        Error::new(
            "STATE_FILE_IN_USE",
            format!("the cluster's state in {} cannot be opened", self.path.display()),
            "another process has it open",
            "end the other process, or give this one another folder",
        )
    }

    fn unavailable(&self, why: String) -> Error {
        Error::new(
            "STATE_FILE_UNAVAILABLE",
            format!("the cluster's state in {} cannot be read or written", self.path.display()),
            why,
            "make the file and its folder readable and writable, with room on the file system",
        )
    }

    fn damaged(&self, why: &str) -> Error {
        Error::new(
            "STATE_FILE_DAMAGED",
            format!("the cluster's state in {} is damaged", self.path.display()),
            why,
            "put a backup of the file in its place; drives notice if it is older than what they know",
        )
    }

    fn foreign(&self, why: &str) -> Error {
        Error::new(
            "STATE_FILE_FOREIGN",
            format!("{} is not a cluster's state", self.path.display()),
            why,
            "name another file, or move this one away",
        )
    }
}

/// Changes the content of a redb file that was closed cleanly so that redb checks all of it, and so
/// that the commit before the last cannot stand in for the last one. After a crash redb does the
/// one by itself, and may have to do the other.
///
/// In redb's third file format the byte behind the nine of its magic holds flags: bit 0 says which
/// of two commit slots is the current one, bit 1 that the file was not closed, bit 2 that its pages
/// need no check even so. The slots have 128 bytes each, the first begins at byte 64. In each stand
/// the checksums of two trees, at bytes 16 and 48.
fn demand_whole_check(content: &mut [u8]) {
    const FLAGS: usize = 9;
    const SLOTS: [usize; 2] = [64, 192];
    const TREE_CHECKSUMS: [usize; 2] = [16, 48];
    if content.len() < 4096 || content[FLAGS] & 2 != 0 {
        return;
    }
    content[FLAGS] = content[FLAGS] & 1 | 2;
    let other_slot = SLOTS[usize::from(content[FLAGS] & 1 == 0)];
    for checksum in TREE_CHECKSUMS {
        content[other_slot + checksum] ^= 1;
    }
}

/// What a commit writes.
#[derive(Default)]
pub struct Changes {
    revision: Revision,
    last_lease: u64,
    /// The keys that changed, with what now stands there.
    keys: BTreeMap<Key, Option<Entry>>,
    /// All leases, if any came or went.
    leases: Option<Vec<(LeaseId, Duration)>>,
}

impl Changes {
    /// What changed in `memory` since `revision`; `None` if nothing did.
    pub fn since(memory: &Memory, revision: Revision, leases_changed: bool) -> Option<Self> {
        if memory.revision() == revision && !leases_changed {
            return None;
        }
        let mut changes =
            Self { revision: memory.revision(), last_lease: memory.last_lease(), ..Self::default() };
        let mut from = revision.next();
        while from <= memory.revision() {
            let pending = memory.events("", from).expect("history is forgotten only after it is committed");
            for event in pending.events {
                match event {
                    Event::Put(entry) => changes.keys.insert(entry.key.clone(), Some(entry)),
                    Event::Deleted { key, .. } => changes.keys.insert(key, None),
                };
            }
            from = pending.next;
        }
        changes.leases = leases_changed.then(|| memory.leases().collect());
        Some(changes)
    }
}

#[derive(Clone, Copy, Default)]
struct Header {
    revision: Revision,
    last_lease: u64,
    entry_count: u64,
    lease_count: u64,
    digest: u32,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut fields = Vec::with_capacity(HEADER_BYTES);
        for number in [self.revision.0, self.last_lease, self.entry_count, self.lease_count] {
            fields.extend(number.to_le_bytes());
        }
        fields.extend(self.digest.to_le_bytes());
        let mut bytes = [0; HEADER_BYTES];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..20].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[20..24].copy_from_slice(&crc32c(&fields).to_le_bytes());
        bytes[24..].copy_from_slice(&fields);
        bytes
    }
}

/// The file, open.
pub struct StateFile {
    database: Database,
    header: Header,
}

impl StateFile {
    /// Writes the changes and makes them durable. After an error it is not known whether they are
    /// there, and the file must be opened anew.
    pub fn commit(&mut self, changes: &Changes) -> Result<(), String> {
        self.try_commit(changes).map_err(|error| error.to_string())
    }

    fn try_commit(&mut self, changes: &Changes) -> Result<(), redb::Error> {
        let mut header = self.header;
        (header.revision, header.last_lease) = (changes.revision, changes.last_lease);
        let write = self.database.begin_write()?;
        {
            let mut entries = write.open_table(ENTRIES)?;
            for (key, entry) in &changes.keys {
                let encoded = entry.as_ref().map(encode_entry);
                let former = match &encoded {
                    Some(bytes) => entries.insert(key.as_str(), bytes.as_slice())?,
                    None => entries.remove(key.as_str())?,
                };
                if let Some(former) = former.as_ref().and_then(|former| former.value().first_chunk()) {
                    header.entry_count -= 1;
                    header.digest ^= u32::from_le_bytes(*former);
                }
                if let Some(bytes) = encoded.as_ref().and_then(|bytes| bytes.first_chunk()) {
                    header.entry_count += 1;
                    header.digest ^= u32::from_le_bytes(*bytes);
                }
            }
            let mut leases = write.open_table(LEASES)?;
            if let Some(current) = &changes.leases {
                for former in leases.iter()? {
                    let (id, nanoseconds) = former?;
                    header.digest ^= lease_checksum(id.value(), nanoseconds.value());
                }
                leases.retain(|_, _| false)?;
                for (id, time_to_live) in current {
                    let nanoseconds = u64::try_from(time_to_live.as_nanos()).unwrap_or(u64::MAX);
                    leases.insert(id.0, nanoseconds)?;
                    header.digest ^= lease_checksum(id.0, nanoseconds);
                }
                header.lease_count = current.len() as u64;
            }
            write.open_table(HEADER)?.insert(HEADER_KEY, header.encode().as_slice())?;
        }
        write.commit()?;
        self.header = header;
        Ok(())
    }
}

/// Numbers from the front of some bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }
}

fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ENTRY_HEAD_BYTES + entry.value.len());
    bytes.extend(entry_checksum(entry).to_le_bytes());
    bytes.extend(entry_tail(entry));
    bytes
}

/// Everything of an encoded entry behind its checksum.
fn entry_tail(entry: &Entry) -> Vec<u8> {
    let lease = entry.lease.map_or(0, |lease| lease.0);
    let mut bytes = Vec::with_capacity(ENTRY_HEAD_BYTES + entry.value.len());
    for number in [entry.created.0, entry.modified.0, lease] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(&*entry.value);
    bytes
}

fn entry_checksum(entry: &Entry) -> u32 {
    let key = entry.key.as_str();
    let mut bytes = (key.len() as u32).to_le_bytes().to_vec();
    bytes.extend(key.as_bytes());
    bytes.extend(entry_tail(entry));
    crc32c(&bytes)
}

fn lease_checksum(id: u64, nanoseconds: u64) -> u32 {
    crc32c(&[id.to_le_bytes(), nanoseconds.to_le_bytes()].concat())
}

/// The entry of a row, if its checksum is right.
fn decode_entry(key: &str, bytes: &[u8]) -> Option<Entry> {
    let mut fields = Fields(bytes);
    let checksum = fields.u32()?;
    let (created, modified, lease) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let entry = Entry {
        key: Key::new(key),
        value: fields.0.into(),
        created: Revision(created),
        modified: Revision(modified),
        lease: (lease != 0).then_some(LeaseId(lease)),
    };
    (entry_checksum(&entry) == checksum).then_some(entry)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
