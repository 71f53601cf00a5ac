use super::*;

#[test]
fn memory_is_aligned_and_returns_to_the_pool() {
    let pool = BufferPool::new(1 << 20);
    let mut buffer = pool.take(5000);
    assert_eq!(buffer.len(), 5000);
    assert_eq!(buffer.as_ptr().addr() % BLOCK_BYTES, 0);
    buffer.fill(7);
    let shared = buffer.freeze();
    let slice = shared.slice(4096..5000);
    drop(shared);
    assert_eq!(pool.idle_bytes(), 0, "a slice keeps the memory alive");
    assert!(slice.iter().all(|byte| *byte == 7));
    drop(slice);
    assert_eq!(pool.idle_bytes(), 8192);
    assert!(pool.take_zeroed(8192).iter().all(|byte| *byte == 0));
    assert_eq!(pool.idle_bytes(), 8192);
}

#[test]
fn the_pool_keeps_to_its_limit() {
    let pool = BufferPool::new(8192);
    let held: Vec<_> = (0..4).map(|_| pool.take(4096)).collect();
    drop(held);
    assert_eq!(pool.idle_bytes(), 8192);
    drop(pool.take(4 << 20));
    assert_eq!(pool.idle_bytes(), 8192, "very large buffers are not kept");
}

#[test]
fn a_buffer_outlives_its_pool() {
    let buffer = BufferPool::new(4096).copy_of(b"still here").freeze();
    assert_eq!(&buffer[..], b"still here");
}

#[test]
fn into_mut_copies_only_when_shared() {
    let pool = BufferPool::default();
    let first = pool.copy_of(b"abc").freeze();
    let second = first.clone();
    let mut changed = first.into_mut(&pool);
    changed[0] = b'x';
    assert_eq!(&second[..], b"abc");
    let address = second.as_ptr();
    assert_eq!(second.into_mut(&pool).as_ptr(), address);
}
