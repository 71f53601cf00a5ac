use spandrel_platform::BufferPool;

use super::*;
use crate::Random;

#[test]
fn keeps_all_bytes_in_order_however_it_is_cut() {
    let random = Random::new(2);
    let pool = BufferPool::default();
    for _ in 0..200 {
        let mut queue = ByteQueue::default();
        let mut expected: VecDeque<u8> = VecDeque::new();
        for _ in 0..60 {
            let bytes: Vec<u8> = (0..random.below(50)).map(|_| random.next_u64() as u8).collect();
            match random.below(4) {
                0 => {
                    queue.push_copy(&bytes);
                    expected.extend(&bytes);
                }
                1 => {
                    queue.push_shared(pool.copy_of(&bytes).freeze());
                    expected.extend(&bytes);
                }
                2 => {
                    let mut front = queue.split_front(random.below(70) as usize);
                    assert_eq!(front.len() + queue.len(), expected.len());
                    front.append(queue);
                    queue = front;
                }
                _ => {
                    let mut into = vec![0; random.below(70) as usize];
                    let count = queue.read(&mut into);
                    assert_eq!(count, into.len().min(expected.len()));
                    assert!(into[..count].iter().copied().eq(expected.drain(..count)));
                }
            }
            assert_eq!(queue.len(), expected.len());
            assert!(queue.parts.iter().all(|part| !part.range.is_empty()));
            assert_eq!(queue.is_empty(), expected.is_empty());
        }
    }
}

#[test]
fn the_digest_shows_a_changed_byte() {
    let of = |bytes: &[u8]| {
        let mut queue = ByteQueue::default();
        queue.push_copy(bytes);
        queue.digest()
    };
    assert_eq!(of(b"abc"), of(b"abc"));
    assert_ne!(of(b"abc"), of(b"abd"));
}
