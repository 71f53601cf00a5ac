use std::future::Future;

use spandrel_bus::{BusConfig, BusIdentity, BusService};
use spandrel_platform::{Address, Buffer};
use spandrel_platform_simulated::{Host, Process, RunEnd, SimulatedPlatform, World};
use spandrel_shared::{ClusterId, NodeId, ProcessIncarnation};

use super::*;

/// Answers heartbeats and nothing else.
struct HeartbeatService {
    liveness: Rc<RefCell<Option<Liveness<SimulatedPlatform>>>>,
}

impl BusService for HeartbeatService {
    fn serve(
        &self,
        from: spandrel_bus::Peer,
        request: BusRequest,
        _payload: Option<Buffer>,
    ) -> impl Future<Output = (BusResponse, Vec<Buffer>)> {
        let liveness = self.liveness.borrow().clone().expect("set before the listener serves");
        async move {
            let BusRequest::Heartbeat(heartbeat) = request else { panic!("only heartbeats are sent") };
            let from = Peer { shard: from.shard, incarnation: from.incarnation };
            (BusResponse::Heartbeat(liveness.answer(from, &heartbeat)), Vec::new())
        }
    }

    fn session_ended(&self, _from: spandrel_bus::Peer) {}
}

struct TestNode {
    host: Host,
    process: Process,
    liveness: Liveness<SimulatedPlatform>,
}

fn shard_id(index: usize) -> ShardId {
    ShardId::first(NodeId::from_random((index as u64 + 1) << 56, 1))
}

fn start_node(world: &World, index: usize, others: &[(ShardId, Address)], own: &Address) -> TestNode {
    let host = world.host(&format!("host {index}"));
    let process = world.start_process_on(&host, &format!("node {index}"));
    let platform = process.platform();
    let identity = BusIdentity {
        generation: 0,
        cluster: ClusterId::from_random(1, 1),
        shard: shard_id(index),
        shards: 1,
        incarnation: ProcessIncarnation::from_random(index as u64, process.incarnation()),
    };
    let slot = Rc::new(RefCell::new(None));
    let service = HeartbeatService { liveness: Rc::clone(&slot) };
    let (own, others) = (own.clone(), others.to_vec());
    let liveness = process.block_on(async move {
        let bus = Bus::new(platform.clone(), identity, BusConfig::default());
        let liveness = Liveness::start(platform.clone(), bus.clone());
        *slot.borrow_mut() = Some(liveness.clone());
        let listener = platform.listen(&own).expect("the address is free");
        platform.spawn(async move {
            for (node, address) in others {
                bus.set_peer(node, vec![address]);
            }
            let _ = bus.serve(listener, service).await;
        });
        liveness
    });
    TestNode { host, process, liveness: liveness.expect("the world goes on") }
}

fn two_nodes(world: &World) -> [TestNode; 2] {
    let addresses: Vec<Address> = (0..2)
        .map(|index| {
            let host = world.add_host(&format!("host {index}"));
            Address::Tcp(std::net::SocketAddr::new(host.address(0), 7000))
        })
        .collect();
    std::array::from_fn(|index| {
        let other = 1 - index;
        start_node(world, index, &[(shard_id(other), addresses[other].clone())], &addresses[index])
    })
}

#[test]
fn a_promise_comes_with_heartbeats_and_ends_with_silence() {
    let world = World::new(1);
    let [owner, copy] = two_nodes(&world);
    let (volume, epoch) = (VolumeId::from_random(5, 5), Epoch(3));
    let from = owner.liveness.own();
    let answering = copy.liveness.clone();
    assert_eq!(copy.liveness.begin_fence(from, volume, epoch), Ok(()));
    let fenced = copy.process.block_on(async move { answering.may_answer_fence(from, volume, epoch).await });
    assert_eq!(fenced, Ok(Ok(())), "after the grace of a fresh start");
    assert!(world.now() >= PromiseTimes::default().grace() / 2, "not before");

    owner.liveness.set_owned(volume, Some(epoch));
    let promised = || owner.liveness.is_promised(shard_id(1), volume, epoch);
    assert_eq!(world.run_until(promised), RunEnd::ConditionMet);
    assert_eq!(world.run_for(Duration::from_secs(5)), RunEnd::TimeOver);
    assert!(promised(), "it is renewed");
    assert!(!owner.liveness.is_promised(shard_id(1), volume, Epoch(4)), "for no other epoch");
    let shown_since = spandrel_platform::Instant::default();
    let shown = VolumeOwner { shard: from.shard, incarnation: from.incarnation };
    let now = || spandrel_platform::Instant::default() + world.now();
    let silent = |epoch| now() >= copy.liveness.owner_silent_at(volume, shown, epoch, shown_since);
    assert!(!silent(epoch), "its heartbeats name the volume");
    assert!(silent(Epoch(4)), "under that epoch alone");

    world.cut(&owner.host, &copy.host);
    assert_eq!(world.run_until(|| !promised()), RunEnd::ConditionMet, "silence ends it");
    assert!(!owner.liveness.is_reachable(shard_id(1)));
    world.heal(&owner.host, &copy.host);
    assert_eq!(world.run_until(promised), RunEnd::ConditionMet);
}

