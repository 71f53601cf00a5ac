//! The read: from the nearest in-sync copy that has the block whole.
//!
//! A read shares its blocks with other reads and waits for writes, so no later read sees an older
//! block. A damaged block is read from another copy, answered, and healed. If no in-sync copy has it
//! whole, one that is not in sync may: the in-sync maps still say which checksum the newest content
//! has. If nobody has it, the block is lost: its readers get an error, and only they.
//!
//! A copy that takes long is helped by another one (see `hedge`), and one that is slow is read last. One that does not
//! answer for long is suspected, and read no more once its leg is out.

use std::collections::BTreeSet;

use futures_util::future::Either;
use spandrel_platform::{Buffer, Platform};
use spandrel_replica::{Heeded, PartDescription, ReplicaError, ReplicaRequest, ReplicaResponse};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, BlockRange, DriveId, ShardId, SlabIndex};

use crate::context::{AskError, OwnerContext};
use crate::device::Extent;
use crate::membership::{LegState, Member};
use crate::owner::{Owner, OwnerError, OwnerInner};
use crate::pace::Measurement;
use crate::write::cut;

/// The longest read from one copy, in blocks: 1 MiB.
const PIECE_BLOCKS_MAX: u32 = 256;

/// The longest question about allocation to one copy, in blocks: 64 MiB.
const EXTENT_BLOCKS_MAX: u32 = 16_384;

/// What one answer about allocation covers at most, in blocks: 1 GiB.
const EXTENT_ANSWER_BLOCKS_MAX: u64 = 262_144;

/// What is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFor {
    /// A client waits.
    Client,
    /// Nobody does.
    Repair,
}

/// A stretch of blocks, as a copy gave it.
#[derive(Clone, Debug)]
pub(crate) enum BlockPart {
    /// Nothing is stored of so many blocks.
    Hole(u32),
    /// Content and checksums.
    Data { data: Buffer, checksums: Vec<u32> },
    /// One block whose newest content no copy that could be asked has whole.
    Lost,
}

impl BlockPart {
    /// How many blocks.
    pub(crate) fn count(&self) -> u32 {
        match self {
            BlockPart::Hole(count) => *count,
            BlockPart::Data { checksums, .. } => checksums.len() as u32,
            BlockPart::Lost => 1,
        }
    }
}

impl<C: OwnerContext> Owner<C> {
    /// Reads `length` bytes from `offset` on. The parts are in order and are exactly that.
    pub async fn read(&self, offset: u64, length: u32) -> Result<Vec<Buffer>, OwnerError> {
        let inner = &self.inner;
        let blocks = inner.begin_request(offset, u64::from(length))?;
        inner.serving().await?;
        let is_locked = !canary::is_planted(Bug::ReadWithoutLock);
        let _lock = if is_locked { Some(inner.locks.shared(blocks).await) } else { None };
        if !canary::is_planted(Bug::ReadWithoutPromises) {
            inner.promised().await?;
        }
        let geometry = inner.membership.borrow().geometry;
        let mut parts = Vec::with_capacity(1);
        for part in geometry.split(blocks).flat_map(|part| cut(part, PIECE_BLOCKS_MAX)) {
            inner.read_bytes(part, &mut parts).await?;
        }
        if !canary::is_planted(Bug::ReadWithoutPromises) {
            inner.promised().await?;
        }
        let mut statistics = inner.statistics.borrow_mut();
        statistics.reads += 1;
        statistics.read_bytes += u64::from(length);
        let skip = offset - blocks.first * BLOCK_BYTES as u64;
        Ok(trim_parts(parts, skip as usize, length as usize))
    }

