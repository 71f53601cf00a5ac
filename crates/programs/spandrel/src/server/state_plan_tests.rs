use super::*;

fn id(number: u64) -> NodeId {
    NodeId::from_random(1, number)
}

/// The witness of a cluster that has one.
const WITNESS: u64 = 99;

/// A world of servers, which join, take their steps, fail and leave.
#[derive(Clone, Default)]
struct World {
    servers: Vec<PlannedServer>,
    members: Vec<PlannedMember>,
    running: BTreeSet<NodeId>,
    lost: BTreeSet<NodeId>,
    removed: BTreeSet<NodeId>,
    next_id: u64,
}

impl World {
    /// A new cluster, of one node.
    fn new() -> Self {
        let mut world = Self::default();
        world.join(1);
        world.add(id(1), true);
        world.running.insert(id(1));
        world
    }

    fn join(&mut self, number: u64) {
        let server = PlannedServer { id: id(number), witness: number == WITNESS, is_awake: true };
        self.servers.push(server);
    }

    fn add(&mut self, server: NodeId, votes: bool) {
        self.next_id += 1;
        self.members.push(PlannedMember {
            id: self.next_id,
            server: Some(server),
            votes,
            is_given_up: false,
        });
    }

    fn sleep(&mut self, number: u64) {
        self.servers
            .iter_mut()
            .filter(|server| server.id == id(number))
            .for_each(|server| server.is_awake = false);
        self.members.iter_mut().filter(|member| member.server == Some(id(number))).for_each(|member| {
            member.is_given_up = true;
        });
        self.running.remove(&id(number));
    }

    fn leave(&mut self, number: u64) {
        self.sleep(number);
        self.servers.retain(|server| server.id != id(number));
        self.removed.insert(id(number));
    }

    fn step_of(&self, server: NodeId) -> Step {
        let member = self.members.iter().find(|member| member.server == Some(server));
        let own = OwnMember {
            server,
            id: member.map(|member| member.id),
            runs: self.running.contains(&server),
            has_lost_data: self.lost.contains(&server),
        };
        next_step(own, &self.servers, &self.members, &self.removed)
    }

    /// Takes a server's step.
    fn take(&mut self, server: NodeId, step: Step) {
        match step {
            Step::Wait => {}
            Step::Add => self.add(server, false),
            Step::Begin => _ = self.running.insert(server),
            Step::Promote(id) => {
                self.members
                    .iter_mut()
                    .filter(|member| member.id == id)
                    .for_each(|member| member.votes = true);
            }
            Step::Leave(id) | Step::Remove(id) => {
                if let Some(gone) =
                    self.members.iter().find(|member| member.id == id).and_then(|gone| gone.server)
                {
                    self.running.remove(&gone);
                    self.lost.remove(&gone);
                }
                self.members.retain(|member| member.id != id);
            }
        }
    }

    /// Lets servers that are awake take steps until none has any left. Each number of votes on the way.
    fn settle(&mut self) -> Vec<usize> {
        let mut votes = vec![self.votes().len()];
        for _ in 0..200 {
            let awake = self.servers.iter().filter(|server| server.is_awake).map(|server| server.id);
            let steps: Vec<(NodeId, Step)> = awake.map(|server| (server, self.step_of(server))).collect();
            let Some((server, step)) = steps.into_iter().find(|(_, step)| *step != Step::Wait) else {
                return votes;
            };
            self.take(server, step);
            votes.push(self.votes().len());
        }
        panic!("it does not come to rest: {:?}", self.members);
    }

    fn votes(&self) -> BTreeSet<NodeId> {
        self.members.iter().filter(|member| member.votes).filter_map(|member| member.server).collect()
    }
}

fn set(numbers: &[u64]) -> BTreeSet<NodeId> {
    numbers.iter().copied().map(id).collect()
}

/// A cluster to which these servers have come one by one.
fn grown(numbers: &[u64]) -> World {
    let mut world = World::new();
    world.settle();
    for number in numbers {
        world.join(*number);
        world.settle();
    }
    world
}

#[test]
fn votes_are_odd_and_grow_with_the_cluster() {
    assert_eq!(grown(&[]).votes(), set(&[1]));
    assert_eq!(grown(&[2]).votes(), set(&[1]));
    assert_eq!(grown(&[2, 3]).votes(), set(&[1, 2, 3]));
    assert_eq!(grown(&[2, 3, 4]).votes(), set(&[1, 2, 3]));
    assert_eq!(grown(&[2, 3, 4, 5]).votes(), set(&[1, 2, 3, 4, 5]));
    assert_eq!(grown(&[2, 3, 4, 5, 6, 7]).votes(), set(&[1, 2, 3, 4, 5]));
    assert_eq!(grown(&[WITNESS]).votes(), set(&[1]));
    assert_eq!(grown(&[2, WITNESS]).votes(), set(&[1, 2, WITNESS]));
    assert_eq!(grown(&[2, 3, 4, WITNESS]).votes(), set(&[1, 2, 3, 4, WITNESS]));
}