#[test]
fn a_fence_waits_for_the_promises_given_before_it() {
    let world = World::new(2);
    let [owner, copy] = two_nodes(&world);
    let (volume, epoch) = (VolumeId::from_random(5, 5), Epoch(3));
    let from = owner.liveness.own();
    assert_eq!(copy.liveness.begin_fence(from, volume, epoch), Ok(()));
    let answering = copy.liveness.clone();
    let fenced = copy.process.block_on(async move { answering.may_answer_fence(from, volume, epoch).await });
    assert_eq!(fenced, Ok(Ok(())));
    owner.liveness.set_owned(volume, Some(epoch));
    let promised = || owner.liveness.is_promised(shard_id(1), volume, epoch);
    assert_eq!(world.run_until(promised), RunEnd::ConditionMet);

    let own = copy.liveness.own();
    assert_eq!(copy.liveness.begin_fence(own, volume, Epoch(4)), Ok(()));
    let answering = copy.liveness.clone();
    let fenced =
        copy.process.block_on(async move { answering.may_answer_fence(own, volume, Epoch(4)).await });
    assert_eq!(fenced, Ok(Ok(())));
    assert!(!promised(), "the former owner counts on nothing when the fence is answered");
    assert_eq!(copy.liveness.begin_fence(from, volume, epoch), Err(Epoch(4)), "the old epoch is refused");
}

#[test]
fn a_process_lives_that_answers_and_is_dead_when_it_was_silent_for_long() {
    let world = World::new(3);
    let [one, other] = two_nodes(&world);
    world.cut(&one.host, &other.host);
    let peer = other.liveness.own();
    let lives = |peer, asked| one.liveness.lives(peer, asked);
    assert_eq!(lives(peer, one.host.now()), None, "there was no time to hear of it yet");
    assert_eq!(world.run_for(Duration::from_secs(2)), RunEnd::TimeOver);
    assert_eq!(lives(peer, one.host.now()), Some(false));
    world.heal(&one.host, &other.host);
    let asked = one.host.now();
    assert_eq!(world.run_until(|| lives(peer, asked) == Some(true)), RunEnd::ConditionMet);
    let former = Peer { incarnation: ProcessIncarnation::from_random(99, 99), ..peer };
    assert_eq!(lives(former, asked), Some(false), "another process of its node");

    let asked = one.host.now();
    assert_eq!(lives(former, asked), None, "it may have come after the one that has answered");
    assert_eq!(lives(peer, asked), None, "what it has answered before says nothing");
    world.cut(&one.host, &other.host);
    assert_eq!(world.run_for(Duration::from_secs(1)), RunEnd::TimeOver);
    assert_eq!(lives(peer, asked), None);
    assert_eq!(world.run_until(|| lives(peer, asked) == Some(false)), RunEnd::ConditionMet);
}

#[test]
fn nothing_is_promised_for_copies_that_were_just_attached_until_they_are_settled() {
    let world = World::new(3);
    let [owner, copy] = two_nodes(&world);
    let (other, attached, epoch) = (VolumeId::from_random(5, 5), VolumeId::from_random(6, 6), Epoch(3));
    let drive = DriveId::from_random(1, 1);
    copy.liveness.drive_attached(drive, [(attached, epoch)]);
    owner.liveness.set_owned(other, Some(epoch));
    owner.liveness.set_owned(attached, Some(epoch));
    let promised = |volume| owner.liveness.is_promised(shard_id(1), volume, epoch);
    assert_eq!(world.run_for(Duration::from_secs(5)), RunEnd::TimeOver);
    assert!(!promised(attached), "its owner does not know yet what the copies hold");

    for volume in [other, attached] {
        let (from, answering) = (owner.liveness.own(), copy.liveness.clone());
        assert_eq!(copy.liveness.begin_fence(from, volume, epoch), Ok(()));
        let fenced =
            copy.process.block_on(async move { answering.may_answer_fence(from, volume, epoch).await });
        assert_eq!(fenced, Ok(Ok(())));
    }
    assert_eq!(world.run_until(|| promised(other)), RunEnd::ConditionMet);
    assert_eq!(world.run_for(Duration::from_secs(5)), RunEnd::TimeOver);
    assert!(!promised(attached), "a fence alone does not compare the copies");
    copy.liveness.copies_settled(attached);
    assert_eq!(world.run_until(|| promised(attached)), RunEnd::ConditionMet);
}
