use std::future::ready;

use spandrel_platform_simulated::{SimulatedPlatform, World};

use super::*;

const WHAT: &str = "sda";

fn refused() -> Result<(), Error> {
    Err(Error::new("CACHE_NOT_DRAINED", "what", "why", "next"))
}

fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(SimulatedPlatform) -> F) {
    let world = World::new(1);
    let process = world.start_process_on(&world.add_host("host"), "process");
    process.block_on(test(process.platform())).expect("nothing stops it");
}

/// When the next attempt is due.
fn due_in_s(attempts: &Attempts, now: Instant) -> u64 {
    (0..).find(|seconds| attempts.is_due(WHAT, now + Duration::from_secs(*seconds))).expect("at some time")
}

#[test]
fn pauses_become_longer_until_an_attempt_succeeds() {
    run(|platform| async move {
        let attempts = Attempts::default();
        for pause_s in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert_eq!(attempts.make(&platform, WHAT, ready(refused())).await, None);
            assert_eq!(due_in_s(&attempts, platform.now()), pause_s);
            assert_eq!(attempts.are_in_vain(WHAT), pause_s == 300);
            assert_eq!(attempts.make(&platform, WHAT, ready(Ok(()))).await, None, "it is not due");
            platform.sleep(Duration::from_secs(pause_s)).await;
        }
        assert_eq!(attempts.make(&platform, WHAT, ready(Ok(()))).await, Some(()));
        assert!(attempts.is_due(WHAT, platform.now()) && !attempts.are_in_vain(WHAT));
    });
}

#[test]
fn nothing_is_told_while_an_attempt_goes_on_and_its_pause_begins_when_it_ends() {
    run(|platform| async move {
        let attempts = Attempts::default();
        for pause_s in [1, 2] {
            let attempt = async {
                assert_eq!(attempts.obstacle(WHAT), None, "what was in the way may not be there any more");
                platform.sleep(Duration::from_secs(60)).await;
                refused()
            };
            assert_eq!(attempts.make(&platform, WHAT, attempt).await, None);
            assert_eq!(attempts.obstacle(WHAT), refused().err());
            assert_eq!(due_in_s(&attempts, platform.now()), pause_s);
            platform.sleep(Duration::from_secs(pause_s)).await;
        }
    });
}

#[test]
fn what_is_not_wanted_any_more_is_forgotten() {
    run(|platform| async move {
        let attempts = Attempts::default();
        for what in [WHAT, "sdb"] {
            attempts.make(&platform, what, ready(refused())).await;
        }
        attempts.keep_only(&[WHAT.to_owned()].into(), platform.now());
        assert_eq!((attempts.obstacle(WHAT), attempts.obstacle("sdb")), (refused().err(), None));
    });
}

/// Something that works when it is attempted, and has to be attempted again soon all the same.
#[test]
fn what_is_on_trial_waits_longer_each_time_unless_it_has_lasted() {
    run(|platform| async move {
        let attempts = Attempts::default();
        for pause_s in [1, 2, 4] {
            assert_eq!(attempts.make_on_trial(&platform, WHAT, ready(Ok(()))).await, Some(()));
            assert_eq!((due_in_s(&attempts, platform.now()), attempts.obstacle(WHAT)), (pause_s, None));
            platform.sleep(RETRY_MAX).await;
            attempts.keep_only(&BTreeSet::new(), platform.now());
        }
        platform.sleep(Duration::from_secs(4)).await;
        attempts.keep_only(&BTreeSet::new(), platform.now());
        assert_eq!(attempts.make_on_trial(&platform, WHAT, ready(Ok(()))).await, Some(()));
        assert_eq!(due_in_s(&attempts, platform.now()), 1, "it has worked for long");
    });
}
