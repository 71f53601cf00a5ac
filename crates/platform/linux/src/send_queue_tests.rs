use spandrel_platform::BufferPool;

use super::*;

fn gathered(queue: &SendQueue, slices: usize) -> Vec<Vec<u8>> {
    let mut storage = vec![IoSlice::new(&[]); slices];
    let (count, bytes) = queue.gather(&mut storage);
    let content: Vec<Vec<u8>> = storage[..count].iter().map(|slice| slice.to_vec()).collect();
    assert_eq!(bytes, content.iter().map(Vec::len).sum::<usize>());
    content
}

#[test]
fn heads_merge_and_bodies_go_by_reference() {
    let pool = BufferPool::default();
    let body = pool.copy_of(b"body").freeze();
    let mut queue = SendQueue::default();
    queue.push(b"one", &[]);
    queue.push(b"two", std::slice::from_ref(&body));
    queue.push(b"three", &[]);
    assert_eq!(queue.bytes(), 15);
    let expected: [&[u8]; 3] = [b"onetwo", b"body", b"three"];
    assert_eq!(gathered(&queue, 8), expected);

    let mut storage = [IoSlice::new(&[]); 3];
    queue.gather(&mut storage);
    assert_eq!(storage[1].as_ptr(), body.as_ptr(), "the body is not copied");
    assert_eq!(gathered(&queue, 2).len(), 2, "no more slices than asked for");
}

/// Any mixture of pushes and partial sends yields the bytes in their order.
#[test]
fn partial_sends_lose_and_repeat_nothing() {
    let pool = BufferPool::default();
    let mut state = 0x9e37_79b9_u32;
    let mut random = |limit: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % limit) as usize
    };
    let mut queue = SendQueue::default();
    let (mut pushed, mut sent) = (Vec::new(), Vec::new());
    for step in 0..4000_usize {
        let fill = u8::try_from(step % 251).unwrap();
        let head = vec![fill; random(400)];
        let body = pool.copy_of(&vec![fill ^ 0xff; random(3000)]).freeze();
        let parts = [body.slice(0..body.len() / 2), body.slice(body.len() / 2..body.len())];
        queue.push(&head, &parts);
        pushed.extend_from_slice(&head);
        pushed.extend_from_slice(&body);
        // Sends less than what comes in at first, so that a backlog builds up, and more later.
        let offered = gathered(&queue, 1 + random(6)).concat();
        let count = if step < 2000 { random(1000).min(offered.len()) } else { offered.len() };
        sent.extend_from_slice(&offered[..count]);
        queue.consume(count);
        assert_eq!(queue.bytes(), pushed.len() - sent.len());
        assert!(queue.staging_sent < COMPACT_BYTES_MIN.max(queue.staging.len() / 2 + 1));
    }
    while !queue.is_empty() {
        let offered = gathered(&queue, 64).concat();
        sent.extend_from_slice(&offered);
        queue.consume(offered.len());
    }
    assert!(sent == pushed);
    assert_eq!((queue.staging.len(), queue.staging_sent, queue.pieces.len()), (0, 0, 0));
}
