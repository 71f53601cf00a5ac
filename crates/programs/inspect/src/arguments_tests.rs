use std::path::Path;
use std::rc::Rc;

use clap::Parser;

use super::*;
use crate::inspection::Inspection;
use crate::testing::machine::Machine;
use crate::testing::workload::Workload;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: InspectArguments,
}

fn run(arguments: &[&str]) -> Result<(String, Outcome), Error> {
    let program = Program::try_parse_from([&["program"], arguments].concat()).unwrap();
    let mut output = Vec::new();
    let outcome = program.arguments.run(&mut output)?;
    Ok((String::from_utf8(output).unwrap(), outcome))
}

/// A file that holds what a store has written.
fn drive_file(folder: &Path) -> String {
    let machine = Machine::formatted(1, 512);
    let (store, _) = machine.attach().unwrap();
    let workload = Workload::new(&machine, store, 1);
    let oracle = Rc::clone(&workload.oracle);
    machine.run(|_| workload.run(300));
    assert!(oracle.borrow().answers > 100);
    let path = folder.join("drive");
    std::fs::write(&path, machine.drive.snapshot().read_vec(0, 24 << 20)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn flip(path: &str, offset: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset as usize] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn inspect(path: &str) -> Inspection {
    let options = InspectOptions { list_blocks: true, ..InspectOptions::default() };
    inspect_with(Path::new(path), CachePaths::Among(&[]), options, &mut |_| {}).unwrap()
}

#[test]
fn a_sound_drive_and_a_damaged_one_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = drive_file(folder.path());
    let (text, outcome) = run(&[&path]).unwrap();
    assert_eq!((outcome, outcome.exit_status()), (Outcome::Sound, 0));
    assert!(text.ends_with("no damage\n"), "{text}");

    let block = inspect(&path).blocks.into_iter().find(|block| !block.in_last_group).unwrap();
    flip(&path, block.offset_bytes);
    let (text, outcome) = run(&[&path]).unwrap();
    assert_eq!((outcome, outcome.exit_status()), (Outcome::Damaged, 2));
    assert!(text.contains(&block.offset_bytes.to_string()), "{text}");
    let (json, outcome) = run(&[&path, "-o", "json"]).unwrap();
    assert_eq!(outcome, Outcome::Damaged);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["damage"][0]["kind"], "data");
    assert_eq!(json["damage"][0]["offset_bytes"], block.offset_bytes);
    assert_eq!(json["damage"][0]["volume"], block.volume.to_string());
    assert!(json.get("blocks").is_none(), "not asked for");
    let (json, _) = run(&[&path, "-o", "json", "--blocks"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["blocks"].as_array().unwrap().len() as u64, json["blocks_checked"].as_u64().unwrap());
    assert_eq!(json["structures"][0]["kind"], "superblock");
}

#[test]
fn a_copy_is_exported() {
    let folder = tempfile::tempdir().unwrap();
    let path = drive_file(folder.path());
    let block = inspect(&path).blocks.into_iter().find(|block| !block.in_last_group).unwrap();
    let slab = format!("{}:{}", block.volume, block.slab);
    let to = folder.path().join("slab");
    let to = to.to_str().unwrap();
    let (text, outcome) = run(&[&path, "--export", &slab, "--to", to]).unwrap();
    assert_eq!(outcome, Outcome::Sound);
    assert!(text.contains(to), "{text}");
    assert_eq!(std::fs::metadata(to).unwrap().len(), 4 << 20);

    flip(&path, block.offset_bytes);
    let again = folder.path().join("again");
    let again = again.to_str().unwrap();
    assert_eq!(run(&[&path, "--export", &slab, "--to", again]).unwrap_err().code, "COPY_DAMAGED");
    let (text, outcome) = run(&[&path, "--export", &slab, "--to", again, "--zero-damaged"]).unwrap();
    assert_eq!(outcome, Outcome::Damaged);
    assert!(text.contains(&format!("block {} cannot be had", block.block)), "{text}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let refused = |arguments: &[&str]| {
        Program::try_parse_from([&["program"], arguments].concat()).err().unwrap().to_string()
    };
    assert!(refused(&["d", "--export", "nonsense", "--to", "f"]).contains("no VOLUME:SLAB"));
    assert!(refused(&["d", "--export", "5f0c7c1e-93a4-4f5e-8f5b-1d2c3b4a5968:0"]).contains("--to"));
    assert!(refused(&["d", "--to", "f"]).contains("--export"));
    assert!(refused(&["d", "--zero-damaged"]).contains("--export"));
    refused(&[]);
}
