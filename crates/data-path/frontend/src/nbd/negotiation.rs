//! The phase in which client and server agree on a volume and on how to speak: fixed newstyle.
//!
//! What bounds a client, which anybody may be: the number of its options, the length of each
//! option's data, the replies that it does not take, and the time that it may let the server wait
//! in all. The time that a volume takes to open is not counted.
//!
//! A volume that was opened to tell about it stays open until another one is asked for, so that
//! a client that asks first and then uses it finds the same.
//!
//! An option that names a volume whose clients another thread's server has is not answered: that server does, and goes on
//! from there.

use std::fmt;

use spandrel_platform::{Connection, Instant, Platform, before};
use spandrel_shared::size::format_size;
use spandrel_shared::witness::{self, Rare};
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, Exports, OpenError};

use super::NbdConfig;
use super::exchange::{Exchange, Passage};
use super::options::{
    self, CLIENT_FLAGS_BYTES, ContextRequest, InformationRequest, OptionHeader, parse_text, push_reply,
};
use super::protocol::{
    ALLOCATION_CONTEXT, ALLOCATION_CONTEXT_ID, ALLOCATION_NAMESPACE, handshake_flags, information, option,
    option_reply, transmission_flags,
};
use super::receiver::{Ending, Receiver};
use crate::statistics::Counters;

/// The longest data of an option.
const OPTION_DATA_BYTES_MAX: u32 = 64 << 10;

/// What both sides agreed on.
pub(super) struct Agreement<D> {
    pub(super) name: String,
    pub(super) device: D,
    pub(super) structured: bool,
    pub(super) allocation_context: bool,
    pub(super) request_bytes_max: u32,
}

/// Why a negotiation ended without an agreement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NegotiationEnd {
    /// The client went, as it may.
    Left,
    /// The server stops.
    Stopping,
    /// Another server goes on with the connection.
    PassedOn,
    /// This side has had enough, for the reason given.
    Refused(String),
}

impl fmt::Display for NegotiationEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NegotiationEnd::Left => formatter.write_str("the client left"),
            NegotiationEnd::Stopping => formatter.write_str("the server stops"),
            NegotiationEnd::PassedOn => formatter.write_str("another thread goes on with it"),
            NegotiationEnd::Refused(reason) => formatter.write_str(reason),
        }
    }
}

impl From<Ending> for NegotiationEnd {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Disconnected | Ending::Closed | Ending::Broken(_) => NegotiationEnd::Left,
            Ending::Stopping => NegotiationEnd::Stopping,
            Ending::Violation(text) => NegotiationEnd::Refused(text),
        }
    }
}

/// How far a negotiation is, in whichever server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    deadline: Instant,
    /// How many more options are heard.
    options_left: u32,
    /// Whether the client has said how it speaks: only then more than the name of an export may come, if that is fixed newstyle.
    fixed: Option<bool>,
    padded: bool,
    structured: bool,
    /// The export for which the allocation may be asked.
    context_export: Option<String>,
}

impl Progress {
    /// Nothing is said yet.
    pub(super) fn begin(now: Instant, config: &NbdConfig) -> Self {
        Self {
            deadline: now + config.negotiation_timeout,
            options_left: config.negotiation_options_max,
            fixed: None,
            padded: true,
            structured: false,
            context_export: None,
        }
    }
}

/// What a negotiation is held with.
pub(super) struct Sides<'a, P: Platform, E> {
    pub(super) platform: &'a P,
    pub(super) exports: &'a E,
    pub(super) config: &'a NbdConfig,
    pub(super) counters: &'a Counters,
    pub(super) exchange: &'a Exchange<P::Detached>,
    pub(super) connection: &'a P::Connection,
}

/// A client that is not attached to a volume yet.
pub(super) struct Negotiation<'a, P: Platform, E: Exports> {
    sides: Sides<'a, P, E>,
    receiver: &'a mut Receiver<P::Connection>,
    progress: Progress,
    opened: Option<(String, E::Device)>,
}

/// How it goes on after an option.
enum Step<D> {
    Next,
    Left,
    Agreed(Agreement<D>),
    /// The option is for the server with this number.
    PassOn(usize),
}

