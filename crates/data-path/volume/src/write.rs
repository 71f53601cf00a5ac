//! The write: locked, numbered, sent to every copy, answered when it is durable on all of them.
//!
//! A request is cut into pieces at slab borders and at 1 MiB. Each piece has a version of its own;
//! blocks are whole or absent, pieces of an unanswered request may be there in part.
//!
//! A copy that does not answer while another one has, for long, is suspected: a drive can hang while its
//! node lives.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;
use spandrel_platform::{Buffer, Platform, before};
use spandrel_replica::{ReplicaError, ReplicaRequest, ReplicaResponse};
use spandrel_shared::checksum::{BlockChecksum, Checksums};
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, BlockRange, SlabIndex, Version};

use crate::context::{AskError, OwnerContext};
use crate::few::Few;
use crate::membership::{LegId, LegState, MEMBERS_USUAL, Member};
use crate::owner::{Owner, OwnerError, OwnerInner};
use crate::pace::{DUE_TICKS, Kind, Measurement};

/// How long a copy that failed is left alone before it is asked again.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Writes to a joining leg that may be unanswered before further writes wait.
const UNAWAITED_WRITES_MAX: u64 = 64;

/// How long a write waits for joining legs that have too much to do.
const LAG_MAX: Duration = Duration::from_secs(1);

/// The longest piece of a write, in blocks: 1 MiB.
const PIECE_BLOCKS_MAX: u32 = 256;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Some copies of a slab.
type Members = SmallVec<[Member; MEMBERS_USUAL]>;

/// What a piece does to its blocks.
#[derive(Clone)]
pub(crate) enum Content {
    /// They get these data, as many blocks.
    Data { data: Buffer, checksums: Checksums },
    /// They are unmapped.
    Hole,
}

impl<C: OwnerContext> Owner<C> {
    /// Writes `data` from byte `offset` on. Returns when it is durable on every needed copy.
    pub async fn write(&self, offset: u64, data: Buffer) -> Result<(), OwnerError> {
        let inner = &self.inner;
        let blocks = inner.begin_request(offset, data.len() as u64)?;
        inner.serving().await?;
        let _lock = inner.locks.exclusive(blocks).await;
        let bytes = data.len() as u64;
        let data = inner.fill_to_blocks(offset, data, blocks).await?;
        inner.write_pieces(blocks, Some(data)).await?;
        witness::completed(inner.volume, inner.epoch);
        let mut statistics = inner.statistics.borrow_mut();
        statistics.writes += 1;
        statistics.write_bytes += bytes;
        Ok(())
    }

    /// Makes `length` bytes from `offset` on read as zeros: whole blocks are unmapped, parts of
    /// blocks at either end are overwritten.
    pub async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), OwnerError> {
        self.inner.begin_request(offset, length)?;
        let whole = whole_blocks(offset, length);
        let buffers = self.inner.context.platform().buffers().clone();
        if whole.count == 0 {
            return self.write(offset, buffers.take_zeroed(length as usize).freeze()).await;
        }
        let (start, end) = (whole.first * BLOCK, whole.end() * BLOCK);
        if start > offset {
            self.write(offset, buffers.take_zeroed((start - offset) as usize).freeze()).await?;
        }
        if offset + length > end {
            self.write(end, buffers.take_zeroed((offset + length - end) as usize).freeze()).await?;
        }
        self.trim(start, end - start).await
    }

    /// Unmaps the whole blocks within `length` bytes from `offset` on. Parts of blocks at either
    /// end keep their content.
    pub async fn trim(&self, offset: u64, length: u64) -> Result<(), OwnerError> {
        let inner = &self.inner;
        inner.begin_request(offset, length)?;
        inner.serving().await?;
        let geometry = inner.membership.borrow().geometry;
        let whole = whole_blocks(offset, length);
        // Slab by slab, so that a trim of a large volume does not lock all of it at once.
        for part in geometry.split(whole) {
            let blocks = part.in_volume(geometry);
            let _lock = inner.locks.exclusive(blocks).await;
            inner.write_pieces(blocks, None).await?;
            witness::completed(inner.volume, inner.epoch);
        }
        inner.statistics.borrow_mut().writes += 1;
        Ok(())
    }
}