    /// The allocation of `length` bytes from `offset` on, or of the first part of that.
    pub async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, OwnerError> {
        let inner = &self.inner;
        let mut blocks = inner.begin_request(offset, length)?;
        inner.serving().await?;
        blocks.count = blocks.count.min(EXTENT_ANSWER_BLOCKS_MAX);
        let skip = offset - blocks.first * BLOCK_BYTES as u64;
        let geometry = inner.membership.borrow().geometry;
        let mut extents: Vec<Extent> = Vec::new();
        for part in geometry.split(blocks).flat_map(|part| cut(part, EXTENT_BLOCKS_MAX)) {
            let _lock = inner.locks.shared(part.in_volume(geometry)).await;
            inner.promised().await?;
            for state in inner.block_states(part).await? {
                let allocated = state != spandrel_replica::BlockState::Hole;
                match extents.last_mut() {
                    Some(last) if last.allocated == allocated => last.length += BLOCK_BYTES as u64,
                    _ => extents.push(Extent { length: BLOCK_BYTES as u64, allocated }),
                }
            }
        }
        inner.promised().await?;
        Ok(trim_extents(extents, skip, length))
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    /// One block's content. The caller holds it.
    pub(crate) async fn read_block(&self, block: u64) -> Result<Buffer, OwnerError> {
        self.promised().await?;
        let geometry = self.membership.borrow().geometry;
        let mut parts = Vec::with_capacity(1);
        for part in geometry.split(BlockRange::new(block, 1)) {
            self.read_bytes(part, &mut parts).await?;
        }
        Ok(parts.swap_remove(0))
    }

    /// Appends the bytes of `piece` to `into`. Fails if one of its blocks is lost.
    async fn read_bytes(&self, piece: SlabRange, into: &mut Vec<Buffer>) -> Result<(), OwnerError> {
        let geometry = self.membership.borrow().geometry;
        let mut block = piece.in_volume(geometry).first;
        for part in self.read_piece(piece, ReadFor::Client).await? {
            block += u64::from(part.count());
            into.push(match part {
                BlockPart::Data { data, .. } => data,
                BlockPart::Hole(count) => {
                    self.context.platform().buffers().take_zeroed(count as usize * BLOCK_BYTES).freeze()
                }
                BlockPart::Lost => return Err(OwnerError::Lost { block: block - 1 }),
            });
        }
        Ok(())
    }

    /// Reads blocks of one slab, which the caller holds, from whichever in-sync copies have them.
    pub(crate) async fn read_piece(
        &self,
        piece: SlabRange,
        read_for: ReadFor,
    ) -> Result<Vec<BlockPart>, OwnerError> {
        Ok(self.read_and_heal(piece, read_for).await?.0)
    }

    /// The same; says as well whether the copy that was read first had damaged blocks.
    pub(crate) async fn read_and_heal(
        &self,
        piece: SlabRange,
        read_for: ReadFor,
    ) -> Result<(Vec<BlockPart>, bool), OwnerError> {
        let (source, parts) = self.read_from_any(piece, read_for).await?;
        if !parts.iter().any(|part| matches!(part, CopyPart::Damaged { .. })) {
            return Ok((parts.into_iter().map(CopyPart::into_good).collect(), false));
        }
        let mut good = Vec::with_capacity(parts.len());
        let mut block = piece.first;
        for part in parts {
            let count = part.count();
            match part {
                CopyPart::Damaged { token } => {
                    good.push(self.read_elsewhere(piece.slab, block, token, source).await?);
                }
                part => good.push(part.into_good()),
            }
            block += count;
        }
        Ok((good, true))
    }

    /// Reads one block that `first` could not give from another copy, and heals it there.
    pub(crate) async fn read_elsewhere(
        &self,
        slab: SlabIndex,
        block: u32,
        token: u64,
        first: Member,
    ) -> Result<BlockPart, OwnerError> {
        let piece = SlabRange { slab, first: block, count: 1 };
        let mut damaged = vec![(first, token)];
        let mut failed = BTreeSet::new();
        let good = loop {
            let changed = self.changed.notified();
            if self.is_deposed() {
                return Err(OwnerError::Deposed);
            }
            let is_damaged = |drive: DriveId| damaged.iter().any(|(member, _)| member.drive == drive);
            let next = self.nearest(slab, |drive| !is_damaged(drive) && !failed.contains(&drive));
            if let Some(member) = next {
                let answer = self.ask_read_while_in_sync(&member, piece, None).await;
                match answer.map(|parts| parts.into_iter().next()) {
                    Ok(Some(CopyPart::Damaged { token })) => damaged.push((member, token)),
                    Ok(Some(part)) => break part.into_good(),
                    Ok(None) => _ = failed.insert(member.drive),
                    Err(error) => {
                        self.note_failure(slab, &member, &error);
                        failed.insert(member.drive);
                    }
                }
                continue;
            }
            if let Some(good) = self.read_from_others(piece, &damaged).await {
                witness::reached(Rare::HealedFromStaleCopy);
                break good;
            }
            let in_sync =
                |(member, state): (Member, LegState)| (state == LegState::InSync).then_some(member.drive);
            if self.members(slab).into_iter().filter_map(in_sync).all(is_damaged) {
                tracing::error!(volume = %self.volume, %slab, block, "a block is lost");
                return Ok(BlockPart::Lost);
            }
            // Another copy in sync may have it.
            failed.clear();
            self.changed_or_later(changed).await;
        };
        witness::reached(Rare::ReadElsewhere);
        self.statistics.borrow_mut().blocks_read_elsewhere += 1;
        for (member, token) in damaged {
            self.heal(slab, block, member, token, &good).await;
        }
        Ok(good)
    }

    /// Reads one block, damaged on all in-sync copies that answer, from one that is not in sync. What
    /// such a copy holds may be old; but the maps of the in-sync ones still say which checksum the
    /// newest content has.
    async fn read_from_others(&self, piece: SlabRange, damaged: &[(Member, u64)]) -> Option<BlockPart> {
        let mut expected = None;
        for (member, _) in damaged {
            let states = self.ask_block_states(member, piece).await;
            if let Ok([spandrel_replica::BlockState::Data(checksum)]) = states.as_deref() {
                expected = Some(*checksum);
            }
        }
        let expected = expected?;
        for (member, state) in self.members(piece.slab) {
            if state == LegState::InSync || !self.context.is_reachable(member.shard) {
                continue;
            }
            // It is not found out what becomes of it as a copy.
            let fence = self.fence_of_stale(member.shard, Heeded::NONE);
            if self.in_time(self.context.ask(member.shard, fence, None)).await.is_err() {
                continue;
            }
            // Whatever the process is: only content with the expected checksum counts.
            let answer =
                self.in_time(self.context.ask(member.shard, self.read_request(&member, piece), None));
            let parts = answer.await.and_then(|answer| parts_of(answer, piece.count)).unwrap_or_default();
            for part in parts {
                if let CopyPart::Data { checksums, .. } = &part
                    && checksums[..] == [expected]
                {
                    return Some(part.into_good());
                }
            }
        }
        None
    }

    /// Completes when something has changed, or a little later.
    async fn changed_or_later(&self, changed: impl Future<Output = ()>) {
        let retry = self.context.platform().sleep(std::time::Duration::from_millis(20));
        futures_util::future::select(std::pin::pin!(changed), std::pin::pin!(retry)).await;
    }

    /// Replaces a damaged block. A failure is not the reader's: the scrub finds the block again. A lack
    /// of room for it is no failure of the copy.
    async fn heal(&self, slab: SlabIndex, block: u32, member: Member, token: u64, good: &BlockPart) {
        let (payload, checksum) = match good {
            BlockPart::Hole(_) => (None, None),
            BlockPart::Data { data, checksums } => (Some(data.clone()), checksums.first().copied()),
            BlockPart::Lost => return,
        };
        let copy = self.membership.borrow().address(slab, &member);
        let request = ReplicaRequest::Heal { copy, authority: self.authority(), block, token, checksum };
        match self.in_time(self.ask_copy(&member, request, payload)).await {
            Ok(_) => self.statistics.borrow_mut().blocks_healed += 1,
            Err(AskError::Replica(ReplicaError::NoRoom)) => {}
            Err(error) => self.note_failure(slab, &member, &error),
        }
    }

    /// Reads from the nearest in-sync copy that answers. While there is none, waits: the volume has lost
    /// its last reachable copy of these blocks.
    async fn read_from_any(
        &self,
        piece: SlabRange,
        read_for: ReadFor,
    ) -> Result<(Member, Vec<CopyPart>), OwnerError> {
        let mut failed = BTreeSet::new();
        loop {
            let changed = self.changed.notified();
            if self.is_deposed() {
                return Err(OwnerError::Deposed);
            }
            let Some(member) = self.nearest(piece.slab, |drive| !failed.contains(&drive)) else {
                failed.clear();
                self.changed_or_later(changed).await;
                continue;
            };
            let (member, answer) = match read_for {
                ReadFor::Client => self.ask_one_or_two(member, piece, &failed).await,
                ReadFor::Repair => (member, self.ask_to_read(member, piece).await),
            };
            match answer {
                Ok(parts) => return Ok((member, parts)),
                Err(error) => {
                    self.note_failure(piece.slab, &member, &error);
                    failed.insert(member.drive);
                }
            }
        }
    }

    /// The in-sync copy to read from: not one that answers slowly, if there is another; of these the own node's.
    pub(crate) fn nearest(&self, slab: SlabIndex, acceptable: impl Fn(DriveId) -> bool) -> Option<Member> {
        let own_shard = self.context.shard();
        let members = self.members(slab).into_iter().filter(|(member, state)| {
            *state == LegState::InSync && acceptable(member.drive) && self.context.is_reachable(member.shard)
        });
        let members = members.map(|(member, _)| member);
        let farness = |shard: ShardId| (shard.node != own_shard.node, shard != own_shard);
        members.min_by_key(|member| (self.paces.is_slow(member.leg()), farness(member.shard)))
    }

    /// Reads from an in-sync copy, as long as it is one, unless it is silent for too long.
    pub(crate) async fn ask_read_while_in_sync(
        &self,
        member: &Member,
        piece: SlabRange,
        measurement: Option<Measurement>,
    ) -> Result<Vec<CopyPart>, AskError> {
        let begun = self.looks.get();
        let useless = || {
            self.is_deposed()
                || self.state_of(piece.slab, member) != LegState::InSync
                || self.is_overdue(begun)
        };
        let useless = std::pin::pin!(self.changed.wait_until(useless));
        let asked = self.measured(measurement, self.ask_read(member, piece));
        match futures_util::future::select(std::pin::pin!(asked), useless).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(AskError::Unreachable("it does not answer a read".to_owned())),
        }
    }

