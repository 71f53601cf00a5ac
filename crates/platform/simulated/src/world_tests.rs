use spandrel_platform::{Address, Connection, Drive, Listener, Platform};
use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::*;
use crate::platform::SimulatedPlatform;

const PORT: u16 = 7000;

/// Copies what it receives to a drive and back to the sender.
async fn serve(platform: SimulatedPlatform) {
    let any: SocketAddr = ([0, 0, 0, 0], PORT).into();
    let listener = platform.listen(&Address::Tcp(any)).expect("the port is free");
    let drive = platform.open_drive(platform.process().name()).await.expect("its own drive");
    let mut offset = 0;
    loop {
        let connection = listener.accept().await.expect("a connection");
        let mut bytes = vec![0; 512];
        while let Ok(count @ 1..) = connection.receive(&mut bytes).await {
            let mut block = platform.buffers().take_zeroed(4096);
            block[..count].copy_from_slice(&bytes[..count]);
            let block = block.freeze();
            if drive.write(offset, vec![block.clone()]).await.is_ok() && drive.flush().await.is_ok() {
                connection.send(b"ok", &[block.slice(0..count)]);
            }
            offset = (offset + 4096) % (1 << 20);
        }
    }
}

/// Sends random bytes to random servers until it is stopped.
async fn call(platform: SimulatedPlatform, servers: Vec<Host>) {
    loop {
        let server = &servers[(platform.random_u64() % servers.len() as u64) as usize];
        let address = Address::Tcp(SocketAddr::new(server.address(0), PORT));
        if let Ok(connection) = platform.connect(&address).await {
            let mut bytes = vec![0; 1024];
            for _ in 0..platform.random_u64() % 8 {
                connection.send(&platform.random_u64().to_le_bytes(), &[]);
                if !matches!(connection.receive(&mut bytes).await, Ok(1..)) {
                    break;
                }
            }
        }
        platform.sleep(Duration::from_micros(platform.random_u64() % 500)).await;
    }
}

/// A little of everything, with faults.
fn run_everything(seed: u64, config: WorldConfig) -> World {
    let world = World::with_config(seed, config);
    let chaos = Random::stream(seed, "chaos", 0);
    let names = ["one", "two", "three"];
    for name in names {
        world.add_drive(name, SimulatedDriveConfig::default());
    }
    let start = |name: &str| {
        let process = world.start_process(name);
        process.spawn(serve(process.platform()));
        let servers = names.map(|name| world.host(name)).to_vec();
        process.spawn(call(process.platform(), servers));
    };
    names.iter().for_each(|name| start(name));
    for _ in 0..40 {
        let _ = world.run_for(Duration::from_micros(chaos.below(3000)));
        let name = names[chaos.index(3)];
        let (host, process) = (world.host(name), world.process(name));
        match chaos.below(6) {
            0 => {
                process.crash();
                start(name);
            }
            1 => {
                host.power_cut();
                let _ = world.run_for(Duration::from_micros(500));
                host.power_on();
                start(name);
            }
            2 => process.pause(Duration::from_micros(chaos.below(2000))),
            3 => world.isolate(&host),
            4 => world.heal_all(),
            _ => _ = world.break_random_connection(),
        }
    }
    world
}

#[test]
fn one_seed_replays_exactly_and_seeds_differ() {
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        let first = run_everything(seed, WorldConfig::swarm(seed));
        let second = run_everything(seed, WorldConfig::swarm(seed));
        assert_eq!(first.trace_hash(), second.trace_hash(), "seed {seed}");
        assert_eq!(first.trace_events(), second.trace_events());
        assert_eq!(first.now(), second.now());
        assert!(first.trace_events() > 500, "seed {seed}: something has to happen");
        assert!(seen.insert(first.trace_hash()), "seed {seed} is like another");
    }
}

#[test]
fn the_timeline_changes_nothing_but_itself() {
    let plain = run_everything(5, WorldConfig::default());
    let told = run_everything(5, WorldConfig { timeline_events: 50, ..WorldConfig::default() });
    assert_eq!(plain.trace_hash(), told.trace_hash());
    assert_eq!(plain.timeline(), "");
    assert_eq!(told.timeline().lines().count(), 50);
}

/// The hash of one certain run, so that a machine or a compiler on which it differs is noticed. A
/// change of the simulator changes it too; then the new one belongs here.
#[test]
fn the_trace_does_not_depend_on_the_machine() {
    let world = run_everything(1, WorldConfig::default());
    assert_eq!(format!("{:016x}", world.trace_hash()), "4270ae2d9f933f9b");
}

