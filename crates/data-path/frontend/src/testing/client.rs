//! An NBD client that trusts nothing: it names the protocol's numbers itself, and fails a test at
//! any reply that the protocol does not allow.

use std::cell::RefCell;
use std::collections::BTreeMap;

use spandrel_platform::Connection;

use super::TestConnection;

/// A request with a write's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) data: Vec<u8>,
}

impl Request {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;

    pub(crate) fn new(command: u16, cookie: u64, offset: u64, length: u32) -> Self {
        Self { flags: 0, command, cookie, offset, length, data: Vec::new() }
    }

    pub(crate) fn write(cookie: u64, offset: u64, data: Vec<u8>) -> Self {
        let length = u32::try_from(data.len()).unwrap();
        Self { flags: 0, command: Self::WRITE, cookie, offset, length, data }
    }

    pub(crate) fn with_flags(self, flags: u16) -> Self {
        Self { flags, ..self }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.length.to_be_bytes());
        bytes.extend(&self.data);
        bytes
    }
}

/// A piece of a structured reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    None,
    Data { offset: u64, length: usize },
    Hole { offset: u64, length: u32 },
    Status(Vec<(u32, u32)>),
    Error { error: u32, message: String },
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) request: Request,
    /// Zero, or the protocol's number of the error.
    pub(crate) error: u32,
    /// What a read yielded.
    pub(crate) data: Vec<u8>,
    /// Empty if the reply was a simple one.
    pub(crate) chunks: Vec<Chunk>,
}

/// A client that is attached to an export.
pub(crate) struct Client {
    pub(crate) connection: TestConnection,
    pub(crate) structured: bool,
    pub(crate) size_bytes: u64,
    pub(crate) flags: u16,
    pending: RefCell<BTreeMap<u64, Pending>>,
}

struct Pending {
    reply: Reply,
    /// Per byte of a read: whether a chunk has told it.
    told: Vec<bool>,
}

/// Reply types and data of the replies to one option, up to the final one.
pub(crate) type OptionReplies = Vec<(u32, Vec<u8>)>;

pub(crate) mod negotiate {
    //! The bytes of a negotiation, and the reading of what is answered.

    use super::*;

    /// Fixed newstyle, no padding.
    pub(crate) const CLIENT_FLAGS: [u8; 4] = [0, 0, 0, 3];

    pub(crate) const ACKNOWLEDGED: u32 = 1;
    pub(crate) const UNSUPPORTED: u32 = 0x8000_0001;
    pub(crate) const POLICY: u32 = 0x8000_0002;
    pub(crate) const INVALID: u32 = 0x8000_0003;
    pub(crate) const UNKNOWN: u32 = 0x8000_0006;
    pub(crate) const SHUTDOWN: u32 = 0x8000_0007;

    pub(crate) fn option(number: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(data);
        bytes
    }

    pub(crate) fn text(text: &str) -> Vec<u8> {
        let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(text.as_bytes());
        bytes
    }

    /// The data of INFO and GO.
    pub(crate) fn information(export: &str, kinds: &[u16]) -> Vec<u8> {
        let mut bytes = text(export);
        bytes.extend(u16::try_from(kinds.len()).unwrap().to_be_bytes());
        kinds.iter().for_each(|kind| bytes.extend(kind.to_be_bytes()));
        bytes
    }