    pub(crate) async fn ask_read(
        &self,
        member: &Member,
        piece: SlabRange,
    ) -> Result<Vec<CopyPart>, AskError> {
        let answer = self.ask_copy(member, self.read_request(member, piece), None).await?;
        parts_of(answer, piece.count)
    }

    fn read_request(&self, member: &Member, piece: SlabRange) -> ReplicaRequest {
        let copy = self.membership.borrow().address(piece.slab, member);
        ReplicaRequest::Read { copy, authority: self.authority(), first: piece.first, count: piece.count }
    }

    async fn block_states(&self, piece: SlabRange) -> Result<Vec<spandrel_replica::BlockState>, OwnerError> {
        loop {
            let changed = self.changed.notified();
            if self.is_deposed() {
                return Err(OwnerError::Deposed);
            }
            if let Some(member) = self.nearest(piece.slab, |_| true) {
                match self.ask_block_states(&member, piece).await {
                    Ok(states) => return Ok(states),
                    Err(error) => self.note_failure(piece.slab, &member, &error),
                }
            }
            self.changed_or_later(changed).await;
        }
    }

    pub(crate) async fn ask_block_states(
        &self,
        member: &Member,
        piece: SlabRange,
    ) -> Result<Vec<spandrel_replica::BlockState>, AskError> {
        let copy = self.membership.borrow().address(piece.slab, member);
        let request = ReplicaRequest::BlockStates {
            copy,
            authority: self.authority(),
            first: piece.first,
            count: piece.count,
        };
        match self.in_time(self.ask_copy(member, request, None)).await? {
            (ReplicaResponse::BlockStates(states), _) if states.len() == piece.count as usize => Ok(states),
            _ => Err(AskError::Unreachable("a question was answered with something else".to_owned())),
        }
    }
}