#[test]
fn who_has_a_vote_keeps_it() {
    assert_eq!(grown(&[2, WITNESS, 3]).votes(), set(&[1, 2, WITNESS]));
    assert_eq!(grown(&[2, WITNESS, 3, 4]).votes(), set(&[1, 2, 3, 4, WITNESS]));
    assert_eq!(grown(&[2, WITNESS, 3, 4, 5]).votes(), set(&[1, 2, 3, 4, WITNESS]));
}

#[test]
fn the_second_of_two_nodes_keeps_a_copy_without_a_vote() {
    let world = grown(&[2]);
    assert!(world.members.iter().any(|member| member.server == Some(id(2)) && !member.votes));
    assert!(world.running.contains(&id(2)));
}

#[test]
fn a_vote_that_makes_the_number_even_waits_for_the_next() {
    let mut world = grown(&[2]);
    world.join(3);
    world.sleep(3);
    world.settle();
    assert_eq!(world.votes(), set(&[1]), "the third has joined, but does not run");
    world.servers.iter_mut().for_each(|server| server.is_awake = true);
    let votes = world.settle();
    assert_eq!(world.votes(), set(&[1, 2, 3]));
    assert!(votes.iter().filter(|votes| *votes % 2 == 0).count() <= 4, "{votes:?}");
}

#[test]
fn a_member_that_never_came_up_makes_room() {
    let mut world = grown(&[2]);
    world.sleep(2);
    world.settle();
    assert_eq!(world.members.len(), 2, "it is in nobody's way");
    world.join(3);
    world.join(WITNESS);
    world.settle();
    assert_eq!(world.votes(), set(&[1, 3, WITNESS]));
}

#[test]
fn members_of_servers_that_have_left_are_removed_and_replaced() {
    let mut world = grown(&[2, 3, 4]);
    world.leave(2);
    world.settle();
    assert_eq!(world.votes(), set(&[1, 3, 4]));
    let mut world = grown(&[2, 3, 4, 5]);
    world.leave(5);
    world.settle();
    assert_eq!(world.votes(), set(&[1, 2, 3]), "four servers, three votes");
}

#[test]
fn a_member_without_its_data_begins_anew() {
    let mut world = grown(&[2, 3]);
    world.running.remove(&id(2));
    world.lost.insert(id(2));
    assert!(matches!(world.step_of(id(2)), Step::Leave(_)));
    world.settle();
    assert_eq!(world.votes(), set(&[1, 2, 3]));
    assert_eq!(world.next_id, 4, "under another number");
}

/// Whatever comes in whatever order, the votes come to rest at an odd number of servers of the cluster.
#[test]
fn every_short_history_comes_to_rest() {
    type Event = fn(&mut World, u64);
    let events: [Event; 3] = [
        |world, number| {
            let is_new = |server: &PlannedServer| server.id != id(number);
            if world.servers.iter().all(is_new) && !world.removed.contains(&id(number)) {
                world.join(number);
            }
        },
        |world, number| {
            // Never so many that those that are left have no majority.
            let votes = world.votes();
            let awake = world
                .servers
                .iter()
                .filter(|server| server.is_awake && server.id != id(number) && votes.contains(&server.id));
            if 2 * awake.count() > votes.len() {
                world.sleep(number);
            }
        },
        |world, number| {
            let is_asleep = world.servers.iter().any(|server| server.id == id(number) && !server.is_awake);
            if is_asleep && world.servers.len() > 1 {
                world.leave(number);
            }
        },
    ];
    let numbers = [2, 3, 4, WITNESS];
    let choices: Vec<(usize, u64)> =
        (0..events.len()).flat_map(|event| numbers.iter().map(move |number| (event, *number))).collect();
    let mut worlds = vec![World::new()];
    for _ in 0..4 {
        let mut next = Vec::new();
        for world in &worlds {
            for (event, number) in &choices {
                let mut world = world.clone();
                events[*event](&mut world, *number);
                world.settle();
                assert!(!world.votes().is_empty());
                let servers: BTreeSet<NodeId> = world.servers.iter().map(|server| server.id).collect();
                let awake = world.servers.iter().all(|server| server.is_awake);
                if awake {
                    assert!(world.votes().is_subset(&servers), "{:?}", world.members);
                    assert_eq!(world.votes().len() % 2, 1, "{:?} {:?}", world.members, world.servers);
                }
                next.push(world);
            }
        }
        worlds = next;
    }
}
