use super::*;

/// One folder of each layer, lowest first where there is an order.
const FOLDERS: [&str; 12] = [
    "crates/platform/interface",
    "crates/shared",
    "crates/platform/linux",
    "crates/platform/simulated",
    "crates/data-path/drive",
    "crates/data-path/replica",
    "crates/data-path/volume",
    "crates/control-path/pool",
    "crates/programs/node",
    "crates/programs/spandrel",
    "verification/simulator",
    "xtask",
];

fn may_name(from: &str, to: &str, for_tests: bool) -> bool {
    Layer::of(from).unwrap().refusal(Layer::of(to).unwrap(), for_tests).is_none()
}

#[test]
fn each_layer_names_exactly_its_own() {
    let expected: [(&str, &[&str]); 12] = [
        ("crates/platform/interface", &[]),
        ("crates/shared", &["crates/platform/interface"]),
        ("crates/platform/linux", &["crates/platform/interface", "crates/shared"]),
        ("crates/platform/simulated", &["crates/platform/interface", "crates/shared"]),
        ("crates/data-path/drive", &["crates/platform/interface", "crates/shared"]),
        (
            "crates/data-path/replica",
            &["crates/platform/interface", "crates/shared", "crates/data-path/drive"],
        ),
        (
            "crates/data-path/volume",
            &[
                "crates/platform/interface",
                "crates/shared",
                "crates/data-path/drive",
                "crates/data-path/replica",
            ],
        ),
        (
            "crates/control-path/pool",
            &["crates/platform/interface", "crates/shared", "crates/control-path/pool"],
        ),
        (
            "crates/programs/node",
            &[
                "crates/platform/interface",
                "crates/shared",
                "crates/data-path/drive",
                "crates/data-path/replica",
                "crates/data-path/volume",
                "crates/control-path/pool",
            ],
        ),
        ("crates/programs/spandrel", &FOLDERS[..10]),
        ("verification/simulator", &FOLDERS[..11]),
        ("xtask", &[]),
    ];
    for (from, allowed) in expected {
        for to in FOLDERS {
            assert_eq!(may_name(from, to, false), allowed.contains(&to), "{from} -> {to}");
        }
    }
}

#[test]
fn the_data_path_is_in_the_order_of_a_write() {
    for (place, from) in DATA_PATH.iter().enumerate() {
        for (other, to) in DATA_PATH.iter().enumerate() {
            let named =
                may_name(&format!("crates/data-path/{from}"), &format!("crates/data-path/{to}"), false);
            assert_eq!(named, place < other, "{from} -> {to}");
        }
    }
}

#[test]
fn tests_and_examples_of_simulated_code_may_name_a_platform() {
    for from in
        ["crates/data-path/drive", "crates/control-path/pool", "crates/programs/node", "crates/shared"]
    {
        assert!(may_name(from, "crates/platform/simulated", true), "{from}");
        assert!(!may_name(from, "crates/platform/simulated", false), "{from}");
        assert!(may_name(from, "crates/platform/linux", true), "{from}");
        assert!(!may_name(from, "crates/platform/linux", false), "{from}");
    }
    assert!(!may_name("crates/platform/linux", "crates/platform/simulated", true));
}

#[test]
fn the_reader_of_drives_shares_only_what_all_share() {
    let from = "crates/programs/inspect";
    for to in FOLDERS {
        let allowed = matches!(to, "crates/platform/interface" | "crates/shared");
        assert_eq!(may_name(from, to, false), allowed, "{to}");
    }
    assert!(may_name(from, "crates/data-path/drive", true), "its tests make drives with the store");
    assert!(may_name(from, "crates/platform/linux", true));
    assert!(may_name("crates/programs/spandrel", from, false));
    assert!(!may_name("crates/programs/node", from, false));
}

#[test]
fn unknown_folders_are_in_no_layer() {
    for folder in
        ["crates/other", "crates/data-path/sideways", "crates/platform/windows", "tools", "verification"]
    {
        assert_eq!(Layer::of(folder), None, "{folder}");
    }
}
