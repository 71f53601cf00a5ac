use super::*;

const WRITTEN: &str = "\
# callgrind format
version: 1
cmd: program --perform write
positions: line
events: Ir

fl=(1) /work/crates/data-path/volume/src/write.rs
fn=(1) spandrel_volume::write::write
12 5
+3 7
fi=(2) /rustc/library/alloc/vec.rs
40 2
fe=(1)
* 1
cfi=(3) /work/crates/platform/simulated/src/world.rs
cfn=(2) spandrel_platform_simulated::world::step
calls=2 10
20 900

fl=(3)
fn=(2)
10 450
+1 450

fl=(1)
fn=(3) spandrel_volume::write::answer
30 11
";

#[test]
fn what_is_called_is_counted_where_it_stands_itself() {
    let profile = Profile::parse(WRITTEN).expect("it is what callgrind writes");
    let of = |name: &str| profile.functions[name].instructions;
    assert_eq!(of("spandrel_volume::write::write"), 15, "with what was inlined, without what was called");
    assert_eq!(of("spandrel_platform_simulated::world::step"), 900);
    assert_eq!(of("spandrel_volume::write::answer"), 11);
}

#[test]
fn the_made_up_world_is_left_out() {
    let profile = Profile::parse(WRITTEN).expect("it is what callgrind writes");
    assert_eq!(profile.own_instructions(), 26);
    let listing = profile.listing(2, 1);
    assert!(
        listing.contains("13  all") && listing.contains("7.5  spandrel_volume::write::write"),
        "{listing}"
    );
    assert!(!listing.contains("answer"), "only so many are listed: {listing}");
}

#[test]
fn what_the_world_is_a_parameter_of_is_counted() {
    let of_the_world = |name| is_of_the_world(name, "/rustc/library/core/src/ptr/mod.rs");
    for ours in [
        "core::ptr::drop_in_place<spandrel_volume::write::AskedWrite<NodeContext<spandrel_platform_simulated::Platform>>>",
        "<spandrel_bus::call::Call<spandrel_platform_simulated::Platform> as core::future::Future>::poll",
        "spandrel_drive::store::DriveStore<spandrel_platform_simulated::Platform>::begin_write",
        "mi_malloc",
    ] {
        assert!(!of_the_world(ours), "{ours}");
    }
    for its in [
        "core::ptr::drop_in_place<spandrel_platform_simulated::world::Event>",
        "<spandrel_platform_simulated::Platform as spandrel_platform::Platform>::now",
        "<&mut spandrel_simulator::World as core::future::Future>::poll",
        "spandrel_instructions[0123456789abcdef]::load::counted",
    ] {
        assert!(of_the_world(its), "{its}");
    }
    assert!(is_of_the_world("poll", "/work/crates/platform/simulated/src/world.rs"));
}

#[test]
fn other_events_and_nonsense_are_refused() {
    assert!(Profile::parse("events: Cycles\n").is_err());
    assert!(Profile::parse("events: Ir\nfn=(1) f\n12 many\n").is_err());
}
