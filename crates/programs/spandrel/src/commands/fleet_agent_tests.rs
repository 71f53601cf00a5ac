use super::*;

#[test]
fn the_port_is_found_by_its_name() {
    let folder = tempfile::tempdir().expect("there is room");
    assert_eq!(find_port(&folder.path().join("none")), None);
    for (port, name) in [("vport1p1", "org.qemu.guest_agent.0"), ("vport1p2", "spandrel.load")] {
        std::fs::create_dir(folder.path().join(port)).expect("there is room");
        std::fs::write(folder.path().join(port).join("name"), format!("{name}\n")).expect("there is room");
    }
    assert_eq!(find_port(folder.path()), Some("/dev/vport1p2".into()));
}
