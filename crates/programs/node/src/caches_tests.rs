use spandrel_platform_simulated::{Repeat, SimulatedDrive, SimulatedDriveConfig, SimulatedPlatform, World};
use spandrel_shared::{ClusterId, NodeId};

use super::*;

const NAME: &str = "cache";

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

/// Runs a test with a cache drive that is attached.
fn run<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(SimulatedPlatform, SimulatedDrive, NodeCache<SimulatedPlatform>) -> F + 'static,
) {
    let world = World::new(1);
    let host = world.add_host("host");
    let config = SimulatedDriveConfig { size_bytes: 8 << 20, ..SimulatedDriveConfig::default() };
    let control = world.add_drive(NAME, config);
    control.attach_to(&host);
    let process = world.start_process_on(&host, "process");
    let platform = process.platform();
    let done = process.block_on(async move {
        let opened = platform.open_drive(NAME).await.expect("it is there");
        let options = CacheFormatOptions {
            cluster: ClusterId::from_random(1, 1),
            node: NodeId::from_random(2, 2),
            drive: drive(9),
        };
        let superblock = CacheDrive::format(&platform, &opened, options).await.expect("it is empty");
        let cache = CacheDrive::attach(&platform, opened, 0).await.expect("it works");
        let known = NodeCache::new(NAME, config.size_bytes, Some(superblock), Ok(cache));
        test(platform, control, known).await;
    });
    done.expect("nothing stops it");
}

#[test]
fn a_cache_drive_without_room_works() {
    run(|platform, _, cache| async move {
        cache.bind(&platform, drive(1), None, u32::MAX).await.expect("there is room");
        let why = cache.bind(&platform, drive(2), None, 1).await.err().expect("there is none left");
        assert!(why.contains("no room"), "{why}");
        assert_eq!(cache.failure(), None);
        cache.unbind(&platform, drive(1)).await.expect("it works");
        cache.bind(&platform, drive(2), None, 1).await.expect("there is room again");
    });
}

#[test]
fn nobody_is_bound_to_a_cache_drive_that_fails_until_it_answers() {
    run(|platform, control, cache| async move {
        control.fail_writes(.., Repeat::Once);
        cache.bind(&platform, drive(1), None, 1).await.err().expect("it cannot be noted");
        assert!(cache.failure().is_some());
        cache.answers(&platform).await.expect("it works again");
        assert_eq!(cache.failure(), None);
        cache.bind(&platform, drive(1), None, 1).await.expect("it works");
    });
}

/// What was written late would be found after the next start instead of what came after it.
#[test]
fn no_change_overtakes_one_that_hangs_and_those_behind_it_are_not_made() {
    run(|platform, control, cache| async move {
        control.fall_silent();
        for number in [1, 2] {
            let why = cache.bind(&platform, drive(number), None, 1).await.err();
            assert_eq!(why.as_deref(), Some(NO_ANSWER));
        }
        assert!(cache.failure().is_some() && cache.answers(&platform).await.is_err());
        control.revive();
        cache.bind(&platform, drive(3), None, 1).await.expect("it works again");
        cache.answers(&platform).await.expect("it works again");
        let mut bound = cache.cache.as_ref().expect("it is used").bound();
        bound.sort();
        assert_eq!(bound, [drive(1), drive(3)], "the first had begun, the second had not");
    });
}
