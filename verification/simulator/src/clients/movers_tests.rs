use spandrel_platform_simulated::RunEnd;
use spandrel_shared::canary::{self, Bug};

use super::*;
use crate::nodes::{NodesWorld, PATIENCE, ownerships};
use crate::shape::{Load, Shape, VolumeShape};

const SERVERS: usize = 3;

/// What movers do in these tests: little things in few places, many of them changes.
fn load() -> Load {
    Load {
        depth: 3,
        zones: 1,
        change_per_mille: 700,
        trim_per_mille: 200,
        zero_per_mille: 100,
        partial_per_mille: 200,
        long_per_mille: 100,
        blocks_max: 4,
        idle_per_mille: 100,
        pause_us_max: 20_000,
        ..Shape::of_seed(1).load
    }
}

/// Servers with a volume that one mover has open.
struct Moving {
    nodes: NodesWorld,
    volume: Rc<ClientVolume>,
}

impl Moving {
    fn new(seed: u64) -> Self {
        let nodes = NodesWorld::new(seed, SERVERS);
        let shape = VolumeShape { slabs: 2, copies: 3 };
        nodes.create_volume(0, "v", shape.size_bytes(), shape.copies).expect("there is room");
        let random = Random::stream(seed, "zones", 0);
        Self { volume: Rc::new(ClientVolume::new("v", &shape, load(), nodes.world.clone(), &random)), nodes }
    }

    fn mover(&self, seed: u64) -> Mover {
        Mover {
            volume: Rc::clone(&self.volume),
            servers: (0..SERVERS).map(|server| self.nodes.nbd_address(server, 0)).collect(),
            platform: self.nodes.clients().platform(),
            random: Random::stream(seed, "mover", 0),
            closed_on: RefCell::default(),
            left: RefCell::default(),
            silent: Cell::new(0),
        }
    }

    fn start(&self, seed: u64) {
        let mover = self.mover(seed);
        start(&self.volume, mover.servers, &mover.platform, mover.random);
    }

    /// Runs until so many more operations were answered.
    fn run_until_answered(&self, more: usize) {
        let enough = self.volume.history.answered() + more;
        let end = self.nodes.world.run_until_within(PATIENCE, || self.volume.history.answered() >= enough);
        assert_eq!(end, RunEnd::ConditionMet, "the mover is served");
    }

    fn run_for(&self, milliseconds: u64) {
        assert_eq!(self.nodes.world.run_for(Duration::from_millis(milliseconds)), RunEnd::TimeOver);
    }

    /// Whether all copies are in sync: no server is the last one that has everything.
    fn is_whole(&self) -> bool {
        let owned = ownerships(&self.nodes);
        let mut serving = owned.values().flatten().filter(|owned| owned.is_serving);
        serving
            .any(|owned| owned.legs.len() == SERVERS && owned.legs.iter().all(|leg| leg.state == "in-sync"))
    }

    /// Every server in turn stands still, longer than the others wait for it.
    fn pause_all_in_turn(&self) {
        for server in 0..SERVERS {
            self.run_until_answered(20);
            self.nodes.process(server).expect("it is up").pause(Duration::from_secs(4));
            self.run_for(6000);
        }
    }

    /// What is wrong with what was answered so far.
    fn wrong(&self) -> Option<String> {
        self.volume.stop();
        let complaint = self.volume.complaint.take();
        complaint.or_else(|| self.volume.history.check().err().map(|wrong| wrong.to_string()))
    }
}

#[test]
fn a_mover_goes_on_elsewhere_when_its_server_is_gone() {
    let mut repeated = 0;
    for seed in 0..6 {
        let moving = Moving::new(seed);
        moving.start(seed);
        for server in 0..SERVERS {
            moving.run_until_answered(50);
            moving.nodes.stop(server, seed % 2 == 0);
            moving.run_until_answered(50);
            moving.nodes.start(server);
            assert_eq!(moving.nodes.run_until(|| moving.is_whole()), RunEnd::ConditionMet);
        }
        assert_eq!(moving.wrong(), None, "seed {seed}");
        repeated += moving.volume.history.repeated();
    }
    assert!(repeated > 0, "no server was gone with a change under way");
}

#[test]
fn what_a_server_does_late_undoes_nothing() {
    let mut repeated = 0;
    for seed in 0..6 {
        let moving = Moving::new(seed);
        moving.start(seed);
        moving.pause_all_in_turn();
        moving.run_until_answered(50);
        assert_eq!(moving.wrong(), None, "seed {seed}");
        repeated += moving.volume.history.repeated();
    }
    assert!(repeated > 0, "no server stood still with a change under way");
}

/// The same worlds, where a front-end that lost its right to write goes on.
#[test]
fn a_server_that_undoes_later_changes_is_found() {
    let is_found = |seed| {
        let moving = Moving::new(seed);
        moving.start(seed);
        moving.pause_all_in_turn();
        moving.run_until_answered(50);
        moving.wrong().is_some()
    };
    canary::plant(Some(Bug::LostWriterGoesOn));
    let found = (0..40).any(is_found);
    canary::plant(None);
    assert!(found);
}

#[test]
fn a_server_where_a_change_may_be_under_way_is_avoided_until_another_one_has_answered() {
    let moving = Moving::new(7);
    let mover = Rc::new(moving.mover(7));
    let clients = moving.nodes.clients().clone();
    let connected = Rc::clone(&mover);
    let desks: Rc<[Desk]> = Rc::new([Desk::default()]);
    let asking = Rc::clone(&desks);
    let line = clients.block_on(async move {
        let line = connected.connect(&asking).await.expect("nothing stops it");
        *asking[0].0.borrow_mut() = Some(Asked {
            kind: Kind::Write,
            sectors: 0..8,
            value: connected.volume.history.value(),
            number: None,
        });
        line
    });
    let line = line.expect("the clients' machine never fails");
    // No answer comes as long as the link is cut.
    let host = moving.nodes.host(line.server);
    moving.nodes.world.cut(&clients.host(), host);
    let (asked, asking) = (Rc::clone(&line), Rc::clone(&mover));
    let at_desk = Rc::clone(&desks);
    let is_answered = clients.block_on(async move { asking.attempt(&asked, &at_desk[0]).await });
    assert_eq!(is_answered, Ok(false));
    assert!(desks[0].has_change() && line.is_busy() && mover.may_go_to(line.server));

    mover.left.borrow_mut().push(Rc::clone(&line));
    assert!(!mover.may_go_to(line.server), "the request may still be done");
    line.close();
    assert!(mover.may_go_to(line.server), "nothing is under way any more");
    mover.closed_on.borrow_mut().insert(line.server);
    assert!(!mover.may_go_to(line.server), "the request may still be done, although nobody awaits it");

    // What waits on the link arrives there, and then that the connection is closed.
    moving.nodes.world.heal(&clients.host(), host);
    let repeating = Rc::clone(&mover);
    let answered_by = clients.block_on(async move {
        loop {
            let line = repeating.connect(&desks).await.expect("nothing stops it");
            if repeating.attempt(&line, &desks[0]).await {
                return line.server;
            }
        }
    });
    assert!(answered_by.is_ok_and(|server| server != line.server));
    assert!(mover.may_go_to(line.server), "it has lost its right to write");
    assert_eq!((moving.volume.history.answered(), moving.wrong()), (1, None));
}
