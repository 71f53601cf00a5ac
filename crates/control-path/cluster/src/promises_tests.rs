//! The two sides against an oracle that knows the real time: one volume, one giver, several nodes
//! that own it in turn, clocks that run apart, messages that are late, lost, repeated and overtaken.

use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};

use spandrel_platform::Instant;
use spandrel_shared::{DriveId, NodeId};

use super::*;

/// A rule taken away, to see that it is needed and that the tests notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Missing {
    Nothing,
    /// The holder takes off nothing for drift.
    Margin,
    /// The holder counts from the answer's receipt.
    CountingFromSending,
    /// A giver that has just started answers at once.
    Grace,
    /// Fences are answered without waiting.
    Waiting,
    /// Answers carry no exclusions.
    Exclusions,
    /// The holder says that it took note before it did.
    ExclusionsUntilSeen,
    /// A new incarnation of the giver is taken for the former one.
    Incarnations,
}

const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);
const DRIVE: DriveId = DriveId::from_bytes([8; 16]);

fn peer(node: u8, incarnation: u8) -> Peer {
    Peer {
        shard: ShardId::first(NodeId::from_bytes([node; 16])),
        incarnation: ProcessIncarnation::from_bytes([incarnation; 16]),
    }
}

/// A clock that began at another time than the real one and runs at another rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Clock {
    offset_us: u64,
    rate_ppm: u64,
}

