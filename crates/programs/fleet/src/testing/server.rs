//! A small NBD server whose every answer is decided by the test. It names the protocol's numbers
//! itself, so that it cannot share a mistake with the client.

use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use spandrel_platform::{Address, Connection, LinkError, Listener, Platform};
use spandrel_platform_linux::{Runtime, RuntimeConfig};

use crate::target::Target;

/// A request as the server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The name of the export, which tells clients apart.
    pub(crate) export: String,
    /// How many requests of that export came before.
    pub(crate) index: usize,
    pub(crate) command: u16,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// Since the server started.
    pub(crate) at: Duration,
    /// Requests in flight with the server, this one included.
    pub(crate) in_flight: usize,
}

impl Asked {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;

    pub(crate) fn is_write(&self) -> bool {
        self.command == Self::WRITE
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done after a time.
    Done(Duration),
    /// It fails after a time, with that number.
    Error(Duration, u32),
    /// It is never answered.
    Never,
    /// The connection is closed instead.
    Close,
}

type Decide = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

/// What a server does.
#[derive(Clone)]
pub(crate) struct Behaviour {
    pub(crate) size_bytes: u64,
    /// Whether it has structured replies; then reads are answered in two chunks, the second a hole if
    /// it is all zeros.
    pub(crate) is_structured: bool,
    pub(crate) is_read_only: bool,
    /// Least and longest request, if it says so.
    pub(crate) request_bytes: Option<(u32, u32)>,
    /// Answers GO with this error and text instead.
    pub(crate) refusal: Option<(u32, &'static str)>,
    /// What it says first, instead of the greeting; nothing if empty.
    pub(crate) greeting: Option<Vec<u8>>,
    pub(crate) decide: Decide,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            size_bytes: 16 << 20,
            is_structured: true,
            is_read_only: false,
            request_bytes: None,
            refusal: None,
            greeting: None,
            decide: Arc::new(|_| Answer::Done(Duration::ZERO)),
        }
    }
}

impl Behaviour {
    /// Answers as `decide` says.
    pub(crate) fn deciding(decide: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self { decide: Arc::new(decide), ..Self::default() }
    }

    /// Does everything after `latency`.
    pub(crate) fn with_latency(latency: Duration) -> Self {
        Self::deciding(move |_| Answer::Done(latency))
    }
}

/// A server and what it saw. All clones are the same.
#[derive(Clone)]
pub(crate) struct TestServer {
    behaviour: Behaviour,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    content: Vec<u8>,
    in_flight: usize,
}

