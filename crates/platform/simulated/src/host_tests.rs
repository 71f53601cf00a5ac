use spandrel_platform::Platform;

use crate::{DelayRange, World, WorldConfig};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::*;

/// A world whose clocks are exact unless a test makes them otherwise.
fn exact_world(seed: u64) -> World {
    let config = WorldConfig {
        clock_drift_ppm_max: 0,
        timer_slack_max: Duration::ZERO,
        timeline_events: 100,
        ..WorldConfig::default()
    };
    World::with_config(seed, config)
}

#[test]
fn a_clock_and_its_inverse_agree_and_neither_goes_back() {
    for drift in [-900_000_000, -123_457, -1, 0, 1, 99_999, 500_000_000, 9_000_000_000] {
        let clock = Clock { anchor_world: 1_000_003, anchor_local: 77, rate: rate_of(drift) };
        let mut last = 0;
        for step in 0..2000_u64 {
            let world = 1_000_003 + step * step * 31;
            let local = clock.local(world);
            assert!(local >= last);
            last = local;
            let back = clock.world(local);
            assert!(back <= world && clock.local(back) >= local, "drift {drift}, world {world}");
            assert!(back == clock.anchor_world || clock.local(back - 1) < local, "the first such time");
        }
    }
}

#[test]
fn clocks_of_hosts_differ_within_the_settings() {
    let world = World::new(4);
    let hosts: Vec<Host> = (0..20).map(|number| world.add_host(&format!("host-{number}"))).collect();
    let before: Vec<u64> = hosts.iter().map(|host| host.now().nanoseconds()).collect();
    let _ = world.run_for(Duration::from_secs(1000));
    let elapsed: Vec<i64> = hosts
        .iter()
        .zip(&before)
        .map(|(host, before)| (host.now().nanoseconds() - before).cast_signed() - 1_000_000_000_000)
        .collect();
    assert!(elapsed.iter().all(|drift| drift.abs() <= 100_000_000), "at most 100 ppm: {elapsed:?}");
    assert!(
        elapsed.iter().any(|drift| *drift > 10_000_000) && elapsed.iter().any(|drift| *drift < -10_000_000)
    );
    assert!(before.iter().any(|other| *other != before[0]), "hosts did not boot at the same time");
}

#[test]
fn a_sleeper_never_wakes_early_and_at_most_the_slack_late() {
    for seed in 0..30 {
        let config = WorldConfig { timer_slack_max: Duration::from_millis(5), ..WorldConfig::default() };
        let world = World::with_config(seed, config);
        let process = world.process("sleeper");
        process.host().set_clock_drift(if seed % 2 == 0 { 300_000 } else { -300_000 });
        let platform = process.platform();
        let late: Rc<RefCell<Vec<u64>>> = Rc::default();
        for _ in 0..50 {
            let (platform, late) = (platform.clone(), Rc::clone(&late));
            process.spawn(async move {
                for _ in 0..10 {
                    let deadline = platform.now() + Duration::from_nanos(platform.random_u64() % 20_000_000);
                    platform.sleep_until(deadline).await;
                    assert!(platform.now() >= deadline);
                    late.borrow_mut().push(platform.now().since(deadline).as_nanos() as u64);
                }
            });
        }
        assert_eq!(world.run_until_idle(), crate::RunEnd::NothingToDo);
        let late = late.borrow();
        assert_eq!(late.len(), 500);
        assert!(late.iter().all(|late| *late <= 5_000_000 * 13 / 10 + 2));
        assert!(late.iter().any(|late| *late > 1_000_000), "the slack is used");
    }
}