/// The whole blocks within a range of bytes; none if it covers no whole block.
fn whole_blocks(offset: u64, length: u64) -> BlockRange {
    let first = offset.div_ceil(BLOCK);
    let end = (offset + length) / BLOCK;
    BlockRange::new(first, end.saturating_sub(first))
}

impl<C: OwnerContext> OwnerInner<C> {
    /// The data of all `blocks`: `data`, and what is there before and behind it. The caller holds
    /// the blocks alone.
    async fn fill_to_blocks(
        &self,
        offset: u64,
        data: Buffer,
        blocks: BlockRange,
    ) -> Result<Buffer, OwnerError> {
        let total = (blocks.count * BLOCK) as usize;
        if data.len() == total {
            return Ok(data);
        }
        let before = (offset - blocks.first * BLOCK) as usize;
        let behind = before + data.len();
        let mut whole = self.context.platform().buffers().take(total);
        if before > 0 {
            let first = self.read_block(blocks.first).await?;
            whole[..BLOCK_BYTES].copy_from_slice(&first);
        }
        let last_start = total - BLOCK_BYTES;
        if behind < total && (before == 0 || blocks.count > 1) {
            let last = self.read_block(blocks.end() - 1).await?;
            whole[last_start..].copy_from_slice(&last);
        }
        whole[before..behind].copy_from_slice(&data);
        Ok(whole.freeze())
    }

    /// Writes or, without data, unmaps `blocks`. The caller holds them alone. Returns when every
    /// piece is durable on every needed copy.
    async fn write_pieces(&self, blocks: BlockRange, data: Option<Buffer>) -> Result<(), OwnerError> {
        let (geometry, volume) = {
            let membership = self.membership.borrow();
            (membership.geometry, membership.volume)
        };
        let longest = if data.is_some() { PIECE_BLOCKS_MAX } else { u32::MAX };
        let mut pieces = geometry.split(blocks).flat_map(|part| cut(part, longest)).peekable();
        let mut done = 0;
        let mut content_of = |piece: SlabRange| {
            let Some(data) = &data else { return Content::Hole };
            let bytes = piece.count as usize * BLOCK_BYTES;
            let data = data.slice(done..done + bytes);
            done += bytes;
            let checksum = BlockChecksum::new(volume, piece.slab);
            let checksums = (piece.first..).zip(data.chunks_exact(BLOCK_BYTES));
            let checksums = checksums.map(|(block, bytes)| checksum.of(block, bytes)).collect();
            Content::Data { data, checksums }
        };
        let Some(first) = pieces.next() else { return Ok(()) };
        if pieces.peek().is_none() {
            // The most of all: no list of tasks, which are large, is made for it.
            return self.write_piece(first, content_of(first)).await;
        }
        let writes = std::iter::once(first).chain(pieces);
        let writes: Vec<_> = writes.map(|piece| self.write_piece(piece, content_of(piece))).collect();
        // All pieces end before the lock does, also if one fails.
        join_all(writes).await.into_iter().collect()
    }

    /// One piece with one version. Afterwards the write is complete on every needed copy, or has
    /// changed nothing anywhere, or the owner is deposed.
    async fn write_piece(&self, piece: SlabRange, content: Content) -> Result<(), OwnerError> {
        self.let_joining_legs_follow().await;
        let version = self.versions.borrow_mut().begin(piece);
        // Whoever falls out from here on finds the write under way.
        self.missed.note(piece);
        self.idle_mark.renew();
        let unfinished = UnfinishedWrite { owner: self };
        let result = self.send_and_await(piece, &content, version).await;
        if result != Err(OwnerError::Deposed) {
            // What the caller awaits after this are only its own other pieces.
            self.promised().await?;
        }
        std::mem::forget(unfinished);
        if self.is_deposed() {
            return Err(OwnerError::Deposed);
        }
        self.versions.borrow_mut().complete(version);
        result
    }

