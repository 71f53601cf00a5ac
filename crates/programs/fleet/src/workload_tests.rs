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
fn hot_spots_get_their_share() {
    let spec = CellSpec {
        distribution: Some("90/10:5/20".parse().unwrap()),
        base_offset_bytes: 1 << 20,
        threads: 2,
        ..spec()
    };
    let mut workload = Workload::new(&spec, 0, 1000 * 4096);
    let mut hits = [0; 3];
    for index in 0..20_000 {
        let io = workload.next(index % 2).unwrap();
        let place = (io.offset - (1 << 20)) / 4096;
        hits[if place < 100 {
            0
        } else if place < 300 {
            1
        } else {
            2
        }] += 1;
        assert!(place < 1000);
    }
    assert!((17_800..18_200).contains(&hits[0]), "{hits:?}");
    assert!((850..1150).contains(&hits[1]) && (850..1150).contains(&hits[2]), "{hits:?}");
}

#[test]
fn a_working_set_smaller_than_its_parts_is_still_hit_inside() {
    let spec = CellSpec { distribution: Some("50/1:50/1".parse().unwrap()), ..spec() };
    let mut workload = Workload::new(&spec, 0, 3 * 4096);
    let offsets: Vec<u64> = (0..100).map(|_| workload.next(0).unwrap().offset).collect();
    assert!(offsets.iter().all(|offset| *offset < 3 * 4096 && offset.is_multiple_of(4096)), "{offsets:?}");
}

#[test]
fn some_ios_go_anywhere_and_the_others_follow() {
    for random_percent in [0, 20, 50, 100] {
        let spec = CellSpec { random_percent: Some(random_percent), ..spec() };
        let mut workload = Workload::new(&spec, 0, 1_000_000 * 4096);
        let offsets: Vec<u64> = (0..10_000).map(|_| workload.next(0).unwrap().offset).collect();
        let jumps = offsets.windows(2).filter(|pair| pair[1] != pair[0] + 4096).count();
        let expected = 100 * usize::from(random_percent);
        assert!(jumps.abs_diff(expected) < 250, "{jumps} at {random_percent} %");
    }
}

#[test]
fn threads_begin_a_walk_as_far_apart_as_they_are_told() {
    let first = |thread_stride_bytes: Option<u64>| {
        let spec = CellSpec { pattern: Pattern::Sequential, threads: 4, thread_stride_bytes, ..spec() };
        let mut workload = Workload::new(&spec, 0, 64 * 4096);
        [0, 1, 2, 3].map(|thread| workload.next(thread).unwrap().offset / 4096)
    };
    assert_eq!(first(None), [0, 16, 32, 48]);
    assert_eq!(first(Some(0)), [0, 0, 0, 0]);
    assert_eq!(first(Some(8192)), [0, 2, 4, 6]);
    assert_eq!(first(Some(30 * 4096)), [0, 30, 60, 26]);
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
