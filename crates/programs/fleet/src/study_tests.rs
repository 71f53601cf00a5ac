use clap::{CommandFactory, Parser};

use super::testing::FakeLab;
use super::*;
use crate::progress::{LineProgress, NoProgress};

#[derive(Debug, Parser)]
#[command(name = "study")]
struct Program {
    #[command(flatten)]
    study: StudyArguments,
}

fn parse(line: &str) -> Result<StudyArguments, clap::Error> {
    Program::try_parse_from(["study"].into_iter().chain(line.split_whitespace())).map(|program| program.study)
}

#[test]
fn the_help_lists_the_studies() {
    Program::command().debug_assert();
    let help = Program::command().render_long_help().to_string();
    assert!(help.contains("cache       The cache tier:"), "{help}");
    assert!(help.contains("cache-cost  What a cache drive costs:"), "{help}");
}

#[test]
fn factors_are_above_nothing() {
    for line in ["--time-scale 0", "--media-scale NaN", "--media-scale 1001", "--media-scale x"] {
        let error = parse(&format!("cache {line}")).unwrap_err().to_string();
        assert!(error.contains("number above 0"), "{line}: {error}");
    }
    let StudyCommand::Cache(arguments) =
        parse("cache --media-scale 0.5 --time-scale 2 --capacity-media hdd -o json").unwrap().command
    else {
        panic!("it is another study");
    };
    assert_eq!((arguments.media_scale, arguments.time_scale), (Some(0.5), 2.0));
    assert_eq!(arguments.capacity_media, Some(CapacityMedia::Hdd));
    assert_eq!(arguments.output, StudyOutput::Json);
}

#[test]
fn rounds_are_counted() {
    let rounds = |line: &str| match parse(line).unwrap().command {
        StudyCommand::CacheCost(arguments) => arguments.rounds,
        other => panic!("{other:?}"),
    };
    assert_eq!((rounds("cache-cost"), rounds("cache-cost --rounds 3")), (7, 3));
    for line in ["--rounds 0", "--rounds 1001", "--time-scale 0"] {
        assert!(parse(&format!("cache-cost {line}")).is_err(), "{line}");
    }
}

#[test]
fn a_report_is_printed_as_asked() {
    let run = |line: &str| {
        let mut output = Vec::new();
        let report = parse(line).unwrap().run(&mut FakeLab::default(), &mut NoProgress, &mut output);
        (report.unwrap(), String::from_utf8(output).unwrap())
    };
    let (report, text) = run("cache --capacity-media hdd --time-scale 0.01 -o json");
    assert_eq!(StudyReport::from_json(&text).unwrap(), report);
    let (report, text) = run("cache --capacity-media hdd --time-scale 0.01");
    assert_eq!(text, report.table());
}

#[test]
fn lines_tell_how_a_study_gets_on() {
    let mut lines = Vec::new();
    let arguments = parse("cache --time-scale 0.01").unwrap();
    arguments.run(&mut FakeLab::default(), &mut LineProgress::new(&mut lines), &mut Vec::new()).unwrap();
    let text = String::from_utf8(lines).unwrap();
    for line in [
        "14 cells with 4 clients, about ",
        "starting a cluster with NVMe in front of SATA SSDs\n",
        "starting a cluster with NVMe in front of disks\n",
        "warming the cache (read-write)\n",
        "moving what stands on cache drives alone to the drives behind them\n",
        "cell 14/14: ",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}