impl<'a, P: Platform, E: Exports> Negotiation<'a, P, E> {
    pub(super) fn new(
        sides: Sides<'a, P, E>,
        receiver: &'a mut Receiver<P::Connection>,
        progress: Progress,
    ) -> Self {
        Self { sides, receiver, progress, opened: None }
    }

    /// Negotiates until both sides agree, or one does not want to go on.
    pub(super) async fn run(mut self) -> Result<Agreement<E::Device>, NegotiationEnd> {
        let fixed = match self.progress.fixed {
            Some(fixed) => fixed,
            None => {
                self.sides.connection.send(&options::greeting(), &[]);
                self.receive_client_flags().await?
            }
        };
        while self.progress.options_left > 0 {
            self.progress.options_left -= 1;
            let header = self.receive_option().await?;
            if !fixed && header.option != option::EXPORT_NAME {
                return Err(refused(format!("option {} without fixed newstyle", header.option)));
            }
            let length = OptionHeader::BYTES + header.length as usize;
            let data = self.receiver.received()[OptionHeader::BYTES..length].to_vec();
            match self.answer(header.option, &data).await? {
                Step::Next => self.receiver.consume(length),
                Step::Left => return Err(NegotiationEnd::Left),
                Step::Agreed(agreement) => {
                    self.receiver.consume(length);
                    return Ok(agreement);
                }
                Step::PassOn(number) => return Err(self.pass_on(number).await),
            }
        }
        let options_max = self.sides.config.negotiation_options_max;
        Err(refused(format!("{options_max} options without choosing an export")))
    }

    /// Waits for something that the client does not keep waiting: it has so much longer.
    async fn untimed<T>(&mut self, waiting: impl Future<Output = T>) -> T {
        let began = self.sides.platform.now();
        let done = waiting.await;
        self.progress.deadline = self.progress.deadline + self.sides.platform.now().since(began);
        done
    }

    /// Has another server go on, from the option on that was received last, when all answers to what was asked before are on
    /// their way. A connection that cannot go there ends: its client comes again.
    async fn pass_on(&mut self, number: usize) -> NegotiationEnd {
        let Sides { platform, exchange, connection, .. } = self.sides;
        match before(platform, self.progress.deadline, connection.send_room(1)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Ending::Broken(error).into(),
            None => return self.too_late(),
        }
        let Some(detached) = platform.detach(connection) else {
            return refused("it cannot be passed on to the thread that serves its volume".to_owned());
        };
        witness::reached(Rare::ClientPassedOn);
        let unanswered = self.receiver.received().to_vec();
        exchange.send(number, Passage { connection: detached, progress: self.progress.clone(), unanswered });
        NegotiationEnd::PassedOn
    }

    fn note_refusal(&self, name: &str, error: &DeviceError) {
        let Sides { counters, connection, .. } = self.sides;
        counters.count(|statistics| statistics.exports_refused += 1);
        let peer = connection.peer();
        tracing::warn!(%peer, export = name, reason = %error, "NBD export refused");
    }

    async fn receive_client_flags(&mut self) -> Result<bool, NegotiationEnd> {
        self.fill(CLIENT_FLAGS_BYTES).await?;
        let bytes = self.receiver.received().first_chunk().expect("the bytes were received");
        let flags = u32::from_be_bytes(*bytes);
        self.receiver.consume(CLIENT_FLAGS_BYTES);
        let (fixed, no_zeroes) =
            (u32::from(handshake_flags::FIXED_NEWSTYLE), u32::from(handshake_flags::NO_ZEROES));
        if flags & !(fixed | no_zeroes) != 0 {
            return Err(refused(format!("unknown client flags {flags:#x}")));
        }
        self.progress.padded = flags & no_zeroes == 0;
        let is_fixed = flags & fixed != 0;
        self.progress.fixed = Some(is_fixed);
        Ok(is_fixed)
    }

    /// Receives an option: its header and its data, which are not consumed.
    async fn receive_option(&mut self) -> Result<OptionHeader, NegotiationEnd> {
        self.fill(OptionHeader::BYTES).await?;
        let Some(header) = OptionHeader::parse(self.receiver.received()) else {
            return Err(refused("an option does not begin with the magic number".to_owned()));
        };
        if header.length > OPTION_DATA_BYTES_MAX {
            return Err(refused(format!("option {} has {} bytes of data", header.option, header.length)));
        }
        self.fill(OptionHeader::BYTES + header.length as usize).await?;
        Ok(header)
    }

