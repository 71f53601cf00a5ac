use super::*;

const MIB: u64 = 1 << 20;

fn extents(extents: &[(u64, bool)]) -> Vec<Extent> {
    extents.iter().map(|(length, allocated)| Extent { length: *length, allocated: *allocated }).collect()
}

#[test]
fn neighbours_that_are_alike_are_one_descriptor() {
    let all = extents(&[(4096, true), (0, false), (8192, true), (512, false), (512, false), (1024, true)]);
    assert_eq!(describe(&all, 14336, 100), [(12288, 0), (1024, 3), (1024, 0)]);
    assert_eq!(describe(&all, 14336, 2), [(12288, 0), (1024, 3)]);
    assert_eq!(describe(&all, 14336, 1), [(12288, 0)]);
}

#[test]
fn descriptors_end_with_the_request() {
    let all = extents(&[(MIB << 20, false), (MIB, true)]);
    assert_eq!(describe(&all, 65536, 100), [(65536, 3)]);
    assert_eq!(describe(&all, u32::MAX - 511, 100), [(u32::MAX - 511, 3)]);
    assert_eq!(describe(&extents(&[(4096, true), (8192, false)]), 8192, 9), [(4096, 0), (4096, 3)]);
}

#[test]
fn there_is_always_a_descriptor() {
    assert_eq!(describe(&[], 4096, 100), [(4096, 0)]);
    assert_eq!(describe(&extents(&[(0, false)]), 4096, 1), [(4096, 0)]);
}

#[test]
fn device_errors_have_a_number() {
    let numbers = [
        (DeviceErrorKind::NotFound, 5),
        (DeviceErrorKind::Busy, 1),
        (DeviceErrorKind::Invalid, 22),
        (DeviceErrorKind::ReadOnly, 1),
        (DeviceErrorKind::NoRoom, 28),
        (DeviceErrorKind::Failed, 5),
    ];
    for (kind, number) in numbers {
        assert_eq!(error_number(kind).map(|found| found as u32), Some(number), "{kind:?}");
    }
    assert_eq!(error_number(DeviceErrorKind::Stopping), None, "it is to be asked again elsewhere");
}
