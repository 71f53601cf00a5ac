use clap::CommandFactory;

use super::values::parse_state;
use super::*;
use crate::admin::api::NewSize;

fn parse(line: &str) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(line.split_whitespace())
}

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn help_fits_a_hundred_columns_and_says_the_exit_codes() {
    let help = Arguments::command().render_long_help().to_string();
    assert!(help.contains("130  interrupted"));
    for line in help.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn sizes_have_units() {
    let arguments = parse("spandrel up --drive-size 64M --nodes 3").expect("it is well-formed");
    let Command::Up(up) = arguments.command else { panic!("it is up") };
    assert_eq!((up.drive_size, up.nodes, up.drives), (Some(64 << 20), Some(3), None));
    assert!(parse("spandrel volume create a --size much").is_err());
    assert!(parse("spandrel volume create a").is_err(), "a size is needed");
}

#[test]
fn a_new_size_is_absolute_or_what_comes() {
    let size = |text: &str| {
        let line = format!("spandrel volume resize disk1 {text}");
        match parse(&line).map(|arguments| arguments.command) {
            Ok(Command::Volume(VolumeCommand::Resize(resize))) => Ok(resize.size),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    };
    assert_eq!(size("50G"), Ok(NewSize::SizeBytes(50 << 30)));
    assert_eq!(size("+1536M"), Ok(NewSize::AddBytes(1536 << 20)));
    assert!(size("+much").expect_err("no size").contains("no size"));
    assert!(size("-- -1G").expect_err("less").contains("never becomes smaller"));
}

#[test]
fn what_is_away_is_waited_for_a_second_at_least() {
    let parse = |time: &str| parse(&format!("spandrel pool set --rebuild-after-drive {time}"));
    let Command::Pool(PoolCommand::Set(set)) = parse("2m").expect("it is well-formed").command else {
        panic!("it is pool set")
    };
    assert_eq!((set.rebuild_after_drive, set.rebuild_after_node), (Some(120), None));
    for short in ["0", "500ms"] {
        let error = parse(short).expect_err("everything would be built anew all the time");
        assert!(error.to_string().contains("is too short: write 1s or more"), "{error}");
    }
}

#[test]
fn the_period_of_scrubs_is_a_time_or_off() {
    let parse = |time: &str| match parse(&format!("spandrel pool set --scrub-period {time}"))?.command {
        Command::Pool(PoolCommand::Set(set)) => Ok::<_, clap::Error>(set.scrub_period),
        other => panic!("{other:?}"),
    };
    for (text, period_s) in [("4w", 2_419_200), ("10d", 864_000), ("off", 0), ("never", 0), ("0", 0)] {
        assert_eq!(parse(text).expect("it is well-formed"), Some(period_s), "{text}");
    }
    assert!(parse("500ms").is_err() && parse("soon").is_err());
}

#[test]
fn scrubs_are_of_all_volumes_or_of_some_and_have_a_status() {
    let scrub = |line: &str| match parse(line).expect("it is well-formed").command {
        Command::Scrub(scrub) => scrub,
        other => panic!("{other:?}"),
    };
    let all = scrub("spandrel scrub");
    assert!(all.command.is_none() && all.names.is_empty());
    assert_eq!(scrub("spandrel scrub a b -o json").names, ["a", "b"]);
    let Some(ScrubCommand::Status(status)) = scrub("spandrel scrub status a -o json").command else {
        panic!("it is the status")
    };
    assert_eq!((status.names, status.output.output), (vec!["a".to_owned()], Output::Json));
}

#[test]
fn the_directory_may_stand_anywhere() {
    for line in ["spandrel --dir /x status", "spandrel status --dir /x -o json"] {
        let arguments = parse(line).expect("it is well-formed");
        assert_eq!(arguments.reach.dir, Some(PathBuf::from("/x")), "{line}");
    }
}

#[test]
fn a_server_elsewhere_may_be_named_anywhere_and_joins_keep_their_token() {
    for line in ["spandrel --server a --token t status", "spandrel status --token t --server a"] {
        let ReachArguments { server, access_token, .. } = parse(line).expect("it is well-formed").reach;
        assert_eq!((server.as_deref(), access_token.as_deref()), (Some("a"), Some("t")), "{line}");
    }
    let arguments = parse("spandrel status --server a --token-file f").expect("it is well-formed");
    assert_eq!(arguments.reach.token_file, Some(PathBuf::from("f")));
    let join = |line| match parse(line).expect("it is well-formed").command {
        Command::Node(NodeCommand::Join(join)) => join,
        other => panic!("{other:?}"),
    };
    assert_eq!(join("spandrel node join t --listen 10.0.0.1").token.as_deref(), Some("t"));
    let from_file = join("spandrel node join --token-file f --listen 10.0.0.1");
    assert_eq!((from_file.token, from_file.token_file), (None, Some(PathBuf::from("f"))));
    assert!(parse("spandrel node join --listen 10.0.0.1").is_err(), "a token is needed");
}

#[test]
fn an_etcd_of_others_is_named_by_address_and_port() {
    for good in ["127.0.0.1:2379", "[::1]:2379", "localhost:2379", "etcd.example:2379"] {
        assert_eq!(parse_state(&format!("etcd://{good}")).as_deref(), Ok(good));
    }
    for bad in [
        "etcd://",
        "http://127.0.0.1:2379",
        "etcd://10.0.0.1",
        "etcd://:2379",
        "etcd://a/b:1",
        "etcd://a:b",
        "etcd://::1:2379",
    ] {
        assert!(parse_state(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_proves_to_an_etcd_who_one_is_comes_whole() {
    let init = "spandrel cluster init --name t --listen 10.0.0.1 --state etcd://10.0.0.5:2379";
    assert!(parse(&format!("{init} --state-authority a --state-certificate c --state-key k")).is_ok());
    assert!(parse(&format!("{init} --state-authority a --state-certificate c")).is_err());
    assert!(parse(&format!("{init} --state-key k")).is_err());
}
