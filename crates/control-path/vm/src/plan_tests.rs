use proptest::prelude::*;
use spandrel_cluster::store::Revision;
use spandrel_cluster::{Stored, VmBoot, VmDiskBus};

use super::*;

const GIB: u64 = 1 << 30;

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn vm(number: u8) -> VmId {
    VmId::from_bytes([number; 16])
}

fn volume(number: u8) -> VolumeId {
    VolumeId::from_bytes([number; 16])
}

fn at_ms(ms: u64) -> Instant {
    Instant::from_nanoseconds((1_000_000 + ms) * 1_000_000)
}

/// A cluster as all of its nodes see it at once, and what runs on each.
struct World {
    vms: Vms,
    hosts: BTreeMap<NodeId, HostSeen>,
    owners: BTreeMap<VolumeId, NodeId>,
    instances: BTreeMap<NodeId, BTreeMap<VmId, Instance>>,
    planners: BTreeMap<NodeId, Planner>,
    /// Every start that there was.
    started: BTreeSet<(VmId, u64)>,
}

impl World {
    /// Nodes 1 to `nodes` with so much memory each.
    fn new(nodes: u8, memory_bytes: u64) -> Self {
        let host = HostSeen { runs_vms: true, memory_bytes, is_in_maintenance: false };
        Self {
            vms: Vms::new(),
            hosts: (1..=nodes).map(|number| (node(number), host)).collect(),
            owners: BTreeMap::new(),
            instances: BTreeMap::new(),
            planners: (1..=nodes).map(|number| (node(number), Planner::default())).collect(),
            started: BTreeSet::new(),
        }
    }

    /// Adds a virtual machine of 1 GiB that is to run.
    fn add(&mut self, number: u8, priority: VmPriority) {
        let record = VmRecord {
            name: format!("vm-{number}"),
            volume: volume(number),
            processors: 1,
            memory_bytes: GIB,
            boot: VmBoot::Disk,
            disk_bus: VmDiskBus::Nbd,
            priority,
            goal: VmGoal::Running,
            placement: None,
            migration: None,
            waits_because: None,
            last_run: 0,
            created_unix_ms: 1,
        };
        self.vms.insert(vm(number), Stored { record, revision: Revision(1) });
    }

    fn record(&mut self, number: u8) -> &mut VmRecord {
        &mut self.vms.get_mut(&vm(number)).expect("it was added").record
    }

    fn steps(&mut self, now_ms: u64, on: u8) -> Vec<Step> {
        let none = BTreeMap::new();
        let sight = Sight {
            own: node(on),
            vms: &self.vms,
            hosts: &self.hosts,
            owners: &self.owners,
            instances: self.instances.get(&node(on)).unwrap_or(&none),
            busy: &BTreeSet::new(),
        };
        self.planners.get_mut(&node(on)).expect("there is such a node").steps(at_ms(now_ms), &sight)
    }

    fn change(&mut self, vm: VmId, change: impl FnOnce(&VmRecord) -> VmRecord) {
        let record = &mut self.vms.get_mut(&vm).expect("it is seen").record;
        *record = change(record);
    }

