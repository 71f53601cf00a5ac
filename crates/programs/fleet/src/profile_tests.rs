use super::*;

fn plan(name: &str, changes: Changes) -> RunPlan {
    Profile::find(name).unwrap().plan(&changes).unwrap()
}

#[test]
fn every_profile_that_is_shipped_can_be_planned() {
    for name in Profile::shipped() {
        let open = Changes { block_sizes_bytes: vec![4096], write_percents: vec![30], ..Changes::default() };
        let plan = plan(name, open);
        assert_eq!(plan.profile, name);
        assert!(!plan.title.is_empty() && !plan.source.is_empty());
        assert!(plan.volume_bytes() >= 5 << 30 && plan.duration() >= Duration::from_secs(60), "{name}");
    }
}

#[test]
fn the_sweeps_are_those_of_the_reference_architectures() {
    let minutes = |count: u64| Duration::from_secs(count * 60);
    let small = plan("micron-nvme-4k", Changes::default());
    assert_eq!((small.vms, small.repeat, small.cells.len()), (256, 5, 16));
    let first = &small.cells[0];
    assert_eq!((first.write_percent, first.outstanding, first.block_size_bytes), (0, 1, 4096));
    assert_eq!((first.warmup, first.duration, first.cooldown), (minutes(5), minutes(2), minutes(5)));
    assert_eq!(first.working_set_bytes, Some(16 << 30));
    let large = plan("micron-sata-128k", Changes::default());
    assert_eq!((large.vms, large.cells.len(), large.cells[0].warmup), (320, 8, minutes(90)));
    let capped = plan("pt-epyc", Changes::default());
    assert_eq!((capped.vms, capped.repeat, capped.iops_max, capped.cells.len()), (192, 3, Some(1100), 1));
    let cell = &capped.cells[0];
    assert_eq!((cell.threads, cell.outstanding, cell.write_percent), (2, 16, 10));
    assert_eq!(plan("micron-brief-4k", Changes::default()).cells.len(), 30);
    let walk = plan("micron-brief-seq", Changes::default());
    assert_eq!((walk.cells.len(), walk.cells[0].pattern), (24, Pattern::Interlocked));
    let intel = plan("Intel-8k-70-30", Changes::default());
    assert_eq!(
        (intel.cells[0].threads, intel.cells[0].outstanding, intel.cells[0].write_percent),
        (4, 32, 30)
    );
}

#[test]
fn what_is_scaled_is_said() {
    let changes = Changes { time_scale: 0.02, data_scale: 0.002, vms: Some(16), ..Changes::default() };
    let scaled = plan("micron-sata-4k", changes);
    let cell = &scaled.cells[0];
    assert_eq!((cell.warmup, cell.duration), (Duration::from_millis(3600), Duration::from_millis(2400)));
    assert_eq!(cell.working_set_bytes.unwrap() / (1 << 20), 32);
    assert!(cell.working_set_bytes.unwrap().is_multiple_of(512));
    assert_eq!(scaled.scales().unwrap(), "times × 0.02, data × 0.002");
    assert_eq!(scaled.vms, 16);
    assert_eq!(plan("micron-sata-4k", Changes::default()).scales(), None);
}

