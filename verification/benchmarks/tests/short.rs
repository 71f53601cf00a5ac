//! The whole way of a benchmark once, as short as it can be: contenders are started, loaded, measured and compared.

use std::process::Command;

use spandrel_process_cluster::Program;

#[test]
fn a_short_benchmark_measures_and_compares() {
    let folder = tempfile::tempdir().expect("a directory can be made");
    let saved = folder.path().join("results.json");
    let output = Command::new(env!("CARGO_BIN_EXE_spandrel-benchmarks"))
        .arg("--spandrel")
        .arg(Program::with_test_faults().path())
        .args(["--rounds", "1", "--seconds", "1", "--size", "64", "--cells", "write-4k-qd32"])
        .args(["--contenders", "spandrel,file,qemu-nbd", "--save"])
        .arg(&saved)
        .output()
        .expect("it was built with this test");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The floor is against nbdkit, which is not asked for.
    assert_eq!(output.status.code(), Some(1), "{said}{errors}");
    assert!(said.contains("NOT MEASURED"), "{said}{errors}");
    let text = std::fs::read_to_string(&saved).expect("the results were saved");
    let results: serde_json::Value = serde_json::from_str(&text).expect("they are JSON");
    let samples = results["samples"].as_array().expect("there are samples");
    assert_eq!(samples.len(), 3, "{text}");
    for sample in samples {
        let of = |name: &str| sample["measurement"][name].as_f64().expect("it is a number");
        assert!(of("iops") > 0.0 && of("busy_cores") > 0.0 && of("latency_mean_us") > 0.0, "{text}");
    }
}

/// A cluster whose drives are full of zeros that nobody has written starts, and is read and written.
#[test]
fn a_short_curve_of_what_is_mapped_is_measured() {
    let folder = tempfile::tempdir().expect("a directory can be made");
    let saved = folder.path().join("curves.json");
    let output = Command::new(env!("CARGO_BIN_EXE_spandrel-benchmarks"))
        .args(["curves", "--curves", "mapped", "--mapped", "1", "--seconds", "1", "--spandrel"])
        .arg(Program::with_test_faults().path())
        .arg("--disk")
        .arg(folder.path())
        .arg("--save")
        .arg(&saved)
        .output()
        .expect("it was built with this test");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{errors}");
    let text = std::fs::read_to_string(&saved).expect("the results were saved");
    let curves: serde_json::Value = serde_json::from_str(&text).expect("they are JSON");
    let start = &curves["starts"][0];
    assert_eq!(start["mapped_bytes"].as_u64(), Some(3 << 29), "{text}");
    assert!(start["resident_bytes"].as_u64() > Some(10 << 20), "{text}");
    for (point, write_percent) in [(0, 0), (1, 100)] {
        let point = &curves["points"][point];
        assert_eq!(point["load"]["write_percent"].as_u64(), Some(write_percent), "{text}");
        assert!(point["measurement"]["iops"].as_f64() > Some(0.0), "{text}");
    }
}

/// What a debug build differs from fio by says nothing; what the generator has counted is what the owner has served all the same.
#[test]
fn a_short_comparison_of_the_generator_with_fio_counts_what_was_served() {
    let output = Command::new(env!("CARGO_BIN_EXE_spandrel-benchmarks"))
        .args(["generator", "--rounds", "1", "--seconds", "1", "--size", "64", "--spandrel"])
        .arg(Program::with_test_faults().path())
        .output()
        .expect("it was built with this test");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}{errors}");
    let counted: Vec<&str> = said.lines().filter(|line| line.contains("counted")).collect();
    assert_eq!(counted.len(), 8, "{said}{errors}");
    assert!(counted.iter().all(|line| line.contains("1.000 (1.000 to 1.000)  HOLDS")), "{said}{errors}");
}

#[test]
fn what_is_not_known_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_spandrel-benchmarks"))
        .args(["--contenders", "spandrel,nobody"])
        .output()
        .expect("it was built with this test");
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no contender nobody") && errors.contains("nbdkit"), "{errors}");
}