    /// Waits while a joining leg has too much to do. Nobody waits for single answers of it, but
    /// without this a leg that takes writes more slowly than they come would never catch up, and
    /// what is queued for it would delay everything else to its node. One that does not get on at
    /// all falls back.
    async fn let_joining_legs_follow(&self) {
        let lagging = || {
            let unawaited = self.unawaited.borrow();
            let mut legs = unawaited.iter().filter(|(_, count)| **count >= UNAWAITED_WRITES_MAX);
            legs.find(|(leg, _)| self.leg_state(**leg) == LegState::Joining).map(|(leg, _)| *leg)
        };
        if lagging().is_none() {
            return;
        }
        let platform = self.context.platform();
        let deadline = platform.now() + LAG_MAX;
        let followed = self.changed.wait_until(|| lagging().is_none() || self.is_deposed());
        if before(platform, deadline, followed).await.is_none() {
            while let Some(leg) = lagging() {
                self.set_leg_state(leg, LegState::Stale);
            }
        }
    }

    async fn send_and_await(
        &self,
        piece: SlabRange,
        content: &Content,
        version: Version,
    ) -> Result<(), OwnerError> {
        let members = self.members(piece.slab);
        let joining = members.iter().filter(|(_, state)| *state == LegState::Joining);
        let write = PieceWrite {
            piece,
            content,
            version,
            begun: self.looks.get(),
            leg_changes: self.legs.borrow().changes(),
            unawaited: joining.map(|(member, _)| member.leg()).collect(),
        };
        let mut awaited = Members::new();
        let mut asks = Few::with_capacity(members.len());
        let own_shard = self.context.shard();
        // The other nodes first: the message is on its way while the own drive is written.
        let on_own =
            |is_own: bool| members.iter().filter(move |(member, _)| (member.shard == own_shard) == is_own);
        for (member, state) in on_own(false).chain(on_own(true)).copied() {
            if !state.is_written() {
                continue;
            }
            if state == LegState::Joining {
                let (request, payload) = self.write_request(piece, content, version, &member);
                self.send_unawaited(&member, request, payload);
            } else {
                awaited.push(member);
                asks.push(self.begin_write(&write, member));
            }
        }
        self.await_needed(&write, awaited, asks).await
    }

