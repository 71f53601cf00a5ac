use clap::Parser;

use super::*;
use crate::arguments::{Arguments, Command};

fn arguments(options: &str) -> UpArguments {
    let line = format!("spandrel up {options}");
    match Arguments::try_parse_from(line.split_whitespace()).expect("it is well-formed").command {
        Command::Up(arguments) => arguments,
        other => panic!("{other:?} is not up"),
    }
}

fn media(options: &str) -> Result<MediaSettings, Error> {
    MediaSettings::from_arguments(&arguments(options))
}

#[test]
fn drives_are_as_fast_as_the_machine_if_nobody_says_otherwise() {
    let media = media("--cache-drives 1").expect("it is good");
    assert_eq!(media, MediaSettings::default());
    assert!(media.is_real());
    assert_eq!(media.simulated(DriveRole::Capacity), None);
    assert_eq!(media.describe(), None);
}

#[test]
fn each_role_has_its_medium() {
    let media = media("--cache-drives 1 --cache-media nvme --capacity-media hdd --media-scale 0.05");
    let media = media.expect("it is good");
    let simulated = |kind| Some(SimulatedMedium { kind, scale: 0.05 });
    assert_eq!(media.simulated(DriveRole::Cache), simulated(MediumKind::Nvme));
    assert_eq!(media.simulated(DriveRole::Capacity), simulated(MediumKind::Disk));
    let said = "drives are as slow as hdd, cache drives as nvme, at 0.05 of the speed of real ones";
    assert_eq!(media.describe().as_deref(), Some(said));
}

#[test]
fn one_of_both_is_enough() {
    let capacity = media("--capacity-media ssd").expect("it is good");
    assert_eq!(capacity.describe().as_deref(), Some("drives are as slow as ssd"));
    let kind = MediumKind::SataSsd;
    assert_eq!(capacity.simulated(DriveRole::Capacity), Some(SimulatedMedium { kind, scale: 1.0 }));
    let cache = media("--cache-drives 2 --cache-media nvme").expect("it is good");
    assert_eq!(cache.describe().as_deref(), Some("cache drives are as slow as nvme"));
    assert_eq!(cache.simulated(DriveRole::Capacity), None);
}

#[test]
fn what_cannot_be_is_refused() {
    for (options, what) in [
        ("--cache-media nvme", "--cache-media alone"),
        ("--cache-drives 0 --cache-media nvme", "--cache-media alone"),
        ("--media-scale 0.5", "--media-scale alone"),
        ("--capacity-media hdd --media-scale 0", "--media-scale 0"),
        ("--capacity-media hdd --media-scale=-1", "--media-scale -1"),
        ("--capacity-media hdd --media-scale 1000.5", "--media-scale 1000.5"),
        ("--capacity-media hdd --media-scale NaN", "--media-scale NaN"),
        ("--capacity-media hdd --media-scale inf", "--media-scale inf"),
    ] {
        let error = media(options).expect_err(options);
        assert_eq!(error.code, "OPTION_INVALID", "{options}");
        assert_eq!(error.what, format!("no cluster can be made with {what}"));
    }
    for scale in ["0.000001", "1000"] {
        media(&format!("--capacity-media hdd --media-scale {scale}")).expect(scale);
    }
    for line in ["spandrel up --capacity-media tape", "spandrel up --media-scale fast"] {
        assert!(Arguments::try_parse_from(line.split_whitespace()).is_err(), "{line}");
    }
}

#[test]
fn what_is_said_later_is_compared() {
    let made = media("--capacity-media hdd --media-scale 0.5").expect("it is good");
    let differences = |options| made.differences(&arguments(options));
    assert!(differences("").is_empty());
    assert!(differences("--capacity-media hdd --media-scale 0.5").is_empty());
    assert_eq!(
        differences("--capacity-media ssd --cache-media nvme --media-scale 1"),
        [
            "--capacity-media ssd, but it has hdd",
            "--cache-media nvme, but it has none",
            "--media-scale 1, but it has 0.5"
        ]
    );
}
