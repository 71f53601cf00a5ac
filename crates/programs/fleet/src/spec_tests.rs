use super::*;

#[test]
fn the_default_is_valid() {
    assert_eq!(CellSpec::default().validate(), Ok(()));
}

#[test]
fn threads_of_a_sequential_walk_are_apart() {
    let walk = CellSpec {
        pattern: Pattern::Sequential,
        threads: 4,
        working_set_bytes: Some(1 << 20),
        ..CellSpec::default()
    };
    assert_eq!(walk.thread_stride(), 256 << 10);
    assert_eq!(CellSpec { thread_stride_bytes: Some(4096), ..walk.clone() }.thread_stride(), 4096);
    for alone in [
        CellSpec { threads: 1, ..walk.clone() },
        CellSpec { pattern: Pattern::Interlocked, ..walk.clone() },
        CellSpec { pattern: Pattern::Random, ..walk },
    ] {
        assert_eq!(alone.thread_stride(), 0);
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let good = CellSpec::default;
    let sequential = || CellSpec { pattern: Pattern::Sequential, ..good() };
    let hot = |text: &str| Some(text.parse().unwrap());
    let cases: [(CellSpec, &str, &str); 23] = [
        (CellSpec { block_size_bytes: 0, ..good() }, "block size of 0 B", "512"),
        (CellSpec { block_size_bytes: 1000, ..good() }, "block size of 1000 B", "512"),
        (CellSpec { block_size_bytes: 64 << 20, ..good() }, "block size of 64 MiB", "32 MiB"),
        (CellSpec { alignment_bytes: Some(0), ..good() }, "alignment of 0 B", "512"),
        (CellSpec { alignment_bytes: Some(100), ..good() }, "alignment of 100 B", "512"),
        (CellSpec { working_set_bytes: Some(512), ..good() }, "working set of 512 B", "4 KiB"),
        (CellSpec { working_set_bytes: Some(4097), ..good() }, "working set", "whole sectors"),
        (CellSpec { write_source_bytes: 512, ..good() }, "write source of 512 B", "4 KiB"),
        (CellSpec { write_source_bytes: 2 << 30, ..good() }, "write source of 2 GiB", "memory"),
        (CellSpec { random_percent: Some(101), ..good() }, "101 % random", "anywhere"),
        (CellSpec { random_percent: Some(50), ..sequential() }, "of a sequential pattern", "anywhere"),
        (CellSpec { distribution: hot("90/10"), ..sequential() }, "90/10 of a sequential", "random I/Os"),
        (
            CellSpec { distribution: hot("abs90/1M"), working_set_bytes: Some(1 << 20), ..good() },
            "on that working set",
            "together",
        ),
        (CellSpec { thread_stride_bytes: Some(4096), ..good() }, "thread stride", "sequential walk"),
        (CellSpec { thread_stride_bytes: Some(100), ..sequential() }, "thread stride", "whole sectors"),
        (CellSpec { base_offset_bytes: 100, ..good() }, "base offset", "512"),
        (CellSpec { threads: 0, ..good() }, "without I/Os", "0 threads"),
        (CellSpec { outstanding: 0, ..good() }, "without I/Os", "0 outstanding"),
        (CellSpec { threads: 100, outstanding: 100, ..good() }, "10000 I/Os in flight", "4096"),
        (CellSpec { write_percent: 101, ..good() }, "101 % writes", "share"),
        (CellSpec { load_threads: 0, ..good() }, "0 load threads", "at least one"),
        (CellSpec { duration: Duration::ZERO, ..good() }, "no duration", "rates"),
        (CellSpec { warmup: Duration::from_secs(10_000_000), ..good() }, "a week", "unit"),
    ];
    for (spec, what, why) in cases {
        let error = spec.validate().unwrap_err();
        assert_eq!(error.code, "FLEET_LOAD_INVALID");
        assert!(error.what.contains(what) && error.why.contains(why), "{error}");
        assert!(!error.next.is_empty());
    }
    let endless = CellSpec { threads: u32::MAX, outstanding: u32::MAX, ..good() };
    assert!(endless.validate().is_err());
}

#[test]
fn patterns_have_names_and_letters() {
    for (name, letters, pattern) in [
        ("random", "r", Pattern::Random),
        ("sequential", "s", Pattern::Sequential),
        ("interlocked", "si", Pattern::Interlocked),
    ] {
        assert_eq!(name.parse(), Ok(pattern));
        assert_eq!(letters.parse(), Ok(pattern));
    }
    assert!("rs".parse::<Pattern>().unwrap_err().contains("interlocked (si)"));
}