    /// Asks one copy to write.
    fn begin_write(&self, write: &PieceWrite<'_>, member: Member) -> AskedWrite<'_, C> {
        let (request, payload) = self.write_request(write.piece, write.content, write.version, &member);
        let measurement = self.begin_measurement(&member, Kind::Write, DUE_TICKS);
        let asked = match self.check_accepted(&member) {
            Ok(()) if matches!(request, ReplicaRequest::Write { .. }) => {
                Asked::Write(self.context.begin_write(member.shard, request, payload))
            }
            Ok(()) => Asked::Trim(Box::pin(self.context.ask(member.shard, request, payload))),
            Err(error) => Asked::Refused(error),
        };
        AskedWrite { owner: self, member, measurement, asked }
    }

    /// Asks one copy again, after a while. A leg that has fallen out meanwhile is not asked: its resync begins to copy when this
    /// write has ended, and a request that is still under way then would be carried out over what was copied.
    async fn write_again(&self, write: &PieceWrite<'_>, member: Member) -> (Member, Result<(), AskError>) {
        self.context.platform().sleep(RETRY_DELAY).await;
        if !self.state_of(write.piece.slab, &member).is_needed() {
            return (member, Err(AskError::Unreachable("its leg has fallen out".to_owned())));
        }
        let (request, payload) = self.write_request(write.piece, write.content, write.version, &member);
        let answer = self.ask_copy(&member, request, payload).await;
        (member, answer.map(|_| ()))
    }

    /// Sends a write to a joining leg: nobody waits for its answer but the leg's promotion.
    fn send_unawaited(&self, member: &Member, request: ReplicaRequest, payload: Option<Buffer>) {
        let Some(owner) = self.own_handle() else { return };
        let (member, leg) = (*member, member.leg());
        *self.unawaited.borrow_mut().entry(leg).or_insert(0) += 1;
        self.context.platform().spawn(async move {
            let answer = owner.in_time(owner.ask_copy(&member, request, payload)).await;
            if let Err(error) = answer {
                owner.fall_back(leg, &error);
            }
            if let Some(count) = owner.unawaited.borrow_mut().get_mut(&leg) {
                *count -= 1;
            }
            owner.changed.notify_all();
        });
    }

    pub(crate) fn write_request(
        &self,
        piece: SlabRange,
        content: &Content,
        version: Version,
        member: &Member,
    ) -> (ReplicaRequest, Option<Buffer>) {
        let copy = self.membership.borrow().address(piece.slab, member);
        let (authority, mark) = (self.authority(), self.versions.borrow().mark());
        if !mark.exceptions.is_empty() {
            witness::reached(Rare::MarkWithExceptions);
        }
        match content {
            Content::Data { data, checksums } => {
                let checksums = checksums.clone();
                let request =
                    ReplicaRequest::Write { copy, authority, mark, first: piece.first, version, checksums };
                (request, Some(data.clone()))
            }
            Content::Hole => {
                let (first, count) = (piece.first, piece.count);
                (ReplicaRequest::Trim { copy, authority, mark, first, count, version }, None)
            }
        }
    }

    /// Waits until every member whose leg is needed has answered, or is not needed any more. A leg
    /// that fails is suspected; if it can't be marked (it may be the last one), it is asked again:
    /// the same write twice is the same write.
    async fn await_needed<'a, F>(
        &'a self,
        write: &'a PieceWrite<'a>,
        mut awaited: Members,
        mut asks: Few<F>,
    ) -> Result<(), OwnerError>
    where
        F: Future<Output = (Member, Result<(), AskError>)> + Unpin,
    {
        let mut retries = Few::new();
        let mut changed = self.changed.notified();
        let slab = write.piece.slab;
        let mut without_room = Members::new();
        let mut durable = Members::new();
        loop {
            if self.is_deposed() {
                return Err(OwnerError::Deposed);
            }
            // All that are awaited were needed when they were asked.
            let are_as_before = || self.legs.borrow().changes() == write.leg_changes;
            let needed = |member: &Member| are_as_before() || self.state_of(slab, member).is_needed();
            // A leg that has it but does not count any more makes no difference: it gets what the
            // others hold when it comes back.
            let any_durable = durable.iter().any(needed);
            if !awaited.iter().any(needed) {
                if !without_room.iter().any(needed) {
                    return Ok(());
                }
                if !any_durable {
                    self.undo_on_joining(&write.unawaited);
                    return Err(OwnerError::NoRoom);
                }
                // Some copies have it: those without room must not count any more. One that cannot be
                // marked, since another slab's last copy is with it, is asked until it has room.
                for member in without_room.drain(..) {
                    self.note_failure(slab, &member, &AskError::Replica(ReplicaError::NoRoom));
                    awaited.push(member);
                    retries.push(Box::pin(self.write_again(write, member)));
                }
                continue;
            }
            if any_durable && self.is_overdue(write.begun) {
                self.suspect_silent(slab, &awaited);
            }
            let Some((member, answer)) = next_of(&mut asks, &mut retries, &mut changed).await else {
                // Before the next look, so that no further change is missed.
                changed = self.changed.notified();
                continue;
            };
            match answer {
                Ok(()) => {
                    awaited.retain(|other| other.copy != member.copy);
                    let leg = if are_as_before() { Some(member.leg()) } else { self.leg_of(slab, &member) };
                    if let Some(leg) = leg {
                        if leg != member.leg() {
                            witness::reached(Rare::WriteMetPromotion);
                        }
                        self.suspects.borrow_mut().remove(&leg);
                    }
                    durable.push(member);
                }
                Err(AskError::Replica(ReplicaError::NoRoom)) if needed(&member) => {
                    witness::reached(Rare::DriveFull);
                    awaited.retain(|other| other.copy != member.copy);
                    without_room.push(member);
                }
                // It is not needed again before this write has ended: a resync waits for that.
                Err(_) if !needed(&member) => {}
                Err(error) => {
                    self.note_failure(slab, &member, &error);
                    retries.push(Box::pin(self.write_again(write, member)));
                }
            }
        }
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    /// A write that has changed nothing on the copies in sync may have been carried out on those that it was
    /// sent to while they joined. They would differ from then on: they begin anew. Their promotion, if they have
    /// come so far, is not sent before this write has ended.
    fn undo_on_joining(&self, unawaited: &[LegId]) {
        for leg in unawaited {
            if matches!(self.leg_state(*leg), LegState::Joining | LegState::Promoting) {
                self.set_leg_state(*leg, LegState::Stale);
            }
        }
    }

    /// Suspects the copies that have not answered a write for long while another one has: their drives
    /// hang, though their nodes are alive. (As long as none has answered, it may be this node.)
    fn suspect_silent(&self, slab: SlabIndex, awaited: &[Member]) {
        let silent = AskError::Unreachable("it does not answer a write".to_owned());
        for member in awaited {
            self.note_failure(slab, member, &silent);
        }
    }
}

/// The next answer of either kind, or `None` when `changed` comes first.
async fn next_of<A, B, T>(
    asks: &mut Few<A>,
    retries: &mut Few<B>,
    changed: &mut (impl Future<Output = ()> + Unpin),
) -> Option<T>
where
    A: Future<Output = T> + Unpin,
    B: Future<Output = T> + Unpin,
{
    std::future::poll_fn(|context| {
        if let Poll::Ready(answer) = asks.poll_next(context) {
            return Poll::Ready(Some(answer));
        }
        if let Poll::Ready(answer) = retries.poll_next(context) {
            return Poll::Ready(Some(answer));
        }
        Pin::new(&mut *changed).poll(context).map(|()| None)
    })
    .await
}

/// One piece of a write.
struct PieceWrite<'a> {
    piece: SlabRange,
    content: &'a Content,
    version: Version,
    /// For [`OwnerInner::is_overdue`].
    begun: u64,
    /// How often legs had changed when the copies were looked up.
    leg_changes: u64,
    /// The legs that were joining when it was sent to them.
    unawaited: Vec<LegId>,
}