/// What a read was answered with.
fn parts_of(
    (response, payload): (ReplicaResponse, Vec<Buffer>),
    count: u32,
) -> Result<Vec<CopyPart>, AskError> {
    let ReplicaResponse::Parts(descriptions) = response else {
        return Err(AskError::Unreachable("a read was answered with something else".to_owned()));
    };
    join_parts(descriptions, payload, count)
}

/// A stretch of what one copy gave.
#[derive(Clone, Debug)]
pub(crate) enum CopyPart {
    Hole(u32),
    Data { data: Buffer, checksums: Vec<u32> },
    Damaged { token: u64 },
}

impl CopyPart {
    pub(crate) fn count(&self) -> u32 {
        match self {
            CopyPart::Hole(count) => *count,
            CopyPart::Data { checksums, .. } => checksums.len() as u32,
            CopyPart::Damaged { .. } => 1,
        }
    }

    fn into_good(self) -> BlockPart {
        match self {
            CopyPart::Hole(count) => BlockPart::Hole(count),
            CopyPart::Data { data, checksums } => BlockPart::Data { data, checksums },
            CopyPart::Damaged { .. } => unreachable!("damaged parts are read elsewhere first"),
        }
    }
}

/// Puts descriptions and data together. The data may come in other portions than they are
/// described in.
fn join_parts(
    descriptions: Vec<PartDescription>,
    payload: Vec<Buffer>,
    count: u32,
) -> Result<Vec<CopyPart>, AskError> {
    let mismatch = || AskError::Unreachable("a read's answer does not fit its question".to_owned());
    let mut payload = payload.into_iter();
    let mut current: Option<Buffer> = payload.next();
    let mut parts = Vec::with_capacity(descriptions.len());
    let mut blocks = 0;
    for description in descriptions {
        match description {
            PartDescription::Hole(count) => parts.push(CopyPart::Hole(count)),
            PartDescription::Damaged { token, .. } => parts.push(CopyPart::Damaged { token }),
            PartDescription::Data(mut checksums) => {
                while !checksums.is_empty() {
                    let buffer = current.take().ok_or_else(mismatch)?;
                    let available = buffer.len() / BLOCK_BYTES;
                    if available == 0 {
                        return Err(mismatch());
                    }
                    let taken = available.min(checksums.len());
                    let rest = checksums.split_off(taken);
                    let data = buffer.slice(0..taken * BLOCK_BYTES);
                    let left = buffer.slice(taken * BLOCK_BYTES..buffer.len());
                    current = if left.is_empty() { payload.next() } else { Some(left) };
                    parts.push(CopyPart::Data { data, checksums });
                    checksums = rest;
                }
            }
        }
    }
    blocks += parts.iter().map(CopyPart::count).sum::<u32>();
    if blocks == count { Ok(parts) } else { Err(mismatch()) }
}

/// The bytes from `skip` on, `length` of them: they begin in the first part and end in the last.
fn trim_parts(parts: Vec<Buffer>, mut skip: usize, mut length: usize) -> Vec<Buffer> {
    let mut trimmed = Vec::with_capacity(parts.len());
    for part in parts {
        let end = part.len().min(skip + length);
        length -= end - skip;
        trimmed.push(if skip == 0 && end == part.len() { part } else { part.slice(skip..end) });
        skip = 0;
    }
    trimmed
}

fn trim_extents(extents: Vec<Extent>, mut skip: u64, mut length: u64) -> Vec<Extent> {
    let mut trimmed = Vec::with_capacity(extents.len());
    for extent in extents {
        let start = skip.min(extent.length);
        skip -= start;
        let taken = (extent.length - start).min(length);
        length -= taken;
        if taken > 0 {
            trimmed.push(Extent { length: taken, ..extent });
        }
    }
    trimmed
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