    /// Has a node take its steps, all of which succeed.
    fn act(&mut self, now_ms: u64, on: u8) -> Vec<Step> {
        let steps = self.steps(now_ms, on);
        for step in &steps {
            let instances = self.instances.entry(node(on)).or_default();
            match step {
                Step::Claim(vm, because) => {
                    self.change(*vm, |record| record.claimed(node(on), because.clone(), now_ms));
                    let run = self.vms[vm].record.last_run;
                    self.planners.get_mut(&node(on)).expect("there is such a node").claimed(*vm, run);
                }
                Step::Release(vm, goal, because) => {
                    self.change(*vm, |record| VmRecord { goal: *goal, ..record.released(because.clone()) });
                }
                Step::Start(vm) => {
                    let run = run_of(&self.vms[vm].record);
                    assert!(self.started.insert((*vm, run)), "{vm:?} is started twice by run {run}");
                    self.planners.get_mut(&node(on)).expect("there is such a node").begins(*vm);
                    instances.insert(*vm, Instance { run, condition: Condition::Running });
                }
                Step::Move(vm, to) => self.change(*vm, |record| record.moving(*to, now_ms)),
                Step::Receive(vm) => {
                    let run = self.vms[vm].record.migration.as_ref().expect("it moves").run;
                    self.planners.get_mut(&node(on)).expect("there is such a node").receives(*vm, run);
                    instances.insert(*vm, Instance { run, condition: Condition::Arriving });
                }
                Step::Await(vm) => self.change(*vm, VmRecord::awaited),
                Step::Send(vm, _) => {
                    let sent = Condition::Paused("it was sent".to_owned());
                    instances.get_mut(vm).expect("it runs").condition = sent;
                    self.change(*vm, |record| record.moved(now_ms));
                }
                Step::Stay(vm) => {
                    self.planners
                        .get_mut(&node(on))
                        .expect("there is such a node")
                        .not_moved(*vm, at_ms(now_ms));
                    self.change(*vm, VmRecord::staying);
                }
                Step::Resume(vm) => {
                    instances.get_mut(vm).expect("it has arrived").condition = Condition::Running;
                }
                Step::ShutDown(vm) => {
                    instances.get_mut(vm).expect("it runs").condition = Condition::ShutDown;
                }
                Step::End(vm) => drop(instances.remove(vm)),
            }
        }
        steps
    }

    /// Has all nodes that are alive act until nothing is left to do, for so long.
    fn settle(&mut self, from_ms: u64, to_ms: u64) {
        let alive: Vec<u8> = self.hosts.keys().map(|node| node.to_bytes()[0]).collect();
        for now_ms in (from_ms..=to_ms).step_by(100) {
            for on in &alive {
                self.act(now_ms, *on);
            }
        }
    }

    /// The nodes on which a virtual machine runs.
    fn runs_on(&self, number: u8) -> Vec<u8> {
        let has = |instances: &BTreeMap<VmId, Instance>| instances.contains_key(&vm(number));
        let nodes = self.instances.iter().filter(|(_, instances)| has(instances));
        nodes.map(|(node, _)| node.to_bytes()[0]).collect()
    }
}

#[test]
fn one_that_is_to_run_is_claimed_by_the_owner_of_its_disk_and_started_there() {
    let mut world = World::new(3, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(2));
    assert_eq!(world.act(0, 1), [], "the owner of its disk goes first");
    assert_eq!(world.act(0, 2), [Step::Claim(vm(1), PlacementReason::Started)]);
    assert_eq!(world.act(10, 2), [Step::Start(vm(1))]);
    assert_eq!(world.act(20, 2), []);
    assert!(world.planners[&node(2)].is_settled());
    assert_eq!(world.act(20, 1), []);
    assert!(world.planners[&node(1)].is_settled());
}

#[test]
fn one_whose_owner_has_no_room_goes_where_most_is_left_and_one_that_fits_nowhere_waits() {
    let mut world = World::new(3, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(2));
    world.hosts.get_mut(&node(2)).expect("it is there").memory_bytes = GIB / 2;
    world.hosts.get_mut(&node(3)).expect("it is there").memory_bytes = 5 * GIB;
    assert_eq!(world.act(0, 2), []);
    assert_eq!(world.act(0, 1), []);
    assert_eq!(world.act(0, 3), [Step::Claim(vm(1), PlacementReason::Started)]);
    world.add(2, VmPriority::High);
    world.record(2).memory_bytes = 6 * GIB;
    world.add(3, VmPriority::Low);
    world.settle(0, 20_000);
    assert_eq!(world.runs_on(2), [] as [u8; 0]);
    assert_eq!(world.runs_on(3).len(), 1, "one that fits nowhere holds no others up");
}

#[test]
fn one_whose_node_is_lost_is_claimed_once_that_has_shown_for_a_moment() {
    let mut world = World::new(3, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(2));
    world.settle(0, 200);
    assert_eq!(world.runs_on(1), [2]);
    world.hosts.remove(&node(2));
    world.owners.insert(volume(1), node(3));
    assert_eq!(world.act(300, 3), []);
    assert_eq!(world.act(700, 3), []);
    assert_eq!(world.act(800, 3), [Step::Claim(vm(1), PlacementReason::NodeLost { node: node(2) })]);
    assert_eq!(world.act(810, 3), [Step::Start(vm(1))]);
    assert_eq!(world.record(1).last_run, 2);
    // The lost one comes back, and what still runs there is none of it.
    world.hosts.insert(node(2), HostSeen { runs_vms: true, memory_bytes: 4 * GIB, is_in_maintenance: false });
    assert_eq!(world.act(900, 2), [Step::End(vm(1))]);
    assert_eq!(world.runs_on(1), [3]);
}

