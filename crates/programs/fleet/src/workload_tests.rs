use super::*;

fn spec() -> CellSpec {
    CellSpec::default()
}

#[test]
fn every_place_can_be_hit_and_none_outside() {
    let spec = CellSpec { block_size_bytes: 8192, alignment_bytes: Some(4096), ..spec() };
    // Ten blocks of 4 KiB and a rest: the last I/O may begin at block 8.
    let mut workload = Workload::new(&spec, 0, 10 * 4096 + 512);
    let mut hits = [0; 9];
    for _ in 0..9000 {
        let io = workload.next(0).unwrap();
        assert_eq!(io.length, 8192);
        assert!(io.offset.is_multiple_of(4096));
        hits[(io.offset / 4096) as usize] += 1;
    }
    assert!(hits.iter().all(|hits| (850..1150).contains(hits)), "{hits:?}");
}

#[test]
fn a_volume_of_one_block_is_hit_again_and_again() {
    for pattern in [Pattern::Random, Pattern::Sequential, Pattern::Interlocked] {
        let mut workload = Workload::new(&CellSpec { pattern, threads: 2, ..spec() }, 0, 4096);
        for thread in [0, 1, 0, 0] {
            assert_eq!(workload.next(thread).unwrap().offset, 0);
        }
    }
}

#[test]
fn clients_and_threads_differ() {
    let offsets = |client: usize, thread: usize| {
        let mut workload = Workload::new(&CellSpec { threads: 2, ..spec() }, client, 1 << 30);
        [0; 4].map(|_| workload.next(thread).unwrap().offset)
    };
    let all = [offsets(0, 0), offsets(0, 1), offsets(1, 0), offsets(1, 1)];
    for (index, one) in all.iter().enumerate() {
        assert!(all[index + 1..].iter().all(|other| other != one), "{all:?}");
    }
}

#[test]
fn a_pass_ends() {
    for (write_percent, is_write) in [(100, true), (0, false)] {
        let spec = CellSpec { block_size_bytes: 4096, write_percent, ..spec() };
        let mut workload = Workload::pass(&spec, 0, 2 * 4096 + 512);
        let all: Vec<Io> = std::iter::from_fn(|| workload.next(0)).collect();
        let expected = [(0, 4096), (4096, 4096), (8192, 512)];
        assert_eq!(all, expected.map(|(offset, length)| Io { is_write, offset, length }));
        assert_eq!(workload.next(0), None);
    }
}