/// One copy that was asked to write: gives the copy and what it answered.
struct AskedWrite<'a, C: OwnerContext> {
    owner: &'a OwnerInner<C>,
    member: Member,
    measurement: Option<Measurement>,
    asked: Asked<'a, C>,
}

/// What a copy has answered.
type CopyAnswer = Result<(ReplicaResponse, Vec<Buffer>), AskError>;

enum Asked<'a, C: OwnerContext> {
    Write(C::Write),
    Trim(Pin<Box<dyn Future<Output = CopyAnswer> + 'a>>),
    /// It was not asked.
    Refused(AskError),
}

impl<C: OwnerContext> Future for AskedWrite<'_, C> {
    type Output = (Member, Result<(), AskError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.asked {
            Asked::Write(write) => ready!(Pin::new(write).poll(context)),
            Asked::Trim(trim) => ready!(trim.as_mut().poll(context)),
            Asked::Refused(error) => Err(error.clone()),
        };
        match (self.measurement.take(), &answer) {
            (Some(measurement), Ok(_)) => measurement.answered(self.owner.context.platform().now()),
            (Some(measurement), Err(_)) => measurement.failed(),
            (None, _) => {}
        }
        Poll::Ready((self.member, answer.map(|_| ())))
    }
}

/// A write that is under way. If its future is dropped before its end, nobody knows which copies
/// have it, and its lock is gone: only a take-over can find out.
struct UnfinishedWrite<'a, C: OwnerContext> {
    owner: &'a OwnerInner<C>,
}

impl<C: OwnerContext> Drop for UnfinishedWrite<'_, C> {
    fn drop(&mut self) {
        self.owner.depose();
    }
}

/// The parts of `part` that are at most `longest` blocks long.
pub(crate) fn cut(part: SlabRange, longest: u32) -> impl Iterator<Item = SlabRange> {
    let mut first = part.first;
    std::iter::from_fn(move || {
        let count = (part.end() - first).min(longest);
        let piece = SlabRange { slab: part.slab, first, count };
        first += count;
        (count > 0).then_some(piece)
    })
}
