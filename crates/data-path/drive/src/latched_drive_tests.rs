use std::time::Duration;

use futures_util::future::join;
use spandrel_platform::Platform;
use spandrel_platform_simulated::{OpenDrive, Repeat};
use spandrel_shared::{BLOCK_BYTES, DriveId};

use super::*;
use crate::cache_drive::CacheDrive;
use crate::layout::Layout;
use crate::media::{Flushed, Media};
use crate::test_support::cached::{CachedMachine, open_cache};
use crate::test_support::machine::{Machine, open};
use crate::test_support::{drive_config, small_slabs};

fn block<P: Platform>(platform: &P) -> Vec<Buffer> {
    vec![platform.buffers().take_zeroed(BLOCK_BYTES).freeze()]
}

/// What a store of its own would stand on, with one chunk of the cache drive.
async fn neighbour<P: Platform<Drive = OpenDrive>>(
    platform: &P,
    cache: &CacheDrive<P>,
    capacity: OpenDrive,
    number: u8,
) -> Media<OpenDrive> {
    let area = cache.bind(DriveId::from_bytes([number; 16]), 1).await.unwrap();
    let layout = Layout::for_drive(24 << 20, 512, small_slabs()).unwrap();
    Media::new(capacity, Some(area), &layout, platform.buffers().clone())
}

/// A flush that fails may have lost what neighbours have written, whoever has asked for it.
#[test]
fn a_failed_flush_of_a_cache_drive_is_the_last_one_for_all_who_share_it() {
    for asker in 0..4 {
        let cached = CachedMachine::formatted(asker, drive_config(24));
        let faults = cached.cache.clone();
        cached.run(move |platform| async move {
            let cache = CacheDrive::attach(&platform, open_cache(&platform).await, 0).await.unwrap();
            let capacity = open(&platform).await;
            let one = neighbour(&platform, &cache, capacity.clone(), 7).await;
            let other = neighbour(&platform, &cache, capacity, 8).await;
            one.write(24 << 20, block(&platform)).await.unwrap();
            other.write(24 << 20, block(&platform)).await.unwrap();
            faults.fail_flushes(Repeat::Once);
            let has_failed = match asker {
                0 => one.flush(Flushed::Area).await.is_err(),
                1 => cache.check().await.is_err(),
                2 => cache.bind(DriveId::from_bytes([9; 16]), 1).await.is_err(),
                _ => cache.unbind(DriveId::from_bytes([9; 16])).await.is_err(),
            };
            assert!(has_failed, "asker {asker}");
            assert!(other.flush(Flushed::Area).await.is_err(), "asker {asker}: the write may be lost");
            assert!(other.needs_flush(Flushed::Area), "asker {asker}: nothing has made it durable");
            assert!(other.write(24 << 20, block(&platform)).await.is_err(), "asker {asker}");
            assert!(cache.check().await.is_err(), "asker {asker}: the drive has to be attached anew");
            assert!(other.read(24 << 20, platform.buffers().take(BLOCK_BYTES)).await.is_ok());
            other.write(0, block(&platform)).await.unwrap();
            assert_eq!(other.flush(Flushed::Capacity).await, Ok(1), "the capacity drive is another one");
            drop((cache, one, other));
            let again = CacheDrive::attach(&platform, open_cache(&platform).await, 0).await.unwrap();
            assert_eq!(again.check().await, Ok(()), "asker {asker}");
        });
    }
}

/// Of two flushes that are under way, the first may take the error for both.
#[test]
fn a_flush_that_ends_behind_one_that_has_failed_fails_as_well() {
    let mut were_second = 0;
    for seed in 0..20 {
        let machine = Machine::formatted(seed, drive_config(24));
        let faults = machine.drive.clone();
        were_second += machine.run(move |platform| async move {
            let drive = LatchedDrive::new(open(&platform).await);
            drive.write(0, block(&platform)).await.unwrap();
            faults.fail_flushes(Repeat::Once);
            let ended = std::cell::RefCell::new(Vec::new());
            let flush = async |number: u32, after| {
                platform.sleep(Duration::from_micros(after)).await;
                let outcome = drive.flush().await;
                ended.borrow_mut().push(number);
                outcome
            };
            let (first, second) = join(flush(1, 0), flush(2, 10)).await;
            assert!(first.is_err(), "seed {seed}");
            let is_second = *ended.borrow() == [1, 2];
            assert_eq!(second.is_err(), is_second, "seed {seed}");
            u32::from(is_second)
        });
    }
    assert!((1..20).contains(&were_second), "{were_second} of 20");
}