impl TestServer {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        let content = vec![0; usize::try_from(behaviour.size_bytes).unwrap()];
        Self { behaviour, state: Arc::new(Mutex::new(State { content, ..State::default() })) }
    }

    /// All requests so far, in the order of their arrival.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap().asked.clone()
    }

    /// The reads and writes of one export.
    pub(crate) fn asked_of(&self, export: &str) -> Vec<Asked> {
        let is_io = |asked: &Asked| asked.export == export && asked.command <= Asked::WRITE;
        self.asked().into_iter().filter(is_io).collect()
    }

    /// What the volume holds, which all exports share.
    pub(crate) fn content(&self) -> Vec<u8> {
        self.state.lock().unwrap().content.clone()
    }

    /// Accepts connections for ever.
    pub(crate) async fn serve<P: Platform>(self, platform: P, listener: P::Listener) {
        let started = platform.now();
        while let Ok(connection) = listener.accept().await {
            let stream = Stream { connection, bytes: Vec::new() };
            let (server, own) = (self.clone(), platform.clone());
            platform.spawn(async move {
                // A connection that breaks off ends its task.
                let _ = server.converse(own, stream, started).await;
            });
        }
    }

    async fn converse<P: Platform>(
        self,
        platform: P,
        mut stream: Stream<P::Connection>,
        started: spandrel_platform::Instant,
    ) -> Result<(), LinkError> {
        let Some(export) = self.negotiate(&mut stream).await? else { return Ok(()) };
        loop {
            let head = stream.take(28).await?;
            assert_eq!(number(&head[..4]), 0x2560_9513, "the magic of a request");
            let (command, cookie) = (number(&head[6..8]) as u16, number(&head[8..16]));
            let (offset, length) = (number(&head[16..24]), number(&head[24..28]) as u32);
            let data = if command == Asked::WRITE { stream.take(length as usize).await? } else { Vec::new() };
            let asked = self.note(&export, command, offset, length, platform.now().since(started));
            if command == Asked::DISCONNECT {
                return Ok(());
            }
            let answer = (self.behaviour.decide)(&asked);
            if answer == Answer::Close {
                stream.connection.close();
                return Ok(());
            }
            let (server, own, connection) = (self.clone(), platform.clone(), stream.connection.clone());
            platform.spawn(async move {
                let error = match answer {
                    Answer::Done(latency) => {
                        own.sleep(latency).await;
                        0
                    }
                    Answer::Error(latency, error) => {
                        own.sleep(latency).await;
                        error
                    }
                    Answer::Never | Answer::Close => pending().await,
                };
                let reply = server.carry_out(&asked, cookie, error, &data);
                connection.send(&reply, &[]);
            });
        }
    }

    fn note(&self, export: &str, command: u16, offset: u64, length: u32, at: Duration) -> Asked {
        let mut state = self.state.lock().unwrap();
        let index = state.asked.iter().rev().find(|asked| asked.export == export);
        let index = index.map_or(0, |asked| asked.index + 1);
        if command != Asked::DISCONNECT {
            state.in_flight += 1;
        }
        let in_flight = state.in_flight;
        let asked = Asked { export: export.to_owned(), index, command, offset, length, at, in_flight };
        state.asked.push(asked.clone());
        asked
    }

    /// Does a request and returns its reply.
    fn carry_out(&self, asked: &Asked, cookie: u64, error: u32, data: &[u8]) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        state.in_flight -= 1;
        let range = asked.offset as usize..(asked.offset + u64::from(asked.length)) as usize;
        if error == 0 {
            match asked.command {
                Asked::WRITE => state.content[range.clone()].copy_from_slice(data),
                Asked::TRIM | Asked::WRITE_ZEROES => state.content[range.clone()].fill(0),
                Asked::READ | Asked::FLUSH => {}
                other => panic!("command {other}"),
            }
        }
        if !self.behaviour.is_structured {
            let mut reply = [0x6744_6698_u32.to_be_bytes(), error.to_be_bytes()].concat();
            reply.extend(cookie.to_be_bytes());
            if asked.command == Asked::READ && error == 0 {
                reply.extend(&state.content[range]);
            }
            return reply;
        }
        if error != 0 {
            let text = b"as told";
            let mut payload = error.to_be_bytes().to_vec();
            payload.extend((text.len() as u16).to_be_bytes());
            payload.extend(text);
            return chunk(cookie, (1 << 15) + 1, true, &payload);
        }
        if asked.command != Asked::READ {
            return chunk(cookie, 0, true, &[]);
        }
        read_chunks(cookie, asked.offset, &state.content[range])
    }

    /// The name of the export, or none if it was refused.
    async fn negotiate<C: Connection>(&self, stream: &mut Stream<C>) -> Result<Option<String>, LinkError> {
        let usual = [b"NBDMAGIC".as_slice(), b"IHAVEOPT", &3_u16.to_be_bytes()].concat();
        stream.connection.send(self.behaviour.greeting.as_ref().unwrap_or(&usual), &[]);
        assert_eq!(number(&stream.take(4).await?), 3, "the client's flags");
        loop {
            let head = stream.take(16).await?;
            assert_eq!(&head[..8], b"IHAVEOPT");
            let option = number(&head[8..12]) as u32;
            let data = stream.take(number(&head[12..16]) as usize).await?;
            let reply = |kind: u32, data: &[u8]| {
                let head =
                    [0x0003_e889_0455_65a9_u64.to_be_bytes().as_slice(), &option.to_be_bytes()].concat();
                [&head[..], &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
            };
            match option {
                8 if self.behaviour.is_structured => stream.connection.send(&reply(1, &[]), &[]),
                8 => stream.connection.send(&reply((1 << 31) + 1, &[]), &[]),
                7 => {
                    let name_bytes = number(&data[..4]) as usize;
                    let name = String::from_utf8(data[4..4 + name_bytes].to_vec()).unwrap();
                    if let Some((error, text)) = self.behaviour.refusal {
                        stream.connection.send(&reply(error, text.as_bytes()), &[]);
                        continue;
                    }
                    let flags = 1 | u16::from(self.behaviour.is_read_only) << 1 | 1 << 2 | 1 << 5 | 1 << 6;
                    let size = self.behaviour.size_bytes.to_be_bytes();
                    let export = [&0_u16.to_be_bytes(), &size[..], &flags.to_be_bytes()].concat();
                    stream.connection.send(&reply(3, &export), &[]);
                    if let Some((least, most)) = self.behaviour.request_bytes {
                        let sizes = [least, 4096, most].map(u32::to_be_bytes).concat();
                        stream.connection.send(&reply(3, &[&3_u16.to_be_bytes(), &sizes[..]].concat()), &[]);
                    }
                    // What the client did not ask for it must skip.
                    stream.connection.send(&reply(3, &[&1_u16.to_be_bytes(), name.as_bytes()].concat()), &[]);
                    stream.connection.send(&reply(1, &[]), &[]);
                    return Ok(Some(name));
                }
                other => panic!("option {other}"),
            }
        }
    }
}

