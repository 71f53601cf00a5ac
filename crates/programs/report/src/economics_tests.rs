use spandrel_results::{Load, Measurement};

use super::*;

fn run() -> MeasuredRun {
    MeasuredRun { vms: Some(320), nodes: Some(4), drives: Some(32), ..MeasuredRun::default() }
}

fn cell() -> MeasuredCell {
    let load = Load {
        block_size_bytes: 4096,
        pattern: "random".to_owned(),
        threads: 1,
        write_percent: 100,
        outstanding: 4,
    };
    let measured = Measurement {
        iops: Some(625_000.0),
        drive_write_mib_per_second: Some(640.0),
        ..Measurement::default()
    };
    MeasuredCell { load, measurements: vec![measured] }
}

/// As Micron's reference architecture with SATA drives has it: 3,500 TB in five years are 22.2 MB a second all day.
#[test]
fn a_warranty_allows_the_more_the_fewer_hours_a_load_lasts() {
    let economics = Economics { drive_endurance_tbw: Some(3500.0), ..Economics::default() };
    for (hours, mb) in [(24, 22.2), (12, 44.4), (8, 66.6)] {
        let mib = economics.warranty_mib_per_second(hours).expect("an endurance was given");
        assert!((mib * MIB / 1e6 - mb).abs() < 0.05, "{hours} h: {mib} MiB/s");
    }
    let twice = Economics { warranty_years: Some(2.5), ..economics };
    let ratio = twice
        .warranty_mib_per_second(8)
        .zip(economics.warranty_mib_per_second(8))
        .map(|(one, other)| one / other);
    assert_eq!(ratio, Some(2.0));
    assert_eq!(Economics::default().warranty_mib_per_second(24), None);
}

/// As HPE's paper has it: 19,800 dollars for each of four nodes, and 625,000 I/Os a second.
#[test]
fn prices_are_those_of_all_nodes() {
    let economics =
        Economics { node_price: Some(19_800.0), node_rack_units: Some(2.0), ..Economics::default() };
    let price = economics.price_per_iops(&run(), &cell()).expect("all is known");
    assert!((price - 0.12672).abs() < 1e-9, "{price}");
    assert_eq!(economics.vms_per_rack_unit(&run()), Some(40.0));
    assert_eq!(
        economics.price_per_iops(&MeasuredRun::default(), &cell()),
        None,
        "nobody says how many nodes"
    );
    assert_eq!(Economics::default().price_per_iops(&run(), &cell()), None);
}

#[test]
fn drives_share_what_is_written_and_what_is_under_way() {
    assert_eq!(writes_of_a_drive(&run(), &cell()), Some(20.0));
    assert_eq!(expected_queue(&run(), &cell()), Some(40.0));
}