    /// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
    pub(crate) fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
        let mut bytes = text(export);
        bytes.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
        queries.iter().for_each(|query| bytes.extend(text(query)));
        bytes
    }

    /// A whole negotiation, said without waiting for answers.
    pub(crate) fn script(export: &str, structured: bool) -> Vec<u8> {
        let mut bytes = CLIENT_FLAGS.to_vec();
        if structured {
            bytes.extend(option(8, &[]));
            bytes.extend(option(10, &contexts(export, &["base:allocation"])));
        }
        bytes.extend(option(7, &information(export, &[3])));
        bytes
    }

    /// Receives the greeting; `None` if the server closes.
    pub(crate) async fn greeting(connection: &TestConnection) -> Option<()> {
        let greeting = connection.receive_exact(18).await?;
        assert_eq!(greeting, b"NBDMAGICIHAVEOPT\x00\x03");
        Some(())
    }

    /// Receives the replies to `option`; `None` if the server closes.
    pub(crate) async fn replies(connection: &TestConnection, option: u32) -> Option<OptionReplies> {
        let mut replies = Vec::new();
        loop {
            let head = connection.receive_exact(20).await?;
            assert_eq!(head[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
            assert_eq!(number(&head[8..12]), option);
            let (kind, length) = (number(&head[12..16]), number(&head[16..20]));
            let data = connection.receive_exact(length as usize).await?;
            replies.push((kind, data));
            if kind == ACKNOWLEDGED || kind >= 1 << 31 {
                return Some(replies);
            }
        }
    }

    /// Sends an option and receives the replies.
    pub(crate) async fn ask(connection: &TestConnection, number: u32, data: &[u8]) -> Option<OptionReplies> {
        connection.send(&option(number, data), &[]);
        replies(connection, number).await
    }

    pub(crate) fn number(bytes: &[u8]) -> u32 {
        u32::from_be_bytes(bytes.try_into().unwrap())
    }
}

impl Client {
    /// Attaches to `export`.
    pub(crate) async fn attach(connection: TestConnection, export: &str, structured: bool) -> Client {
        negotiate::greeting(&connection).await.expect("a greeting");
        connection.send(&negotiate::script(export, structured), &[]);
        if structured {
            let replies = negotiate::replies(&connection, 8).await.unwrap();
            assert_eq!(replies, [(negotiate::ACKNOWLEDGED, Vec::new())]);
            let replies = negotiate::replies(&connection, 10).await.unwrap();
            assert_eq!(replies.len(), 2, "the context and the end");
            assert_eq!(replies[0], (4, b"\0\0\0\x01base:allocation".to_vec()));
        }
        let replies = negotiate::replies(&connection, 7).await.unwrap();
        assert_eq!(replies.last().unwrap().0, negotiate::ACKNOWLEDGED, "{replies:?}");
        let export = replies.iter().find(|(_, data)| data.starts_with(&[0, 0])).expect("the export's size");
        let size_bytes = u64::from_be_bytes(export.1[2..10].try_into().unwrap());
        let flags = u16::from_be_bytes(export.1[10..12].try_into().unwrap());
        Self::attached(connection, structured, size_bytes, flags)
    }

    /// A client whose negotiation is over.
    pub(crate) fn attached(
        connection: TestConnection,
        structured: bool,
        size_bytes: u64,
        flags: u16,
    ) -> Self {
        Self { connection, structured, size_bytes, flags, pending: RefCell::default() }
    }

    pub(crate) fn send(&self, request: &Request) {
        self.expect(request);
        self.connection.send(&request.bytes(), &[]);
    }

    /// Expects a reply to `request`, whose bytes are sent elsewhere.
    pub(crate) fn expect(&self, request: &Request) {
        let reply = Reply { request: request.clone(), error: 0, data: Vec::new(), chunks: Vec::new() };
        let former = self.pending.borrow_mut().insert(request.cookie, Pending { reply, told: Vec::new() });
        assert!(former.is_none(), "cookie {} is in use", request.cookie);
    }

    /// Sends a request and receives its reply, which is the next one.
    pub(crate) async fn ask(&self, request: &Request) -> Reply {
        self.send(request);
        let reply = self.reply().await.expect("a reply");
        assert_eq!(reply.request, *request);
        reply
    }

    /// The next reply that is whole; `None` if the server closes.
    pub(crate) async fn reply(&self) -> Option<Reply> {
        loop {
            let magic = self.connection.receive_exact(4).await?;
            let whole = match negotiate::number(&magic) {
                0x6744_6698 => Some(self.simple_reply().await?),
                0x668e_33ef => self.chunk().await?,
                other => panic!("a reply begins with {other:#x}"),
            };
            if let Some(reply) = whole {
                return Some(reply);
            }
        }
    }

    fn take(&self, cookie: u64) -> Pending {
        self.pending.borrow_mut().remove(&cookie).expect("a reply to what was asked")
    }

    async fn simple_reply(&self) -> Option<Reply> {
        let head = self.connection.receive_exact(12).await?;
        let mut reply = self.take(u64::from_be_bytes(head[4..12].try_into().unwrap())).reply;
        reply.error = negotiate::number(&head[..4]);
        assert!(reply.chunks.is_empty());
        let is_read = reply.request.command == Request::READ;
        assert!(!self.structured || !is_read, "a simple reply to a read");
        if is_read && reply.error == 0 {
            reply.data = self.connection.receive_exact(reply.request.length as usize).await?;
        }
        Some(reply)
    }

    async fn chunk(&self) -> Option<Option<Reply>> {
        assert!(self.structured, "a chunk for a client that does not know it");
        let head = self.connection.receive_exact(16).await?;
        let flags = u16::from_be_bytes(head[..2].try_into().unwrap());
        let kind = u16::from_be_bytes(head[2..4].try_into().unwrap());
        let mut pending = self.take(u64::from_be_bytes(head[4..12].try_into().unwrap()));
        let payload = self.connection.receive_exact(negotiate::number(&head[12..16]) as usize).await?;
        let is_read = pending.reply.request.command == Request::READ;
        assert!(is_read || !matches!(kind, 1 | 2), "content for {:?}", pending.reply.request);
        let chunk = match kind {
            0 => {
                assert!(payload.is_empty() && flags == 1);
                Chunk::None
            }
            1 => {
                assert!(payload.len() > 8);
                let offset = u64::from_be_bytes(payload[..8].try_into().unwrap());
                pending.tell(offset, &payload[8..]);
                Chunk::Data { offset, length: payload.len() - 8 }
            }
            2 => {
                let offset = u64::from_be_bytes(payload[..8].try_into().unwrap());
                let length = negotiate::number(&payload[8..]);
                assert_ne!(length, 0);
                pending.tell(offset, &vec![0; length as usize]);
                Chunk::Hole { offset, length }
            }
            5 => {
                assert_eq!(pending.reply.request.command, Request::BLOCK_STATUS);
                assert_eq!(negotiate::number(&payload[..4]), 1, "the context's number");
                let descriptors = payload[4..].chunks(8);
                Chunk::Status(
                    descriptors
                        .map(|bytes| (negotiate::number(&bytes[..4]), negotiate::number(&bytes[4..])))
                        .collect(),
                )
            }
            0x8001 => {
                let error = negotiate::number(&payload[..4]);
                let length = u16::from_be_bytes(payload[4..6].try_into().unwrap());
                assert_eq!(payload.len(), 6 + usize::from(length));
                assert_ne!(error, 0);
                pending.reply.error = error;
                Chunk::Error { error, message: String::from_utf8(payload[6..].to_vec()).unwrap() }
            }
            other => panic!("chunk type {other:#x}"),
        };
        pending.reply.chunks.push(chunk);
        assert!(flags <= 1);
        if flags == 1 {
            return Some(Some(pending.finish()));
        }
        self.pending.borrow_mut().insert(pending.reply.request.cookie, pending);
        Some(None)
    }
}

impl Pending {
    fn tell(&mut self, offset: u64, bytes: &[u8]) {
        let request = &self.reply.request;
        let length = request.length as usize;
        self.told.resize(length, false);
        self.reply.data.resize(length, 0);
        let start = usize::try_from(offset.checked_sub(request.offset).expect("within the request")).unwrap();
        let range = start..start + bytes.len();
        assert!(self.told[range.clone()].iter().all(|told| !told), "told twice");
        self.told[range.clone()].fill(true);
        self.reply.data[range].copy_from_slice(bytes);
    }

    fn finish(self) -> Reply {
        let (reply, request) = (self.reply, &self.told);
        if reply.error == 0 && reply.request.command == Request::READ {
            assert_eq!(request.len(), reply.request.length as usize);
            assert!(request.iter().all(|told| *told), "a part was not told");
        }
        let content =
            reply.chunks.iter().filter(|chunk| matches!(chunk, Chunk::Data { .. } | Chunk::Hole { .. }));
        let unfragmented = reply.request.flags & 4 != 0;
        assert!(!unfragmented || content.count() <= 1, "fragmented against the client's wish");
        reply
    }
}