#[test]
fn a_note_is_part_of_the_trace() {
    let of = |text: &str| {
        let world = World::with_config(0, WorldConfig { timeline_events: 5, ..WorldConfig::default() });
        world.process("process").platform().note(text);
        world.note("from outside");
        (world.trace_hash(), world.timeline())
    };
    assert_eq!(of("a"), of("a"));
    assert_ne!(of("a").0, of("b").0);
    assert!(of("hello").1.contains("hello") && of("hello").1.contains("from outside"));
}

#[test]
fn the_ends_of_a_run_are_told_apart() {
    let world = World::new(0);
    let process = world.process("process");
    assert_eq!(world.run_until(|| false), RunEnd::NothingToDo);
    assert!(!world.step());

    let platform = process.platform();
    let ticks = Rc::new(Cell::new(0));
    let seen = Rc::clone(&ticks);
    let ticker = process.spawn(async move {
        loop {
            platform.sleep(Duration::from_secs(1)).await;
            seen.set(seen.get() + 1);
        }
    });
    assert_eq!(world.run_until(|| ticks.get() == 3), RunEnd::ConditionMet);
    let before = world.now();
    assert_eq!(world.run_until_within(Duration::from_millis(300), || ticks.get() == 9), RunEnd::TimeOver);
    assert_eq!(world.now() - before, Duration::from_millis(300), "the clock stands where time was over");
    ticker.abort();
    assert_eq!(world.run_until(|| false), RunEnd::NothingToDo);
    assert_eq!(world.run_for(Duration::from_secs(2)), RunEnd::TimeOver);
    assert_eq!(world.now() - before, Duration::from_millis(2300), "time passes though nothing happens");

    let never: Result<(), RunEnd> = process.block_on(std::future::pending());
    assert_eq!(never, Err(RunEnd::NothingToDo));
}

#[test]
fn a_task_that_spins_runs_out_of_steps_and_not_out_of_time() {
    let limits = RunLimits { steps: 10_000, ..WorldConfig::default().limits };
    let world = World::with_config(0, WorldConfig { limits, ..WorldConfig::default() });
    world.process("process").spawn(std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    }));
    assert_eq!(world.run_until(|| false), RunEnd::StepsOver);
    assert_eq!(world.now(), Duration::ZERO);
}

#[test]
fn planned_calls_run_in_order_of_time_then_of_planning() {
    let world = World::new(0);
    let order: Rc<RefCell<Vec<(u64, char)>>> = Rc::default();
    for (delay, name) in [(30, 'd'), (10, 'a'), (20, 'b'), (20, 'c')] {
        let order = Rc::clone(&order);
        world.after(Duration::from_micros(delay), move |world| {
            order.borrow_mut().push((world.now().as_micros() as u64, name));
        });
    }
    assert_eq!(world.run_until_idle(), RunEnd::NothingToDo);
    assert_eq!(*order.borrow(), [(10, 'a'), (20, 'b'), (20, 'c'), (30, 'd')]);
}

fn first_runners(order: TurnOrder) -> BTreeSet<Vec<usize>> {
    (0..40)
        .map(|seed| {
            let world = World::with_config(seed, WorldConfig { order, ..WorldConfig::default() });
            let ran: Rc<RefCell<Vec<usize>>> = Rc::default();
            for number in 0..3 {
                let ran = Rc::clone(&ran);
                world.process(&number.to_string()).spawn(async move { ran.borrow_mut().push(number) });
            }
            assert_eq!(world.run_until_idle(), RunEnd::NothingToDo);
            ran.take()
        })
        .collect()
}

#[test]
fn ready_processes_run_in_the_order_that_the_settings_ask_for() {
    assert_eq!(first_runners(TurnOrder::Fifo), BTreeSet::from([vec![0, 1, 2]]));
    assert_eq!(first_runners(TurnOrder::Random).len(), 6, "every order appears");
}

struct Flag(Rc<Cell<bool>>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
fn a_crash_drops_all_tasks_and_a_restart_is_another_incarnation() {
    let world = World::new(0);
    let process = world.process("process");
    let dropped = Rc::new(Cell::new(false));
    let flag = Flag(Rc::clone(&dropped));
    process.spawn(async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    });
    assert_eq!(world.run_until_idle(), RunEnd::NothingToDo);
    assert!(process.is_alive() && !dropped.get());
    process.crash();
    assert!(!process.is_alive() && dropped.get());

    let spawned = process.spawn(async { panic!("a process that has ended runs nothing") });
    assert!(spawned.is_finished());
    let next = world.start_process("process");
    assert_eq!((process.incarnation(), next.incarnation()), (1, 2));
    assert_eq!(next.host().name(), process.host().name());
    assert_ne!(process.platform().random_u64(), next.platform().random_u64(), "its own random stream");
    assert_eq!(world.process("process").incarnation(), 2, "it runs, so it is not started again");
    assert_eq!(world.run_until_idle(), RunEnd::NothingToDo);
}