    /// Completes when `count` bytes are received and the client has taken most of its replies.
    async fn fill(&mut self, count: usize) -> Result<(), NegotiationEnd> {
        let Sides { platform, config, connection, .. } = self.sides;
        let room = connection.send_room(config.send_queue_bytes_max);
        let receiver = &mut *self.receiver;
        let filled = before(platform, self.progress.deadline, async {
            room.await.map_err(Ending::Broken)?;
            receiver.fill(count).await
        });
        match filled.await {
            Some(filled) => filled.map_err(NegotiationEnd::from),
            None => Err(self.too_late()),
        }
    }

    fn too_late(&self) -> NegotiationEnd {
        refused(format!("not done after {:?}", self.sides.config.negotiation_timeout))
    }

    async fn answer(&mut self, option: u32, data: &[u8]) -> Result<Step<E::Device>, NegotiationEnd> {
        let mut replies = Vec::new();
        let mut step = Step::Next;
        match option {
            option::EXPORT_NAME => step = self.answer_export_name(data, &mut replies).await?,
            option::ABORT => {
                push_reply(&mut replies, option, option_reply::ACKNOWLEDGED, &[]);
                step = Step::Left;
            }
            option::INFO | option::GO => step = self.answer_information(option, data, &mut replies).await,
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                step = self.answer_contexts(option, data, &mut replies).await;
            }
            option::LIST | option::STRUCTURED_REPLY | option::STARTTLS if !data.is_empty() => {
                push_reply(&mut replies, option, option_reply::ERROR_INVALID, &[b"this option has no data"]);
            }
            option::LIST => {
                for name in self.sides.exports.names() {
                    options::push_server(&mut replies, option, &name);
                }
                push_reply(&mut replies, option, option_reply::ACKNOWLEDGED, &[]);
            }
            option::STRUCTURED_REPLY => {
                self.progress.structured = true;
                push_reply(&mut replies, option, option_reply::ACKNOWLEDGED, &[]);
            }
            option::STARTTLS => {
                push_reply(&mut replies, option, option_reply::ERROR_UNSUPPORTED, &[b"TLS is not supported"]);
            }
            _ => push_reply(&mut replies, option, option_reply::ERROR_UNSUPPORTED, &[b"unknown option"]),
        }
        if !replies.is_empty() {
            self.sides.connection.send(&replies, &[]);
        }
        Ok(step)
    }

    async fn answer_export_name(
        &mut self,
        data: &[u8],
        replies: &mut Vec<u8>,
    ) -> Result<Step<E::Device>, NegotiationEnd> {
        let Some(name) = parse_text(data) else {
            return Err(refused("the name of the export is not a valid text".to_owned()));
        };
        let device = match self.open(name).await {
            Ok(device) => device,
            Err(OpenError::Elsewhere(number)) => return Ok(Step::PassOn(number)),
            // The protocol knows no other answer to this option than to close.
            Err(OpenError::Failed(error)) => return Err(refused(format!("export {name:?}: {error}"))),
        };
        let flags = self.transmission_flags(&device);
        options::push_export_name_answer(replies, device.limits().size_bytes, flags, self.progress.padded);
        Ok(Step::Agreed(self.agree(name, device)))
    }

    async fn answer_information(
        &mut self,
        option: u32,
        data: &[u8],
        replies: &mut Vec<u8>,
    ) -> Step<E::Device> {
        let Some(request) = InformationRequest::parse(data) else {
            push_reply(replies, option, option_reply::ERROR_INVALID, &[b"malformed data"]);
            return Step::Next;
        };
        let device = match self.open(request.export).await {
            Ok(device) => device,
            Err(error) => return not_opened(replies, option, error),
        };
        let limits = device.limits();
        let flags = self.transmission_flags(&device);
        options::push_export_information(replies, option, limits.size_bytes, flags);
        if request.name {
            options::push_text_information(replies, option, information::NAME, request.export);
        }
        if request.description {
            let text = format!("Spandrel volume {}, {}", request.export, format_size(limits.size_bytes));
            options::push_text_information(replies, option, information::DESCRIPTION, &text);
        }
        let sizes =
            [limits.request_bytes_min, limits.request_bytes_preferred, self.request_bytes_max(&device)];
        options::push_block_sizes(replies, option, sizes);
        push_reply(replies, option, option_reply::ACKNOWLEDGED, &[]);
        match option {
            option::GO => Step::Agreed(self.agree(request.export, device)),
            _ => Step::Next,
        }
    }

    async fn answer_contexts(&mut self, option: u32, data: &[u8], replies: &mut Vec<u8>) -> Step<E::Device> {
        let select = option == option::SET_META_CONTEXT;
        if select {
            // What was selected before is gone, even if this selection fails.
            self.progress.context_export = None;
        }
        let Some(request) = ContextRequest::parse(data) else {
            push_reply(replies, option, option_reply::ERROR_INVALID, &[b"malformed data"]);
            return Step::Next;
        };
        if select && !self.progress.structured {
            push_reply(replies, option, option_reply::ERROR_INVALID, &[b"structured replies come first"]);
            return Step::Next;
        }
        if let Err(error) = self.open(request.export).await {
            return not_opened(replies, option, error);
        }
        let named = request.queries().any(|query| query == ALLOCATION_CONTEXT);
        let wildcard = request.queries().any(|query| query == ALLOCATION_NAMESPACE) || !request.has_queries();
        if select && named {
            options::push_context(replies, option, ALLOCATION_CONTEXT_ID, ALLOCATION_CONTEXT);
            self.progress.context_export = Some(request.export.to_owned());
        } else if !select && (named || wildcard) {
            options::push_context(replies, option, 0, ALLOCATION_CONTEXT);
        }
        push_reply(replies, option, option_reply::ACKNOWLEDGED, &[]);
        Step::Next
    }

    async fn open(&mut self, name: &str) -> Result<E::Device, OpenError> {
        if let Some((opened, device)) = &self.opened
            && opened == name
        {
            return Ok(device.clone());
        }
        self.opened = None;
        let exports = self.sides.exports;
        let result = self.untimed(exports.open(name)).await;
        match &result {
            Ok(device) => self.opened = Some((name.to_owned(), device.clone())),
            Err(OpenError::Elsewhere(_)) => {}
            Err(OpenError::Failed(error)) => self.note_refusal(name, error),
        }
        result
    }

    fn request_bytes_max(&self, device: &E::Device) -> u32 {
        device.limits().request_bytes_max.min(self.sides.config.request_bytes_max)
    }

    fn transmission_flags(&self, device: &E::Device) -> u16 {
        use transmission_flags::*;
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
        let changes = match device.limits().read_only {
            true => READ_ONLY,
            false => SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO,
        };
        let structured = if self.progress.structured { SEND_DF } else { 0 };
        always | changes | structured
    }

    fn agree(&mut self, name: &str, device: E::Device) -> Agreement<E::Device> {
        self.opened = None;
        Agreement {
            name: name.to_owned(),
            request_bytes_max: self.request_bytes_max(&device),
            structured: self.progress.structured,
            allocation_context: self.progress.context_export.as_deref() == Some(name),
            device,
        }
    }
}

fn refused(reason: String) -> NegotiationEnd {
    NegotiationEnd::Refused(reason)
}

/// How it goes on after an option whose export was not opened.
fn not_opened<D>(replies: &mut Vec<u8>, option: u32, error: OpenError) -> Step<D> {
    let error = match error {
        OpenError::Elsewhere(number) => return Step::PassOn(number),
        OpenError::Failed(error) => error,
    };
    let reply_type = match error.kind {
        DeviceErrorKind::Stopping => option_reply::ERROR_SHUTDOWN,
        DeviceErrorKind::Busy => option_reply::ERROR_POLICY,
        _ => option_reply::ERROR_UNKNOWN,
    };
    push_reply(replies, option, reply_type, &[error.detail.as_bytes()]);
    Step::Next
}

#[cfg(test)]
#[path = "negotiation_tests.rs"]
mod tests;
