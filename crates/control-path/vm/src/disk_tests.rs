use super::*;

#[test]
fn a_disk_is_named_by_machine_and_run_and_no_volume_can_be_called_so() {
    let disk = DiskName { vm: VmId::from_random(1, 2), run: 17 };
    let text = disk.to_string();
    assert_eq!(text.parse(), Ok(disk));
    assert!(spandrel_shared::name::validate_name("volume", &text).is_err());
    for other in ["", "disk1", "vm:", "vm:1:2", &format!("vm:{}", disk.vm), &format!("{text}:1")] {
        assert_eq!(other.parse::<DiskName>(), Err(()), "{other}");
    }
}
