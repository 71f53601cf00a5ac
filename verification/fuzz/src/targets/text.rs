//! What people and files say in text: sizes, names, addresses, identities, a sweep's arguments.

use clap::{FromArgMatches, Subcommand};
use spandrel_fleet::FleetCommand;
use spandrel_platform::Address;
use spandrel_shared::name::{NAME_BYTES_MAX, validate_name};
use spandrel_shared::size::{format_size, parse_size};
use spandrel_shared::{NodeId, VolumeId};

use crate::Target;
use crate::choices::Choices;

pub const TARGET: Target = Target {
    name: "text",
    about: "sizes, names, addresses, identities, the arguments of a sweep",
    run,
    seeds,
    smoke_runs: 5_000,
    memory_bytes_max: 4 << 20,
};

fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let kind = choices.byte() % 5;
    let text = String::from_utf8_lossy(choices.rest());
    match kind {
        0 => read_size(&text),
        1 => read_name(&text),
        2 => {
            if let Ok(address) = text.parse::<Address>() {
                assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
        3 => {
            if let Ok(identity) = text.parse::<VolumeId>() {
                assert_eq!(identity.to_string().parse(), Ok(identity));
                assert_eq!(NodeId::from_bytes(identity.to_bytes()).to_string(), identity.to_string());
            }
        }
        _ => read_arguments(&text),
    }
}

fn read_size(text: &str) {
    let Some(bytes) = parse_size(text) else { return };
    let shown = format_size(bytes);
    // What has no fraction is read as what it was, unless it lost digits when it was shown.
    if let Some(again) = parse_size(&shown) {
        let difference = again.abs_diff(bytes);
        assert!(difference <= bytes / 100, "{bytes} is shown as {shown}");
    }
}

fn read_name(text: &str) {
    if validate_name("volume", text).is_ok() {
        assert!(!text.is_empty() && text.len() <= NAME_BYTES_MAX);
        assert!(!text.starts_with(['-', '.']) && !text.contains(['/', ' ', '\0', '\n', '\'']));
    }
}

fn read_arguments(text: &str) {
    let command = FleetCommand::augment_subcommands(clap::Command::new("fleet")).no_binary_name(true);
    let words = ["sweep"].into_iter().chain(text.split_ascii_whitespace());
    if let Ok(matches) = command.try_get_matches_from(words) {
        drop(FleetCommand::from_arg_matches(&matches));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let texts: [(u8, &str); 12] = [
        (0, "512 MiB"),
        (0, "16P"),
        (0, "18446744073709551615"),
        (1, "vm-01.a_b"),
        (2, "127.0.0.1:80"),
        (2, "[::1]:80"),
        (2, "/run/socket"),
        (3, "936da01f-9abd-4d9d-80c7-02af85c822a8"),
        (4, "--vms 8 --threads 1,2 --block-size 4k,1M --pattern si --working-set 16G"),
        (4, "--write-percent 0,100 --io-alignment 512 --alignment 70 --duration 1.5s --warmup 500ms"),
        (4, "--cooldown 1h --drain 2m --seed 3 --write-source 20M --load-threads 2"),
        (4, "--vms 0 --duration 1e300h"),
    ];
    texts.iter().map(|(kind, text)| [&[*kind][..], text.as_bytes()].concat()).collect()
}