/// A read's reply: its second half first, then the first, or the two as holes where they are zeros.
fn read_chunks(cookie: u64, offset: u64, content: &[u8]) -> Vec<u8> {
    let half = content.len() / 2;
    let part = |start: usize, content: &[u8], is_last: bool| {
        let at = (offset + start as u64).to_be_bytes();
        if content.iter().all(|byte| *byte == 0) {
            let length = (content.len() as u32).to_be_bytes();
            return chunk(cookie, 2, is_last, &[&at[..], &length].concat());
        }
        chunk(cookie, 1, is_last, &[&at[..], content].concat())
    };
    let second = part(half, &content[half..], false);
    let first = part(0, &content[..half], true);
    [second, first].concat()
}

/// A chunk of a structured reply.
pub(crate) fn chunk(cookie: u64, kind: u16, is_last: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend(u16::from(is_last).to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The receiving side of a connection.
struct Stream<C> {
    connection: C,
    bytes: Vec<u8>,
}

impl<C: Connection> Stream<C> {
    async fn take(&mut self, count: usize) -> Result<Vec<u8>, LinkError> {
        let mut buffer = vec![0; 64 << 10];
        while self.bytes.len() < count {
            let received = self.connection.receive(&mut buffer).await?;
            if received == 0 {
                return Err(LinkError::Closed("the client is gone".to_owned()));
            }
            self.bytes.extend(&buffer[..received]);
        }
        let rest = self.bytes.split_off(count);
        Ok(std::mem::replace(&mut self.bytes, rest))
    }
}

/// A server on a thread of its own, on a TCP port of this machine. Ends when dropped.
pub(crate) struct LinuxServer {
    pub(crate) server: TestServer,
    address: Address,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LinuxServer {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let server = TestServer::new(behaviour);
        let (addresses, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let own = server.clone();
        let thread = std::thread::spawn(move || {
            let mut runtime = Runtime::new(RuntimeConfig::default()).unwrap();
            let platform = runtime.platform();
            let listener = platform.listen(&Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
            addresses.send(listener.address()).unwrap();
            platform.spawn(own.serve(platform.clone(), listener));
            runtime.block_on(async move {
                let _ = stopped.await;
            });
        });
        let address = address.recv().unwrap();
        Self { server, address, stop: Some(stop), thread: Some(thread) }
    }

    /// So many targets, each an export of its own name.
    pub(crate) fn targets(&self, count: usize) -> Vec<Target> {
        let target = |number| {
            let name = format!("client-{number}");
            Target::new(name.clone(), self.address.clone(), name)
        };
        (0..count).map(target).collect()
    }

    /// Ends all connections and the server.
    pub(crate) fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for LinuxServer {
    fn drop(&mut self) {
        self.end();
    }
}
