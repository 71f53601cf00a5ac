use std::time::Duration;

use spandrel_platform::Platform;
use spandrel_platform_simulated::{OpenDrive, Repeat};
use spandrel_shared::{BLOCK_BYTES, DriveId};

use super::*;
use crate::cache_drive::CacheDrive;
use crate::test_support::cached::{CachedMachine, open_cache};
use crate::test_support::drive_config;
use crate::test_support::machine::open;
use crate::test_support::small_slabs;

const AREA_CHUNKS: u64 = 4;

/// A capacity drive, and an area of which the chunks do not all lie side by side.
async fn media<P: Platform<Drive = OpenDrive>>(
    platform: &P,
    capacity: OpenDrive,
    cache: OpenDrive,
) -> Media<OpenDrive> {
    let cache = CacheDrive::attach(platform, cache, 0).await.unwrap();
    let drive = |number: u8| DriveId::from_bytes([number; 16]);
    for number in 1..=4 {
        cache.bind(drive(number), 1).await.unwrap();
    }
    cache.unbind(drive(1)).await.unwrap();
    cache.unbind(drive(3)).await.unwrap();
    let area = cache.bind(drive(9), AREA_CHUNKS as u32).await.unwrap();
    let layout = Layout::for_drive(24 << 20, 512, small_slabs()).unwrap();
    Media::new(capacity, Some(area), &layout, platform.buffers().clone())
}

#[test]
fn an_area_is_one_space_of_bytes_behind_the_capacity_drive() {
    CachedMachine::formatted(1, drive_config(24)).run(|platform| async move {
        let media = media(&platform, open(&platform).await, open_cache(&platform).await).await;
        let (first, bytes) = (24 << 20, AREA_CHUNKS as usize * 64 * BLOCK_BYTES);
        let mut content = platform.buffers().take(bytes);
        for (number, block) in content.chunks_mut(BLOCK_BYTES).enumerate() {
            block.fill(number as u8);
        }
        let content = content.freeze();
        // In parts that end elsewhere than chunks do.
        let parts = (0..bytes).step_by(24 * BLOCK_BYTES);
        let parts = parts.map(|start| content.slice(start..bytes.min(start + 24 * BLOCK_BYTES)));
        media.write(first, parts.collect()).await.unwrap();
        for (start, count) in [(0, 256), (63, 2), (60, 70), (255, 1), (1, 3)] {
            let offset = first + (start * BLOCK_BYTES) as u64;
            let read = media.read(offset, platform.buffers().take(count * BLOCK_BYTES)).await.unwrap();
            assert_eq!(
                read[..],
                content[start * BLOCK_BYTES..(start + count) * BLOCK_BYTES],
                "{count} from {start} on"
            );
        }
        media.write(0, vec![content.slice(BLOCK_BYTES..2 * BLOCK_BYTES)]).await.unwrap();
        let read = media.read(0, platform.buffers().take(BLOCK_BYTES)).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 1), "the capacity drive comes first");
    });
}

#[test]
fn only_what_was_written_is_flushed_and_what_is_being_flushed_is_not_taken_for_durable() {
    let cached = CachedMachine::formatted(1, drive_config(24));
    let drives = [cached.machine.drive.clone(), cached.cache.clone()];
    cached.run(|platform| async move {
        let media = media(&platform, open(&platform).await, open_cache(&platform).await).await;
        let flushes = || drives.each_ref().map(|drive| drive.counters().flushes);
        let block = |media: Media<OpenDrive>, offset| {
            let data = platform.buffers().take_zeroed(BLOCK_BYTES).freeze();
            async move { media.write(offset, vec![data]).await.unwrap() }
        };
        let before = flushes();
        assert_eq!(media.flush(Flushed::All).await, Ok(0));
        block(media.clone(), 24 << 20).await;
        assert_eq!(media.flush(Flushed::All).await, Ok(1));
        assert_eq!(flushes(), [before[0], before[1] + 1]);
        block(media.clone(), 1 << 20).await;
        block(media.clone(), 24 << 20).await;
        assert_eq!((media.flush(Flushed::All).await, media.needs_flush(Flushed::All)), (Ok(2), false));
        block(media.clone(), 1 << 20).await;
        let (one, other) = futures_util::future::join(media.flush(Flushed::All), async {
            platform.sleep(Duration::from_micros(1)).await;
            (media.flush(Flushed::All).await, media.needs_flush(Flushed::All))
        })
        .await;
        assert_eq!((one, other), (Ok(1), (Ok(0), false)), "it waited for the first one");
        assert_eq!(media.flush(Flushed::All).await, Ok(0));
    });
}

/// Those who come while a flush is under way are not served by it, but by the next one, together.
#[test]
fn whoever_waits_for_a_flush_shares_the_next_one() {
    let cached = CachedMachine::formatted(1, drive_config(24));
    let drive = cached.machine.drive.clone();
    let flushes = drive.counters().flushes;
    let made = cached.run(|platform| async move {
        let media = media(&platform, open(&platform).await, open_cache(&platform).await).await;
        let write_and_flush = |number: u64| {
            let (media, content) = (media.clone(), platform.buffers().take(BLOCK_BYTES).freeze());
            async move {
                media.write(number * BLOCK_BYTES as u64, vec![content]).await.unwrap();
                media.flush(Flushed::Capacity).await.unwrap()
            }
        };
        join_all((0..64).map(write_and_flush)).await.into_iter().sum::<u64>()
    });
    assert_eq!(made, drive.counters().flushes - flushes);
    assert!((2..32).contains(&made), "{made} flushes for 64 writes");
}

#[test]
fn it_is_known_whether_the_cache_drive_has_failed() {
    let cached = CachedMachine::formatted(1, drive_config(24));
    let (cache, capacity) = (cached.cache.clone(), cached.machine.drive.clone());
    cached.run(|platform| async move {
        let media = media(&platform, open(&platform).await, open_cache(&platform).await).await;
        let block = || vec![platform.buffers().take(BLOCK_BYTES).freeze()];
        capacity.fail_writes(.., Repeat::Once);
        media.write(0, block()).await.unwrap_err();
        assert!(!media.has_area_failed(), "it is the capacity drive that has");
        media.write(24 << 20, block()).await.unwrap();
        assert!(!media.has_area_failed());
        cache.fail_flushes(Repeat::Once);
        media.flush(Flushed::Area).await.unwrap_err();
        assert!(media.has_area_failed(), "what has failed then may be missing now");
    });
}
