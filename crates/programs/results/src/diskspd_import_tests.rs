use super::*;

/// As DISKSPD writes it, of one thread with two targets, shortened: of the percentiles a few are here.
const SAMPLE: &str = include_str!("diskspd_sample.xml");

fn read(texts: &[String]) -> Result<MeasuredRun, Error> {
    let files: Vec<(&Path, String)> =
        texts.iter().map(|text| (Path::new("sample.xml"), text.clone())).collect();
    read_diskspd("sample", &files)
}

fn close(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() <= expected * 1e-9)
}

#[test]
fn a_run_of_one_machine_is_read() {
    let run = read(&[SAMPLE.to_owned()]).expect("it is whole");
    let [cell] = &run.cells[..] else { panic!("{run:?}") };
    let expected = Load {
        block_size_bytes: 8192,
        pattern: "random".to_owned(),
        threads: 2,
        write_percent: 30,
        outstanding: 4,
    };
    assert_eq!(cell.load, expected);
    let [measured] = &cell.measurements[..] else { panic!("{cell:?}") };
    // 7,000 reads and 3,000 writes of 8 KiB in ten seconds.
    assert!(close(measured.iops, 1000.0) && close(measured.read_iops, 700.0), "{measured:?}");
    assert!(close(measured.mib_per_second, 7.8125), "{measured:?}");
    assert!(close(measured.total.mean_us, 1300.0) && close(measured.write.mean_us, 2000.0), "{measured:?}");
    assert!(close(measured.read.p50_us, 900.0) && close(measured.total.p99_us, 5000.0), "{measured:?}");
    assert_eq!((measured.read.p99_9_us, measured.read.p99_99_us), (Some(9000.0), None), "7,000 are too few");
    assert!(close(measured.cpu_percent, 12.5));
    assert_eq!(measured.client_iops, None, "one machine");
}

#[test]
fn machines_with_the_same_load_are_one_measurement_and_one_that_comes_again_is_another() {
    let other = SAMPLE.replace("<ComputerName>VM1</ComputerName>", "<ComputerName>VM2</ComputerName>");
    let run = read(&[SAMPLE.to_owned(), other.clone(), SAMPLE.to_owned()]).expect("all are whole");
    let [cell] = &run.cells[..] else { panic!("{run:?}") };
    let iops: Vec<f64> = cell.measurements.iter().filter_map(|measured| measured.iops).collect();
    assert_eq!(iops, [2000.0, 1000.0]);
    assert!(close(cell.measurements[0].total.p99_us, 5000.0), "both had the same: {cell:?}");
    let deeper = other.replace("<RequestCount>4</RequestCount>", "<RequestCount>8</RequestCount>");
    assert_eq!(read(&[SAMPLE.to_owned(), deeper]).expect("both are whole").cells.len(), 2);
}

#[test]
fn what_is_not_diskspd_s_is_refused() {
    let cases = [
        ("", "no"),
        ("<Results>", ""),
        ("<Results></Results>", "it has no time span"),
        ("{\"fio version\": 3}", ""),
        (&SAMPLE[..SAMPLE.len() / 2], ""),
        (&SAMPLE.replace("<TestTimeSeconds>10.00", "<TestTimeSeconds>0.00"), "0 s was measured"),
        (&SAMPLE.replace("<ReadCount>", "<ReadCount>x"), ""),
        // Of the second target alone.
        (
            &SAMPLE.replace("<Path>two.dat</Path>\n<BlockSize>8192", "<Path>two.dat</Path>\n<BlockSize>4096"),
            "2 targets with loads of their own",
        ),
    ];
    for (text, why) in cases {
        let error = read(&[text.to_owned()]).expect_err(text);
        assert_eq!(error.code, "FLEET_IMPORT_BROKEN");
        assert!(error.why.contains(why) || why == "no", "{error}");
    }
}