#[test]
fn a_process_may_crash_itself_and_does_nothing_more_outside() {
    let world = World::new(0);
    let drive = world.add_drive("drive", SimulatedDriveConfig::default());
    let process = world.process("process");
    let (own, platform) = (process.clone(), process.platform());
    let dropped = Rc::new(Cell::new(false));
    let flag = Flag(Rc::clone(&dropped));
    process.spawn(async move {
        let _flag = flag;
        let drive = platform.open_drive("drive").await.expect("it is free");
        own.crash();
        let block = platform.buffers().take_zeroed(4096).freeze();
        let _ = drive.write(0, vec![block]).await;
        panic!("the process has crashed");
    });
    assert_eq!(world.run_until_idle(), RunEnd::NothingToDo);
    assert!(!process.is_alive() && dropped.get());
    assert_eq!(drive.counters().writes, 0);
}

#[test]
fn a_power_cut_ends_every_process_of_the_host_and_of_no_other() {
    let world = World::new(0);
    let host = world.add_host("host");
    let first = world.start_process_on(&host, "first");
    let second = world.start_process_on(&host, "second");
    let other = world.process("other");
    host.power_cut();
    assert_eq!((first.is_alive(), second.is_alive(), other.is_alive()), (false, false, true));
    host.power_on();
    assert!(!first.is_alive(), "power alone starts no process");
    assert_eq!(world.start_process("first").host().name(), "host");
}

#[test]
#[should_panic(expected = "no power")]
fn nothing_starts_without_power() {
    let world = World::new(0);
    world.host("host").power_cut();
    world.start_process("host");
}

#[test]
#[should_panic(expected = "it runs")]
fn a_process_that_runs_is_not_started_again() {
    let world = World::new(0);
    world.start_process("process");
    world.start_process("process");
}

#[test]
fn a_paused_process_runs_nothing_until_it_resumes() {
    let world = World::new(0);
    let process = world.process("process");
    let platform = process.platform();
    let ticks: Rc<RefCell<Vec<Duration>>> = Rc::default();
    let (seen, start) = (Rc::clone(&ticks), platform.now());
    process.spawn(async move {
        loop {
            platform.sleep(Duration::from_millis(10)).await;
            seen.borrow_mut().push(platform.now().since(start));
        }
    });
    let _ = world.run_for(Duration::from_millis(95));
    assert_eq!(ticks.borrow().len(), 9);
    process.pause(Duration::from_millis(500));
    process.spawn(async {});
    let _ = world.run_for(Duration::from_millis(490));
    assert_eq!(ticks.borrow().len(), 9, "it is paused");
    let _ = world.run_for(Duration::from_millis(40));
    assert!(ticks.borrow()[9] >= Duration::from_millis(594), "its clock went on: {:?}", ticks.borrow()[9]);

    process.pause(Duration::from_secs(1));
    process.pause_until_resumed();
    let count = ticks.borrow().len();
    let _ = world.run_for(Duration::from_secs(5));
    assert_eq!(ticks.borrow().len(), count, "the later pause has no end of its own");
    process.resume();
    assert_eq!(world.run_until(|| ticks.borrow().len() == count + 5), RunEnd::ConditionMet);
}

#[test]
fn a_world_that_is_dropped_takes_its_tasks_with_it() {
    let alive = Rc::new(());
    let world = run_everything(3, WorldConfig::default());
    for name in ["one", "two"] {
        let alive = Rc::clone(&alive);
        let process = world.process(name);
        let (own, platform) = (process.clone(), process.platform());
        process.spawn(async move {
            let _held = (alive, own, platform.clone());
            platform.sleep(Duration::from_secs(1000)).await;
        });
    }
    let _ = world.run_for(Duration::from_millis(1));
    assert_eq!(Rc::strong_count(&alive), 3);
    drop(world);
    assert_eq!(Rc::strong_count(&alive), 1);
}

#[test]
fn a_world_that_is_dropped_leaves_nothing_behind() {
    for seed in 0..20 {
        let world = run_everything(seed, WorldConfig::swarm(seed));
        let shared = Rc::downgrade(world.shared());
        drop(world);
        assert_eq!(shared.strong_count(), 0, "seed {seed}: something holds itself alive in a circle");
    }
}
