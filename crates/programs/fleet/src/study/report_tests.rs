use super::super::cluster::{CapacityMedia, SimulatedMedia};
use super::super::comparison::Round;
use super::super::shape::Goal;
use super::super::testing::row;
use super::*;

fn report() -> StudyReport {
    let rows = vec![row("no cache", CacheMode::Off, 1000), row("read-write", CacheMode::ReadWrite, 1500)];
    StudyReport {
        study: "cache".to_owned(),
        clusters: vec![StudyClusterSpec {
            nodes: 4,
            drives: 2,
            drive_size_bytes: 512 << 20,
            cache_drive_size_bytes: Some(256 << 20),
            media: Some(SimulatedMedia { capacity_media: CapacityMedia::Ssd, scale: 0.02 }),
        }],
        clients: 4,
        tables: vec![StudyTable { title: "Reads".to_owned(), rows_are: "mode".to_owned(), rows }],
        comparisons: Vec::new(),
        shapes: vec![Shape::judge("reads", Some(1.5), Goal::AtLeast(1.3))],
        took_seconds: 61.2,
    }
}

#[test]
fn people_read_tables_shapes_and_how_busy_the_machine_was() {
    let expected = "\
NVMe in front of SATA SSDs: 4 nodes, each with 2 drives of 512 MiB like SATA SSDs and one of 256 MiB like NVMe, at 0.02 of their speed

Reads
mode         IOPS   ratio  mean us  MiB/s  from cache  machine busy  by study
no cache    1,000  1.00 x    4,000    3.9        75 %          30 %      25 %
read-write  1,500  1.50 x    2,667    5.9        75 %          30 %      25 %

HOLDS  1.50 x  (at least 1.30)  reads

4 clients; the machine's 2 cores were busy up to 30 %, this study alone 25 %; all of it took 1 min 1 s
";
    assert_eq!(report().table(), expected);
}

#[test]
fn a_busy_machine_is_warned_of() {
    let mut report = report();
    report.tables[0].rows[1].machine.busy_percent = Some(50.0);
    assert!(!report.table().contains("warning"), "{}", report.table());
    report.tables[0].rows[1].machine.busy_percent = Some(51.0);
    assert!(report.table().contains("others kept it busy"), "{}", report.table());
    report.tables[0].rows[0].usage.busy_cores = Some(1.1);
    assert!(report.table().contains("a smaller --media-scale"), "{}", report.table());
}

#[test]
fn failures_are_told_and_count_for_nothing() {
    let mut report = report();
    let row = &mut report.tables[0].rows[0];
    assert!(row.iops().is_some() && row.mib_per_second().is_some());
    row.cell.errors = 3;
    assert_eq!((row.iops(), row.mib_per_second()), (None, None));
    let text = report.table();
    assert!(text.contains("Reads, no cache: 3 I/Os failed"), "{text}");
    assert!(text.contains("read-write  1,500      -"), "there is nothing to compare with: {text}");
}

#[test]
fn what_was_not_steady_is_told() {
    let mut report = report();
    report.tables[0].rows[1].is_steady = false;
    report.tables[0].rows[0].are_caches_settled = false;
    let text = report.table();
    assert!(text.contains("Reads, read-write: it was not steady yet when it was measured"), "{text}");
    assert!(text.contains("Reads, no cache: the caches were not settled yet when it was measured"), "{text}");
}

#[test]
fn all_must_hold_and_something_must_be_expected() {
    let mut report = report();
    assert!(report.all_hold());
    report.shapes.push(Shape::judge("writes", None, Goal::AtLeast(1.5)));
    assert!(!report.all_hold());
    report.shapes.clear();
    assert!(!report.all_hold());
}

#[test]
fn clusters_are_told_by_what_they_have() {
    let mut report = report();
    let mut told = |media, cache_drive_size_bytes| {
        report.clusters[0].media = media;
        report.clusters[0].cache_drive_size_bytes = cache_drive_size_bytes;
        describe_cluster(&report.clusters[0])
    };
    let disks = Some(SimulatedMedia { capacity_media: CapacityMedia::Hdd, scale: 0.3 });
    assert_eq!(told(None, None), "Memory: 4 nodes, each with 2 drives of 512 MiB");
    let cached = "Memory in front of memory: 4 nodes, each with 2 drives of 512 MiB and one of 64 MiB";
    assert_eq!(told(None, Some(64 << 20)), cached);
    let alone = "disks: 4 nodes, each with 2 drives of 512 MiB like disks, at 0.3 of their speed";
    assert_eq!(told(disks, None), alone);
}

#[test]
fn comparisons_are_told_with_what_to_mind() {
    let mut report = report();
    let (mut base, mut row) = (row("without", CacheMode::Off, 1000), row("with", CacheMode::Off, 1000));
    base.machine.busy_percent = Some(80.0);
    row.cell.errors = 3;
    let rounds = vec![Round { base, row }];
    report.comparisons = vec![Comparison { title: "Writes".to_owned(), rounds }];
    let text = report.table();
    for part in
        ["busy up to 80 %", "Writes, with: 3 I/Os failed", "warning: the machine was busy", "others used"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    report.clusters[0].media = None;
    assert!(!report.table().contains("the machine was busy more"), "the processor is what is measured");
    report.comparisons[0].rounds[0].base.machine.busy_percent = Some(50.0);
    assert!(!report.table().contains("warning"), "25 % were the study's own, and others disturb little");
    assert_eq!(StudyReport::from_json(&report.json()).unwrap(), report);
}

#[test]
fn programs_read_all_of_it() {
    let report = report();
    assert_eq!(StudyReport::from_json(&report.json()).unwrap(), report);
}