impl Clock {
    fn read(&self, real_us: u64) -> Instant {
        let local = self.offset_us + real_us * self.rate_ppm / 1_000_000;
        Instant::from_nanoseconds(0) + Duration::from_micros(local)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Heartbeat { holder: usize, to: Peer, owned: Option<Epoch>, number: u64, exclusions_seen: u64 },
    Promise { holder: usize, from: Peer, number: u64, promise: Promise },
    Fence { holder: usize, to: Peer, epoch: Epoch },
    FenceAnswer { holder: usize, from: Peer, epoch: Epoch },
    HandOver { holder: usize, epoch: Epoch },
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct HolderSide {
    me: Peer,
    clock: Clock,
    holder: Holder,
    /// The giver's process with which it has a session. It may be dead.
    session: Peer,
    /// Under which epoch it owns the volume, as far as it knows.
    epoch: Option<Epoch>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    missing: Missing,
    times: PromiseTimes,
    real_us: u64,
    giver: Giver,
    giver_me: Peer,
    giver_clock: Clock,
    /// What the giver has made durable.
    durable: Epoch,
    /// Fences that it still has to answer, and when.
    pending: BTreeMap<usize, (Epoch, Instant)>,
    holders: Vec<HolderSide>,
    messages: Vec<Message>,
    /// The epoch that the cluster's state gave out last.
    state_epoch: Epoch,
    /// The highest epoch of a fence that was answered, by whichever incarnation.
    answered: Epoch,
    /// How often a holder was seen to count on a promise.
    promised_seen: u32,
    /// How often a fence was answered against an owner that had been promised something.
    fenced_seen: u32,
}

impl World {
    fn new(missing: Missing, times: PromiseTimes, rates_ppm: &[u64]) -> Self {
        let holder_times = match missing {
            Missing::Margin => PromiseTimes { drift_ppm: 0, slack: Duration::ZERO, ..times },
            _ => times,
        };
        let clock = |index: usize| Clock { offset_us: 5_000_000 * index as u64, rate_ppm: rates_ppm[index] };
        let giver_me = peer(200, 1);
        let holders = (1..rates_ppm.len()).map(|index| HolderSide {
            me: peer(index as u8, 1),
            clock: clock(index),
            holder: Holder::new(holder_times),
            session: giver_me,
            epoch: None,
        });
        let giver_clock = clock(0);
        let mut world = Self {
            missing,
            times,
            real_us: 0,
            giver: Giver::new(giver_clock.read(0), giver_me, times),
            giver_me,
            giver_clock,
            durable: Epoch::ZERO,
            pending: BTreeMap::new(),
            holders: holders.collect(),
            messages: Vec::new(),
            state_epoch: Epoch::ZERO,
            answered: Epoch::ZERO,
            promised_seen: 0,
            fenced_seen: 0,
        };
        world.restart_giver();
        for index in 0..world.holders.len() {
            world.connect(index);
        }
        world
    }

    fn giver_now(&self) -> Instant {
        self.giver_clock.read(self.real_us)
    }

    fn is_promised(&self, index: usize) -> bool {
        let side = &self.holders[index];
        side.epoch.is_some_and(|epoch| {
            side.holder.is_promised(side.clock.read(self.real_us), self.giver_me.shard, VOLUME, epoch)
        })
    }

    /// The property: nobody counts on a promise that the giver considers over.
    fn check(&mut self) -> Result<(), String> {
        for index in 0..self.holders.len() {
            if self.is_promised(index) {
                self.promised_seen += 1;
                let epoch = self.holders[index].epoch.expect("it is promised something");
                if epoch < self.answered {
                    return Err(format!(
                        "at {} us {:?} counts on a promise for epoch {epoch}, but {} was answered",
                        self.real_us, self.holders[index].me, self.answered
                    ));
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, microseconds: u64) {
        self.real_us += microseconds;
    }

    /// Lets time pass until the next fence is due, to the microsecond.
    fn pass_until_due(&mut self) {
        let now = self.giver_now();
        let due = self.pending.values().map(|(_, at)| *at).filter(|at| *at > now).min();
        if let Some(due) = due {
            let local_us = due.since(now).as_micros() as u64;
            self.pass(local_us * 1_000_000 / self.giver_clock.rate_ppm);
            while self.giver_now() < due {
                self.pass(1);
            }
        }
    }

    /// The giver dies and starts again, with what it had made durable.
    fn restart_giver(&mut self) {
        let incarnation = self.giver_me.incarnation.to_bytes()[0];
        self.giver_me = peer(200, incarnation + 1);
        let now = self.giver_now();
        let started = if self.missing == Missing::Grace { now - self.times.grace() } else { now };
        self.giver = Giver::new(started, self.giver_me, self.times);
        if self.missing != Missing::Grace {
            self.giver.drive_attached(now, DRIVE, [(VOLUME, self.durable)]);
        } else {
            self.giver.drive_attached(started, DRIVE, [(VOLUME, self.durable)]);
        }
        self.pending.clear();
    }

    /// A new session, with whatever process the giver is now.
    fn connect(&mut self, index: usize) {
        let named = self.named(self.giver_me);
        self.holders[index].session = self.giver_me;
        self.holders[index].holder.session_started(named);
    }

    /// How the holder names the giver.
    fn named(&self, giver: Peer) -> Peer {
        if self.missing == Missing::Incarnations { peer(200, 1) } else { giver }
    }

    fn heartbeat(&mut self, index: usize) {
        let side = &mut self.holders[index];
        let now = side.clock.read(self.real_us);
        let numbers = side.holder.heartbeat_sent(now, self.giver_me.shard).expect("a session began");
        let exclusions_seen = match self.missing {
            Missing::ExclusionsUntilSeen => u64::MAX,
            _ => numbers.exclusions_seen,
        };
        self.messages.push(Message::Heartbeat {
            holder: index,
            to: side.session,
            owned: side.epoch,
            number: numbers.number,
            exclusions_seen,
        });
    }

    /// The holder takes the volume in the cluster's state and asks to be accepted.
    fn take(&mut self, index: usize) {
        self.state_epoch = self.state_epoch.next();
        let epoch = self.state_epoch;
        let side = &mut self.holders[index];
        let to = side.session;
        side.holder.give_up(VOLUME);
        side.epoch = Some(epoch);
        self.messages.push(Message::Fence { holder: index, to, epoch });
    }

    /// Asks again, under the epoch that it has.
    fn fence_again(&mut self, index: usize) {
        if let Some(epoch) = self.holders[index].epoch {
            let to = self.holders[index].session;
            self.messages.push(Message::Fence { holder: index, to, epoch });
        }
    }

    fn hand_over(&mut self, index: usize) {
        let side = &mut self.holders[index];
        if let Some(epoch) = side.epoch.take() {
            side.holder.give_up(VOLUME);
            self.messages.push(Message::HandOver { holder: index, epoch });
        }
    }

    /// The holder's process dies; another one starts on its node.
    fn restart_holder(&mut self, index: usize) {
        let fresh = Holder::new(match self.missing {
            Missing::Margin => PromiseTimes { drift_ppm: 0, slack: Duration::ZERO, ..self.times },
            _ => self.times,
        });
        let side = &mut self.holders[index];
        side.me.incarnation = ProcessIncarnation::from_bytes([side.me.incarnation.to_bytes()[0] + 1; 16]);
        (side.holder, side.epoch) = (fresh, None);
        // What the former process sent may still arrive, what was sent to it does not.
        self.messages.retain(|message| {
            !matches!(message, Message::Promise { holder, .. } | Message::FenceAnswer { holder, .. }
                if *holder == index)
        });
        self.messages.retain(|message| {
            !matches!(message, Message::Heartbeat { holder, .. } | Message::Fence { holder, .. }
                | Message::HandOver { holder, .. } if *holder == index)
        });
        self.connect(index);
    }

    fn deliver(&mut self, message: Message) {
        let now = self.giver_now();
        match message {
            Message::Heartbeat { holder, to, owned, number, exclusions_seen } => {
                if to != self.giver_me {
                    return;
                }
                let owned: Vec<_> = owned.map(|epoch| (VOLUME, epoch)).into_iter().collect();
                let from = self.holders[holder].me;
                let mut promise = self.giver.heartbeat(now, from, &owned, exclusions_seen);
                if self.missing == Missing::Exclusions {
                    promise.exclusions.clear();
                }
                for (_, epoch) in &promise.accepted {
                    self.note_answered(holder, *epoch);
                }
                self.messages.push(Message::Promise { holder, from: to, number, promise });
            }
            Message::Promise { holder, from, mut number, promise } => {
                let from = self.named(from);
                let side = &mut self.holders[holder];
                if self.missing == Missing::CountingFromSending {
                    // As if the heartbeat had been sent only now.
                    let received = side.clock.read(self.real_us);
                    let sent_now = side.holder.heartbeat_sent(received, from.shard);
                    number = sent_now.map_or(number, |numbers| numbers.number);
                }
                side.holder.answered(from, number, &promise);
            }
            Message::Fence { holder, to, epoch } => {
                if to != self.giver_me {
                    return;
                }
                let from = self.holders[holder].me;
                if let Fence::Pending { at, stop_own } = self.giver.fence(now, from, VOLUME, epoch) {
                    assert!(!stop_own, "the giver itself owns nothing here");
                    self.pending.insert(holder, (epoch, at));
                }
            }
            Message::FenceAnswer { holder, from, epoch } => {
                let from = self.named(from);
                self.holders[holder].holder.fence_answered(from, VOLUME, epoch);
            }
            Message::HandOver { holder, epoch } => {
                let from = self.holders[holder].me;
                self.giver.handed_over(from, VOLUME, epoch);
            }
        }
    }

    /// The giver makes the newest epoch durable, and answers the fences that it may answer.
    fn answer_fences(&mut self) {
        let epoch = self.giver.epoch(VOLUME);
        self.durable = self.durable.max(epoch);
        self.giver.epoch_durable(VOLUME, epoch);
        let now = self.giver_now();
        for (holder, (epoch, _)) in self.pending.clone() {
            let from = self.holders[holder].me;
            let at_once = self.missing == Missing::Waiting && epoch == self.giver.epoch(VOLUME);
            if at_once || self.giver.may_answer(now, from, VOLUME, epoch) {
                self.pending.remove(&holder);
                self.note_answered(holder, epoch);
                self.messages.push(Message::FenceAnswer { holder, from: self.giver_me, epoch });
            }
        }
    }

    fn note_answered(&mut self, holder: usize, epoch: Epoch) {
        if epoch > self.answered && (0..self.holders.len()).any(|other| other != holder) {
            self.fenced_seen += u32::from(self.answered > Epoch::ZERO);
        }
        self.answered = self.answered.max(epoch);
    }
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

/// Clocks that drift apart by at most 1 % between any two.
fn rates(draws: &mut Draws) -> [u64; 4] {
    std::array::from_fn(|_| [995_100, 1_000_000, 1_004_900][draws.below(3)])
}

/// One random course of events. What was seen, or what went wrong.
fn random_run(seed: u64, missing: Missing) -> Result<(u32, u32), String> {
    let mut draws = Draws(seed);
    let mut world = World::new(missing, PromiseTimes::default(), &rates(&mut draws));
    let rare = [40, 200][draws.below(2)];
    for _ in 0..400 {
        let holder = draws.below(3);
        match draws.below(20) {
            0..4 => world.heartbeat(holder),
            4..13 if !world.messages.is_empty() => {
                let index = if draws.below(3) == 0 { draws.below(world.messages.len()) } else { 0 };
                let message = world.messages.remove(index);
                world.deliver(message);
            }
            13..15 => world.answer_fences(),
            15..17 => world.pass([1, 30_000, 250_000, 700_000][draws.below(4)]),
            17 => world.pass_until_due(),
            18 if draws.below(3) == 0 && !world.messages.is_empty() => {
                let index = draws.below(world.messages.len());
                world.messages.remove(index);
            }
            18 => world.fence_again(holder),
            _ => match draws.below(rare) {
                0..10 => world.take(holder),
                10..13 => world.hand_over(holder),
                13..17 => world.restart_giver(),
                17..20 => world.restart_holder(holder),
                20..30 => world.connect(holder),
                _ => {}
            },
        }
        world.check()?;
    }
    Ok((world.promised_seen, world.fenced_seen))
}

#[test]
fn a_promise_longer_than_ones_own_counts_no_longer() {
    let times = PromiseTimes::default();
    assert_eq!(times.holder_duration(Duration::from_secs(60)), times.duration - times.margin());
    assert_eq!(times.holder_duration(times.margin()), Duration::ZERO);
}

/// With heartbeats on time and answers that take up to half an interval, the promise never lapses,
/// however the clocks run; and a fence against it waits no longer than a promise lasts.
#[test]
fn a_working_link_keeps_the_promise_alive() {
    for seed in 0..50 {
        let mut draws = Draws(seed);
        let mut world = World::new(Missing::Nothing, PromiseTimes::default(), &rates(&mut draws));
        world.take(0);
        let fence = world.messages.remove(0);
        world.deliver(fence);
        world.pass_until_due();
        world.answer_fences();
        for beat in 0..40 {
            world.heartbeat(0);
            let interval_us = HEARTBEAT_INTERVAL.as_micros() as u64;
            let delay_us = draws.below(interval_us as usize / 2) as u64;
            for wait_us in [delay_us, interval_us - delay_us] {
                world.pass(wait_us);
                assert!(beat == 0 || world.is_promised(0), "seed {seed}, beat {beat}");
                for message in std::mem::take(&mut world.messages) {
                    world.deliver(message);
                }
            }
            assert!(world.is_promised(0), "seed {seed}, beat {beat}");
        }
        let now = world.giver_now();
        let Fence::Pending { at, .. } = world.giver.fence(now, world.holders[1].me, VOLUME, Epoch(2)) else {
            panic!("a higher epoch is admitted");
        };
        assert!(at > now && at.since(now) <= PROMISE_DURATION, "{at:?} after {now:?}");
    }
}

/// A heartbeat that was under way when its sender gave the volume up, and is overtaken by the word of that, does not make
/// it the owner again: its successor need not wait until a promise runs out on which nobody counts.
#[test]
fn a_heartbeat_that_arrives_after_a_volume_was_given_up_delays_nobody() {
    let (former, next) = (peer(1, 1), peer(2, 1));
    let mut giver = Giver::new(Instant::default(), peer(200, 1), PromiseTimes::default());
    let now = Instant::default() + PromiseTimes::default().grace();
    let (held, higher) = (Epoch(5), Epoch(6));
    assert!(matches!(giver.fence(now, former, VOLUME, held), Fence::Pending { .. }));
    giver.epoch_durable(VOLUME, held);
    assert!(giver.may_answer(now, former, VOLUME, held));
    assert_eq!(giver.heartbeat(now, former, &[(VOLUME, held)], 0).accepted, [(VOLUME, held)]);
    giver.handed_over(former, VOLUME, held);
    assert_eq!(giver.heartbeat(now, former, &[(VOLUME, held)], 0).accepted, []);
    assert_eq!(giver.fence(now, next, VOLUME, higher), Fence::Pending { at: now, stop_own: false });
    giver.epoch_durable(VOLUME, higher);
    assert!(giver.may_answer(now, next, VOLUME, higher));
    // What was given up was one ownership. A later one of the same process is another matter.
    giver.handed_over(next, VOLUME, higher);
    assert_eq!(giver.fence(now, next, VOLUME, higher), Fence::Refused { epoch: higher });
    assert!(matches!(giver.fence(now, next, VOLUME, Epoch(7)), Fence::Pending { .. }));
}

#[test]
fn nobody_counts_on_a_promise_that_is_over() {
    let (mut promised, mut fenced) = (0, 0);
    for seed in 0..6000 {
        let seen = random_run(seed, Missing::Nothing).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        (promised, fenced) = (promised + seen.0, fenced + seen.1);
    }
    assert!(promised > 10_000 && fenced > 1000, "{promised} promises seen, {fenced} fences answered");
}

#[test]
fn each_rule_is_needed() {
    for missing in [
        Missing::Margin,
        Missing::CountingFromSending,
        Missing::Grace,
        Missing::Waiting,
        Missing::Exclusions,
        Missing::ExclusionsUntilSeen,
        Missing::Incarnations,
    ] {
        let found = (0..60_000).find(|seed| random_run(*seed, missing).is_err());
        assert!(found.is_some(), "nothing goes wrong without {missing:?}");
    }
}

/// What may still happen in an exhaustive exploration.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Budget {
    heartbeats: [u8; 2],
    milliseconds: u8,
    takes: u8,
    restarts: u8,
    connects: [u8; 2],
    hand_overs: u8,
}

/// Owner 0 is accepted under epoch 1 and its first heartbeat is on its way; owner 1 may take the
/// volume. A promise lasts 3 ms, of which 1 ms is for clocks that run 10 % too fast or too slow.
fn small_world(missing: Missing, rates_ppm: [u64; 3]) -> World {
    let times =
        PromiseTimes { duration: Duration::from_millis(3), drift_ppm: 0, slack: Duration::from_millis(1) };
    let mut world = World::new(missing, times, &rates_ppm);
    world.take(0);
    let fence = world.messages.remove(0);
    world.deliver(fence);
    world.pass_until_due();
    world.answer_fences();
    let answer = world.messages.remove(0);
    world.deliver(answer);
    world.heartbeat(0);
    world
}

/// Every state that one more event leads to.
fn successors(world: &World, budget: &Budget) -> Vec<(World, Budget)> {
    let mut found = Vec::new();
    let mut event = |change: &dyn Fn(&mut World, &mut Budget)| {
        let (mut world, mut budget) = (world.clone(), budget.clone());
        change(&mut world, &mut budget);
        found.push((world, budget));
    };
    for index in 0..world.messages.len() {
        event(&|world, _| {
            let message = world.messages.remove(index);
            world.deliver(message);
        });
    }
    if !world.pending.is_empty() || world.durable < world.giver.epoch(VOLUME) {
        event(&|world, _| world.answer_fences());
    }
    if budget.milliseconds > 0 {
        event(&|world, budget| {
            budget.milliseconds -= 1;
            world.pass(1000);
        });
    }
    for holder in 0..2 {
        if budget.heartbeats[holder] > 0 {
            event(&|world, budget| {
                budget.heartbeats[holder] -= 1;
                world.heartbeat(holder);
            });
        }
        if budget.connects[holder] > 0 {
            event(&|world, budget| {
                budget.connects[holder] -= 1;
                world.connect(holder);
                world.fence_again(holder);
            });
        }
    }
    if budget.takes > 0 {
        event(&|world, budget| {
            budget.takes -= 1;
            world.take(1);
        });
    }
    if budget.restarts > 0 {
        event(&|world, budget| {
            budget.restarts -= 1;
            world.restart_giver();
        });
    }
    if budget.hand_overs > 0 {
        event(&|world, budget| {
            budget.hand_overs -= 1;
            world.hand_over(0);
        });
    }
    found
}

fn fingerprint(state: &(World, Budget)) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Visits every state that can be reached. How many there are, or the first that is wrong.
fn explore(missing: Missing, rates_ppm: [u64; 3], budget: &Budget) -> Result<usize, String> {
    let first = (small_world(missing, rates_ppm), budget.clone());
    let mut seen = HashSet::from([fingerprint(&first)]);
    let mut open = vec![first];
    while let Some((world, budget)) = open.pop() {
        for (mut world, budget) in successors(&world, &budget) {
            // In whichever order messages were sent, any of them may be next.
            world.messages.sort();
            world.check()?;
            (world.promised_seen, world.fenced_seen) = (0, 0);
            let state = (world, budget);
            if seen.insert(fingerprint(&state)) {
                open.push(state);
            }
        }
    }
    Ok(seen.len())
}

/// The clocks of giver, owner 0 and owner 1.
const SMALL_RATES: [[u64; 3]; 3] =
    [[1_000_000; 3], [1_100_000, 900_000, 1_000_000], [900_000, 1_100_000, 1_000_000]];

/// What may happen, in ways that together stay small enough: heartbeats of both, a hand-over, a
/// new session, a restart of the giver.
const BUDGETS: [Budget; 4] = {
    let none = Budget {
        heartbeats: [0, 0],
        milliseconds: 4,
        takes: 1,
        restarts: 0,
        connects: [0, 0],
        hand_overs: 0,
    };
    [
        Budget { heartbeats: [2, 0], milliseconds: 5, ..none },
        Budget { heartbeats: [1, 0], hand_overs: 1, ..none },
        Budget { heartbeats: [1, 0], milliseconds: 5, connects: [1, 0], ..none },
        Budget { milliseconds: 7, restarts: 1, connects: [1, 1], ..none },
    ]
};

#[test]
fn no_order_of_events_breaks_it() {
    for rates_ppm in SMALL_RATES {
        for budget in &BUDGETS {
            let states =
                explore(Missing::Nothing, rates_ppm, budget).unwrap_or_else(|error| panic!("{error}"));
            assert!(states > 1000, "only {states} states were reached");
        }
    }
}

#[test]
fn the_exploration_finds_what_is_missing() {
    for missing in [Missing::Margin, Missing::Grace, Missing::Waiting, Missing::Exclusions] {
        let mut runs = SMALL_RATES.iter().flat_map(|rates| BUDGETS.iter().map(move |budget| (rates, budget)));
        let found = runs.any(|(rates_ppm, budget)| explore(missing, *rates_ppm, budget).is_err());
        assert!(found, "nothing goes wrong without {missing:?}");
    }
}