/// It looks for what it has, which takes longer than it takes to be missed.
#[test]
fn a_node_that_is_alive_and_says_nothing_yet_keeps_what_it_had_claimed_for_a_while() {
    let mut world = World::new(2, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(2));
    world.settle(0, 200);
    world.hosts.insert(node(2), HostSeen { runs_vms: false, memory_bytes: 0, is_in_maintenance: false });
    assert_eq!(world.act(300, 1), []);
    assert_eq!(world.act(30_000, 1), []);
    assert_eq!(world.act(60_300, 1), [Step::Claim(vm(1), PlacementReason::NodeLost { node: node(2) })]);
}

#[test]
fn one_that_is_paused_is_resumed_ever_more_slowly() {
    let mut world = World::new(1, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.settle(0, 200);
    let mut resumed = Vec::new();
    for now_ms in (300..20_000).step_by(100) {
        let instances = world.instances.get_mut(&node(1)).expect("it acts");
        instances.get_mut(&vm(1)).expect("it is there").condition = Condition::Paused("no room".to_owned());
        if world.act(now_ms, 1) == [Step::Resume(vm(1))] {
            resumed.push(now_ms);
        }
    }
    assert_eq!(resumed, [1300, 3300, 7300, 15_300]);
}

#[test]
fn a_node_that_comes_back_soon_keeps_what_it_had_claimed() {
    let mut world = World::new(2, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(2));
    world.settle(0, 200);
    let host = world.hosts.remove(&node(2)).expect("it is there");
    assert_eq!(world.act(300, 1), []);
    world.hosts.insert(node(2), host);
    assert_eq!(world.act(700, 1), []);
    world.hosts.remove(&node(2));
    assert_eq!(world.act(900, 1), [], "the time is counted anew");
}

#[test]
fn a_node_that_does_not_claim_what_suits_it_holds_nothing_up() {
    let mut world = World::new(3, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(3));
    assert_eq!(world.act(0, 1), []);
    assert_eq!(world.act(900, 1), []);
    assert_eq!(world.act(1000, 1), [Step::Claim(vm(1), PlacementReason::Started)]);
}

#[test]
fn those_of_higher_priority_go_first_and_not_too_many_start_at_once() {
    let mut world = World::new(1, 100 * GIB);
    for number in 1..=4 {
        world.add(number, VmPriority::Low);
    }
    for number in 5..=7 {
        world.add(number, VmPriority::High);
    }
    let claims = |steps: Vec<Step>| -> Vec<VmId> {
        steps
            .into_iter()
            .filter_map(|step| if let Step::Claim(vm, _) = step { Some(vm) } else { None })
            .collect()
    };
    assert_eq!(claims(world.act(0, 1)), [vm(5), vm(6), vm(7), vm(1)]);
    assert_eq!(claims(world.act(10, 1)), [], "four are being started");
    assert_eq!(claims(world.act(20, 1)), [vm(2), vm(3), vm(4)]);
}

#[test]
fn one_of_lower_priority_waits_for_a_higher_one_that_another_node_has_room_for_but_not_for_ever() {
    let mut world = World::new(2, 4 * GIB);
    world.add(1, VmPriority::High);
    world.add(2, VmPriority::Low);
    world.owners.extend([(volume(1), node(2)), (volume(2), node(1))]);
    world.record(1).memory_bytes = 3 * GIB;
    world.hosts.get_mut(&node(1)).expect("it is there").memory_bytes = 2 * GIB;
    assert_eq!(world.act(0, 1), [], "the other one is to be claimed by node 2 first");
    assert_eq!(world.act(9_900, 1), []);
    assert_eq!(world.act(10_000, 1), [Step::Claim(vm(2), PlacementReason::Started)]);
}

#[test]
fn one_that_is_not_to_start_by_itself_is_off_when_its_node_is_lost() {
    let mut world = World::new(3, 4 * GIB);
    world.add(1, VmPriority::NoAutoStart);
    world.owners.insert(volume(1), node(2));
    world.settle(0, 200);
    assert_eq!(world.runs_on(1), [2], "whoever starts it is obeyed");
    world.hosts.remove(&node(2));
    world.settle(300, 5000);
    assert_eq!((world.record(1).goal, world.record(1).placement.clone()), (VmGoal::Off, None));
}

#[test]
fn a_guest_that_is_to_be_off_is_asked_until_it_is_and_one_whose_power_is_cut_ends() {
    let mut world = World::new(1, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.settle(0, 200);
    world.record(1).goal = VmGoal::Off;
    assert_eq!(world.steps(300, 1), [Step::ShutDown(vm(1))]);
    assert_eq!(world.steps(400, 1), []);
    assert!(!world.planners[&node(1)].is_settled());
    assert_eq!(world.steps(5300, 1), [Step::ShutDown(vm(1))]);
    world.record(1).goal = VmGoal::OffAtOnce;
    assert_eq!(world.act(5400, 1), [Step::End(vm(1))]);
    assert_eq!(world.act(5500, 1), [Step::Release(vm(1), VmGoal::Off, None)]);
    assert_eq!(world.act(5600, 1), []);
    assert!(world.planners[&node(1)].is_settled());
}

#[test]
fn one_whose_guest_has_shut_down_is_off() {
    let mut world = World::new(1, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.settle(0, 200);
    world.instances.get_mut(&node(1)).expect("it acts").get_mut(&vm(1)).expect("it runs").condition =
        Condition::ShutDown;
    assert_eq!(world.act(300, 1), [Step::Release(vm(1), VmGoal::Off, None)]);
    assert_eq!(world.act(400, 1), [Step::End(vm(1))]);
    assert_eq!(world.act(500, 1), []);
}

#[test]
fn one_that_fails_is_started_again_ever_more_slowly_and_then_elsewhere() {
    let mut world = World::new(2, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(1));
    for (begins_at, failed_at, again_at) in [(0, 100, 1100), (1100, 1200, 3200), (3200, 3300, 0)] {
        assert_eq!(world.act(begins_at, 1), [Step::Claim(vm(1), PlacementReason::Started)], "for each a run");
        assert_eq!(world.steps(failed_at, 1), [Step::Start(vm(1))]);
        let planner = world.planners.get_mut(&node(1)).expect("it is there");
        planner.begins(vm(1));
        planner.failed(vm(1), at_ms(failed_at), "no such kernel".to_owned());
        assert_eq!(planner.failure(vm(1)), Some("no such kernel"));
        if again_at > 0 {
            assert_eq!(world.steps(again_at - 100, 1), []);
        }
    }
    let because = PlacementReason::StartFailed { node: node(1) };
    assert_eq!(world.act(3400, 1), [Step::Release(vm(1), VmGoal::Running, Some(because.clone()))]);
    assert_eq!(world.act(3400, 1), []);
    assert_eq!(world.act(3400, 2), [Step::Claim(vm(1), because)]);
    assert_eq!(world.act(3400, 2), [Step::Start(vm(1))]);
    let is_known = |world: &World| world.planners[&node(1)].failure(vm(1)).is_some();
    assert_eq!(world.act(200_000, 1), []);
    assert!(is_known(&world), "the other node may not keep it");
    assert_eq!(world.act(400_000, 1), []);
    assert!(!is_known(&world), "that was long ago, and it is elsewhere");
}

#[test]
fn one_that_starts_nowhere_is_tried_ever_more_slowly_on_all_nodes() {
    let mut world = World::new(3, 4 * GIB);
    world.add(1, VmPriority::Medium);
    let (mut tries, mut changes) = (BTreeMap::new(), 0);
    for now_ms in (0..600_000).step_by(100) {
        for on in 1..=3 {
            for step in world.act(now_ms, on) {
                if let Step::Start(vm) = step {
                    *tries.entry(on).or_insert(0) += 1;
                    world.instances.get_mut(&node(on)).expect("it acts").remove(&vm);
                    let planner = world.planners.get_mut(&node(on)).expect("it is there");
                    planner.failed(vm, at_ms(now_ms), "it does".to_owned());
                } else {
                    changes += 1;
                }
            }
        }
    }
    assert!(tries.len() == 3 && tries.values().all(|tries| (8..25).contains(tries)), "{tries:?}");
    assert!(changes < 150, "the state is changed {changes} times in ten minutes");
}

#[test]
fn one_that_moves_is_awaited_sent_and_then_runs_on_the_other_node() {
    let mut world = World::new(3, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(1));
    world.settle(0, 200);
    world.change(vm(1), |record| record.moving(node(3), 300));
    assert_eq!(world.act(300, 1), [], "it is not awaited yet");
    assert_eq!(world.act(300, 2), []);
    assert_eq!(world.act(300, 3), [Step::Receive(vm(1))]);
    assert_eq!(world.act(310, 3), [Step::Await(vm(1))]);
    assert_eq!(world.act(320, 3), []);
    assert_eq!(world.act(330, 1), [Step::Send(vm(1), node(3))]);
    assert_eq!(world.act(340, 3), [Step::Resume(vm(1))]);
    assert_eq!(world.act(350, 1), [Step::End(vm(1))]);
    assert_eq!(world.runs_on(1), [3]);
    let placement = world.record(1).placement.clone().expect("it is placed");
    assert_eq!(placement.reason, PlacementReason::Moved { node: node(1) });
    world.settle(400, 1000);
    assert!(world.planners.values().all(Planner::is_settled));
}

#[test]
fn one_that_nobody_awaits_stays_and_what_waits_for_one_that_stays_ends() {
    let mut world = World::new(2, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(1));
    world.settle(0, 200);
    world.change(vm(1), |record| record.moving(node(2), 300));
    assert_eq!(world.act(300, 1), []);
    assert_eq!(world.act(30_200, 1), []);
    assert_eq!(world.act(30_300, 1), [Step::Stay(vm(1))]);
    world.change(vm(1), |record| record.moving(node(2), 40_000));
    world.act(40_000, 2);
    assert_eq!(world.runs_on(1), [1, 2]);
    world.record(1).goal = VmGoal::Off;
    assert_eq!(world.act(40_100, 1), [Step::Stay(vm(1))], "it is to end, and not to move");
    assert_eq!(world.act(40_200, 2), [Step::End(vm(1))]);
    assert_eq!(world.act(40_300, 1), [Step::ShutDown(vm(1))]);
    // What should wait for it ends before it is there.
    world.settle(40_400, 41_000);
    world.record(1).goal = VmGoal::Running;
    world.settle(41_100, 42_000);
    world.change(vm(1), |record| record.moving(node(2), 43_000));
    world.act(43_000, 2);
    world.instances.get_mut(&node(2)).expect("it acts").clear();
    assert_eq!(world.act(43_100, 2), [Step::Stay(vm(1))]);
}

#[test]
fn from_a_node_in_maintenance_all_move_away_some_at_a_time() {
    let mut world = World::new(3, 8 * GIB);
    for number in 1..=5 {
        world.add(number, VmPriority::Medium);
        world.owners.insert(volume(number), node(1));
    }
    world.settle(0, 2000);
    assert!((1..=5).all(|number| world.runs_on(number) == [1]));
    world.hosts.get_mut(&node(1)).expect("it is there").is_in_maintenance = true;
    for now_ms in (2100..2500).step_by(10) {
        world.act(now_ms, 1);
        let moving = world.vms.values().filter(|stored| stored.record.migration.is_some()).count();
        assert!(moving <= MOVES_AT_ONCE);
    }
    assert_eq!(world.vms.values().filter(|stored| stored.record.migration.is_some()).count(), MOVES_AT_ONCE);
    world.settle(2500, 5000);
    assert!((1..=5).all(|number| world.runs_on(number).len() == 1 && world.runs_on(number) != [1]));
}

/// The process of a node has begun anew, and the machine's process has ended meanwhile: what it had begun to write may be under
/// way.
#[test]
fn what_a_former_process_has_claimed_is_claimed_anew_before_it_is_started() {
    let mut world = World::new(1, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.settle(0, 200);
    assert_eq!(world.record(1).last_run, 1);
    world.planners.insert(node(1), Planner::default());
    assert_eq!(world.act(300, 1), [], "what runs goes on");
    world.instances.clear();
    assert_eq!(world.act(400, 1), [Step::Claim(vm(1), PlacementReason::Started)]);
    assert_eq!(world.act(500, 1), [Step::Start(vm(1))]);
    assert_eq!(world.record(1).last_run, 2);
}

#[test]
fn a_node_in_maintenance_takes_none() {
    let mut world = World::new(2, 4 * GIB);
    world.add(1, VmPriority::Medium);
    world.owners.insert(volume(1), node(1));
    world.hosts.get_mut(&node(1)).expect("it is there").is_in_maintenance = true;
    assert_eq!(world.act(0, 1), []);
    assert_eq!(world.act(0, 2), [Step::Claim(vm(1), PlacementReason::Started)]);
}

#[derive(Clone, Debug)]
enum Event {
    Act(u8),
    NodeDies(u8),
    NodeComesBack(u8),
    Goal(u8, VmGoal),
    GuestEnds(u8, Condition),
    Moves(u8, u8),
}

fn event() -> impl Strategy<Value = Event> {
    let on = 1..=3_u8;
    let goal = prop_oneof![Just(VmGoal::Off), Just(VmGoal::OffAtOnce), Just(VmGoal::Running)];
    let end = prop_oneof![Just(Condition::ShutDown), Just(Condition::Failed("it did".to_owned()))];
    prop_oneof![
        8 => on.clone().prop_map(Event::Act),
        1 => on.clone().prop_map(Event::NodeDies),
        2 => on.clone().prop_map(Event::NodeComesBack),
        2 => (1..=5_u8, goal).prop_map(|(vm, goal)| Event::Goal(vm, goal)),
        1 => (on.clone(), end).prop_map(|(on, end)| Event::GuestEnds(on, end)),
        1 => (1..=5_u8, on).prop_map(|(vm, to)| Event::Moves(vm, to)),
    ]
}

proptest! {
    /// Whatever happens: of each run there is one instance at most, no node has more than it has room for, and when all is
    /// quiet everything that is to run does, once, and nothing else.
    #[test]
    fn what_is_to_run_runs_once(events in prop::collection::vec((event(), 0..2000_u64), 0..120)) {
        let mut world = World::new(3, 4 * GIB);
        (1..=5).for_each(|number| world.add(number, VmPriority::Medium));
        let host = HostSeen { runs_vms: true, memory_bytes: 4 * GIB, is_in_maintenance: false };
        let mut now_ms = 0;
        for (event, pause_ms) in events {
            now_ms += pause_ms;
            match event {
                // A node that does not count as alive acts all the same: it may only be cut off.
                Event::Act(on) => drop(world.act(now_ms, on)),
                Event::NodeDies(on) => _ = world.hosts.remove(&node(on)),
                Event::NodeComesBack(on) => _ = world.hosts.insert(node(on), host),
                Event::Goal(number, goal) => world.record(number).goal = goal,
                Event::Moves(number, to) => {
                    let record = world.record(number);
                    if record.migration.is_none() && record.is_elsewhere(node(to)) {
                        world.change(vm(number), |record| record.moving(node(to), now_ms));
                    }
                }
                Event::GuestEnds(on, end) => {
                    let instances = world.instances.entry(node(on)).or_default();
                    if let Some(instance) = instances.values_mut().next() {
                        instance.condition = end;
                    }
                }
            }
            let mut runs = BTreeSet::new();
            for (on, instances) in &world.instances {
                for (vm, instance) in instances {
                    prop_assert!(runs.insert((*vm, instance.run)), "{vm:?} runs twice by one claim, again on {on:?}");
                }
            }
            for on in world.hosts.keys() {
                let placed = world.vms.values().filter(|stored| stored.record.is_on(*on));
                prop_assert!(placed.count() <= 4, "{on:?} has more than it has room for");
            }
        }
        world.hosts = (1..=3).map(|number| (node(number), host)).collect();
        world.settle(now_ms, now_ms + 150_000);
        for number in 1..=5 {
            let is_wanted = world.record(number).goal == VmGoal::Running;
            prop_assert_eq!(world.runs_on(number).len(), usize::from(is_wanted), "virtual machine {}", number);
        }
    }
}
