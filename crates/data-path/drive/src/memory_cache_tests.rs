use spandrel_platform::BufferPool;

use super::*;

fn block(content: u8) -> Buffer {
    BufferPool::default().copy_of(&[content; 4096]).freeze()
}

#[test]
fn what_is_kept_is_found_until_it_is_dropped() {
    let mut cache = MemoryCache::new(4);
    cache.keep(7, block(1));
    cache.keep(9, block(2));
    assert_eq!(cache.get(7).map(|data| data[0]), Some(1));
    assert_eq!(cache.get(9).map(|data| data[0]), Some(2));
    cache.drop_copy(7);
    cache.drop_copy(8);
    assert!(cache.get(7).is_none() && cache.get(9).is_some());
    // Another content of the same block.
    cache.keep(7, block(3));
    assert_eq!((cache.get(7).map(|data| data[0]), cache.count()), (Some(3), 2));
}

#[test]
fn there_are_never_more_than_there_is_room_for_and_what_is_read_often_stays() {
    let mut cache = MemoryCache::new(50);
    for number in 0..10 {
        cache.keep(number, block(number as u8));
    }
    for _ in 0..3 {
        (0..10).for_each(|number| assert!(cache.get(number).is_some()));
    }
    for number in 100..1000 {
        cache.keep(number, block(0));
        assert!(cache.count() <= cache.room_blocks());
    }
    assert_eq!(cache.count(), 50);
    assert!((0..10).all(|number| cache.get(number).is_some_and(|data| data[0] == number as u8)));
}