#[test]
fn a_change_of_rate_moves_sleepers_but_never_wakes_them_early() {
    let world = exact_world(1);
    let process = world.process("sleeper");
    let platform = process.platform();
    let deadline = platform.now() + Duration::from_secs(10);
    let host = process.host();
    let woken_at = Rc::new(RefCell::new(None));
    let (own, slot) = (world.now(), Rc::clone(&woken_at));
    let clock = platform.clone();
    process.spawn(async move {
        clock.sleep_until(deadline).await;
        *slot.borrow_mut() = Some(clock.now());
    });
    let _ = world.run_for(Duration::from_secs(5));
    host.set_clock_drift(-500_000);
    assert!(world.step());
    assert_eq!(world.now() - own, Duration::from_secs(15), "nothing happens at the former time");
    assert_eq!(world.run_until(|| woken_at.borrow().is_some()), crate::RunEnd::ConditionMet);
    assert_eq!(world.now() - own, Duration::from_secs(15), "the second half ran at half speed");
    assert_eq!(*woken_at.borrow(), Some(deadline));

    let deadline = host.now() + Duration::from_secs(10);
    let (clock, slot) = (platform.clone(), Rc::clone(&woken_at));
    woken_at.take();
    process.spawn(async move {
        clock.sleep_until(deadline).await;
        *slot.borrow_mut() = Some(clock.now());
    });
    let _ = world.run_for(Duration::from_secs(1));
    host.advance_clock(Duration::from_secs(60));
    let before = world.now();
    assert_eq!(world.run_until(|| woken_at.borrow().is_some()), crate::RunEnd::ConditionMet);
    assert_eq!(world.now(), before, "a leap past the deadline wakes at once");
}

#[test]
fn a_dropped_sleeper_leaves_nothing_to_wait_for() {
    let world = exact_world(1);
    let process = world.process("sleeper");
    let platform = process.platform();
    let done = process.block_on(async move {
        let deadline = platform.now() + Duration::from_secs(1);
        let outer = platform.clone();
        spandrel_platform::before(&outer, deadline, platform.sleep(Duration::from_secs(3000))).await
    });
    assert_eq!(done, Ok(None));
    let at = world.now();
    assert_eq!(world.run_until_idle(), crate::RunEnd::NothingToDo);
    assert_eq!(world.now(), at, "the clock did not move to the dropped deadline");
}

#[test]
fn a_sleep_for_ever_is_nothing_to_do() {
    let world = exact_world(1);
    let process = world.process("sleeper");
    let platform = process.platform();
    process.spawn(async move { platform.sleep(Duration::MAX).await });
    assert_eq!(world.run_until_idle(), crate::RunEnd::NothingToDo);
}

#[test]
fn a_boot_begins_the_clock_again() {
    let config = WorldConfig { boot_age_max: Duration::from_secs(100_000), ..WorldConfig::default() };
    let world = World::with_config(2, config);
    let host = world.add_host("host");
    let before = host.now();
    assert!(before.nanoseconds() > 20_000_000_000, "seed 2 boots long before the world");
    host.power_cut();
    assert!(!host.is_powered());
    host.power_on();
    assert!(host.now().nanoseconds() <= 10_000_000_000);
    let _ = world.run_for(Duration::from_secs(5));
    assert!(host.now().nanoseconds() >= 5_000_000_000);
}

#[test]
fn the_time_of_day_jumps_without_the_clock() {
    let world = exact_world(3);
    let process = world.process("process");
    let platform = process.platform();
    let (unix, now) = (platform.unix_time(), platform.now());
    process.host().jump_unix_time(-3_600_000);
    assert_eq!(platform.unix_time().0, unix.0 - 3_600_000);
    assert_eq!(platform.now(), now);
    let _ = world.run_for(Duration::from_millis(1500));
    assert_eq!(platform.unix_time().0, unix.0 - 3_600_000 + 1500);
    assert!(world.timeline().contains("time of day jumps by -3600000 ms"));
}

#[test]
fn hosts_are_found_by_their_addresses() {
    let mut config = WorldConfig::default();
    config.network.networks = 2;
    config.network.delay = DelayRange::microseconds(1, 1);
    let world = World::with_config(0, config);
    let hosts: Vec<Host> = (0..300).map(|number| world.add_host(&number.to_string())).collect();
    for host in &hosts {
        for network in 0..2 {
            let found = world.host_at(host.address(network)).expect("it has that address");
            assert_eq!(found.name(), host.name());
        }
    }
    assert!(world.host_at(IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1))).is_none());
    assert!(world.host_at(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0))).is_none());
    assert!(world.host_at(IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1))).is_none());
}
