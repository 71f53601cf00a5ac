use super::*;

/// A file of fio with these jobs, each given by its options and what it read and wrote.
fn file(jobs: &[&str]) -> String {
    format!(
        "note: both iodepth >= 1 and synchronous I/O engine are selected\n{{\"fio version\": \"fio-3.39\",\
             \"global options\": {{\"bs\": \"8k\", \"iodepth\": \"16\"}}, \"jobs\": [{}]}}",
        jobs.join(",")
    )
}

fn job(options: &str, read: &str, write: &str) -> String {
    format!("{{\"jobname\": \"j\", \"job options\": {{{options}}}, \"read\": {read}, \"write\": {write}}}")
}

fn side(iops: f64, ios: u64, mean_ns: f64) -> String {
    format!(
        "{{\"iops\": {iops}, \"bw_bytes\": {}, \"total_ios\": {ios}, \"lat_ns\": {{\"mean\": {mean_ns}}}, \
         \"clat_ns\": {{\"mean\": 1, \"percentile\": {{\"50.000000\": 2000, \"99.000000\": 9000, \"99.990000\": 70000}}}}}}",
        iops * 8192.0
    )
}

const NOTHING: &str = "{\"iops\": 0, \"bw_bytes\": 0, \"total_ios\": 0}";

fn read(texts: &[String]) -> Result<MeasuredRun, Error> {
    let files: Vec<(&Path, String)> =
        texts.iter().map(|text| (Path::new("fio.json"), text.clone())).collect();
    read_fio("fio", &files)
}

#[test]
fn a_job_is_a_load_with_its_latencies() {
    let mixed = job(
        "\"rw\": \"randrw\", \"rwmixread\": \"70\"",
        &side(700.0, 7000, 3000.0),
        &side(300.0, 3000, 5000.0),
    );
    let reads = job("\"rw\": \"read\", \"bs\": \"128k\"", &side(10.0, 20_000, 4000.0), NOTHING);
    let run = read(&[file(&[&mixed, &reads])]).expect("it is whole");
    assert_eq!(run.source, "1 files of fio-3.39");
    let [mixed, reads] = &run.cells[..] else { panic!("{run:?}") };
    assert_eq!(
        (mixed.load.block_size_bytes, mixed.load.write_percent, mixed.load.outstanding),
        (8192, 30, 16)
    );
    assert_eq!((mixed.load.pattern.as_str(), reads.load.pattern.as_str()), ("random", "sequential"));
    let measured = &mixed.measurements[0];
    assert_eq!((measured.iops, measured.mib_per_second), (Some(1000.0), Some(7.8125)));
    assert_eq!((measured.total.mean_us, measured.total.p50_us), (Some(3.6), None), "of two directions");
    assert_eq!((measured.read.p50_us, measured.read.p99_us), (Some(2.0), Some(9.0)));
    assert_eq!(measured.read.p99_99_us, None, "7,000 are too few");
    assert_eq!(reads.measurements[0].total.p99_99_us, Some(70.0), "reads are all that there is");
}

#[test]
fn jobs_are_clients_and_files_are_repeats() {
    let one = job("\"rw\": \"randwrite\"", NOTHING, &side(100.0, 1000, 3000.0));
    let other = job("\"rw\": \"randwrite\"", NOTHING, &side(300.0, 3000, 5000.0));
    let run = read(&[file(&[&one, &other]), file(&[&one])]).expect("both are whole");
    let [cell] = &run.cells[..] else { panic!("{run:?}") };
    let [both, alone] = &cell.measurements[..] else { panic!("{cell:?}") };
    assert_eq!((both.iops, both.write.mean_us, both.write.p50_us), (Some(400.0), Some(4.5), None));
    assert_eq!(both.client_iops.map(|spread| (spread.min, spread.max)), Some((100.0, 300.0)));
    assert_eq!((alone.iops, alone.client_iops), (Some(100.0), None));
}

/// As with `--output-format=json,normal`, of a version that tells KiB alone, with sizes in bytes.
#[test]
fn what_stands_behind_the_results_is_passed_over() {
    let write = "{\"iops\": 100, \"bw\": 400, \"total_ios\": 1000, \"clat_ns\": {\"mean\": 3000}}";
    let text = file(&[&job("\"rw\": \"randwrite\", \"bs\": \"4096B\"", NOTHING, write)])
        + "\n\nj: (groupid=0, jobs=1): err= 0\n  write: {";
    let run = read(&[text]).expect("the object is whole");
    let [cell] = &run.cells[..] else { panic!("{run:?}") };
    assert_eq!((cell.load.block_size_bytes, cell.load.threads), (4096, 1));
    let measured = &cell.measurements[0];
    assert_eq!(measured.mib_per_second, Some(400.0 / 1024.0));
    assert_eq!(measured.write.mean_us, Some(3.0), "only completions are told");
}

#[test]
fn jobs_that_are_reported_as_one_are_threads_and_those_in_turns_are_repeats() {
    let grouped = job("\"rw\": \"randread\", \"numjobs\": \"16\"", &side(100.0, 1000, 3000.0), NOTHING);
    let run = read(&[file(&[&grouped])]).expect("it is whole");
    assert_eq!(run.cells[0].load.threads, 16);
    let turn = |group: u32| {
        let options = "\"rw\": \"randread\", \"stonewall\": \"\"";
        job(options, &side(100.0, 1000, 3000.0), NOTHING).replacen(
            '{',
            &format!("{{\"groupid\": {group}, "),
            1,
        )
    };
    let run = read(&[file(&[&turn(0), &turn(1)])]).expect("it is whole");
    let iops: Vec<Option<f64>> = run.cells[0].measurements.iter().map(|measured| measured.iops).collect();
    assert_eq!((run.cells.len(), iops), (1, vec![Some(100.0), Some(100.0)]));
}

#[test]
fn what_is_not_fio_s_is_refused() {
    let odd = job("\"rw\": \"read\", \"iodepth\": \"many\"", NOTHING, NOTHING);
    let whole = file(&[&job("\"rw\": \"read\"", &side(1.0, 1, 1.0), NOTHING)]);
    let twice = whole.clone() + "\n" + &whole[whole.find('{').expect("it is an object")..];
    let cases = [
        twice,
        "".to_owned(),
        "{".to_owned(),
        "{\"jobs\": []}".to_owned(),
        "<Results/>".to_owned(),
        file(&[&odd]),
    ];
    for text in cases {
        assert_eq!(read(std::slice::from_ref(&text)).expect_err(&text).code, "FLEET_IMPORT_BROKEN");
    }
}
