use super::*;

#[test]
fn what_is_done_aside_does_not_count() {
    take_reached();
    reached(Rare::DriveFull);
    let outcome = aside(|| {
        reached(Rare::DriveFull);
        reached(Rare::RootTorn);
        7
    });
    let mut expected = [0; Rare::ALL.len()];
    expected[Rare::DriveFull as usize] = 1;
    assert_eq!((outcome, take_reached()), (7, expected));
    assert_eq!(take_reached(), [0; Rare::ALL.len()], "what was taken is gone");
}