/// What is counted in bytes within the working set is scaled with it, to whole blocks.
#[test]
fn places_within_the_working_set_are_scaled_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let places = "[[sweep]]\ndistribution = \"abs90/1G:5/2G\"\nbase_offset = \"5G\"";
    std::fs::write(&path, SHIPPED[0].1.replace("[[sweep]]", places)).unwrap();
    let scaled = |data_scale: f64| plan(path.to_str().unwrap(), Changes { data_scale, ..Changes::default() });
    let cell = &scaled(0.002).cells[0];
    assert_eq!(cell.base_offset_bytes, (5_u64 << 30) / 500 / 4096 * 4096);
    let spots: Vec<u64> = (1..=2_u64).map(|gib| (gib << 30) / 500 / 4096 * 4096).collect();
    assert_eq!(cell.distribution, Some(format!("abs90/{}:5/{}", spots[0], spots[1]).parse().unwrap()));
    assert_eq!(scaled(1.0).cells[0].distribution, Some("abs90/1G:5/2G".parse().unwrap()));

    let walk = "[[sweep]]\nthread_stride = \"1M\"";
    let text = SHIPPED[0].1.replace("[[sweep]]", walk).replace("\"random\"", "\"sequential\"");
    std::fs::write(&path, text).unwrap();
    assert_eq!(scaled(0.002).cells[0].thread_stride_bytes, Some(4096), "not less than a block");
    assert_eq!(scaled(0.5).cells[0].thread_stride_bytes, Some(512 << 10));
    assert_eq!(scaled(1.0).cells[0].thread_stride_bytes, Some(1 << 20));
    let large = Changes { data_scale: 0.002, block_sizes_bytes: vec![128 << 10], ..Changes::default() };
    assert_eq!(
        plan(path.to_str().unwrap(), large).cells[0].thread_stride_bytes,
        Some(128 << 10),
        "not less than an I/O"
    );
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    let open = Changes { block_sizes_bytes: vec![8192], write_percents: vec![0, 30], ..Changes::default() };
    let plan = plan("general", open);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<RunPlan>(&text).unwrap(), plan);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_do() {
    let refused = |name: &str, changes: Changes| {
        Profile::find(name).and_then(|profile| profile.plan(&changes)).unwrap_err()
    };
    let error = refused("micron", Changes::default());
    assert_eq!(error.code, "FLEET_PROFILE_UNKNOWN");
    assert!(error.why.contains("micron-nvme-4k, micron-nvme-128k"), "{error}");
    assert!(refused("/nowhere/mine.toml", Changes::default()).why.contains("No such file"));
    assert!(refused("peak", Changes::default()).what.contains("--block-size"));
    let blocks = Changes { block_sizes_bytes: vec![4096], ..Changes::default() };
    assert!(refused("peak", blocks).what.contains("--write-percent"));
    let tiny = Changes { data_scale: 1e-7, ..Changes::default() };
    assert!(refused("micron-nvme-128k", tiny).next.contains("--data-scale"));
    for time_scale in [0.0, -1.0, f64::NAN, 1e9] {
        assert!(
            refused("micron-nvme-4k", Changes { time_scale, ..Changes::default() })
                .what
                .contains("time scale")
        );
    }
    for changes in [
        Changes { vms: Some(0), ..Changes::default() },
        Changes { repeat: Some(0), ..Changes::default() },
        Changes { outstanding: vec![5000], ..Changes::default() },
    ] {
        assert_eq!(refused("micron-nvme-4k", changes).code, "FLEET_LOAD_INVALID");
    }
}

#[test]
fn a_file_of_ones_own_is_read_and_its_mistakes_are_told_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let text = SHIPPED[0].1.replace("repeat = 5", "repeat = 2");
    std::fs::write(&path, &text).unwrap();
    let profile = Profile::find(path.to_str().unwrap()).unwrap();
    assert_eq!((profile.name.as_str(), profile.repeat), ("mine", 2));
    for (mistake, why) in [
        (text.replace("vms", "clients"), "clients"),
        (text.replace("\"16G\"", "\"16X\""), "no size"),
        (text.replace("\"5m\"", "\"soon\""), "no time"),
        (text.replace("\"random\"", "\"zigzag\""), "zigzag"),
        (text.replace("[0, 10, 30, 100]", "[0, 300]"), "300"),
        (text.replace("[[sweep]]", "[[sweep]"), "line"),
    ] {
        std::fs::write(&path, mistake).unwrap();
        let error = Profile::find(path.to_str().unwrap()).unwrap_err();
        assert_eq!(error.code, "FLEET_PROFILE_BROKEN");
        assert!(error.why.contains(why), "{error}");
    }
}
