use super::*;

/// A node that holds nothing of a volume yet forgets what it has accepted when it begins anew.
#[test]
fn only_a_higher_epoch_is_another_owner() {
    assert_eq!(fenced(Epoch(5), Epoch(6)), Unfinished::Owner);
    assert_eq!(fenced(Epoch(5), Epoch::ZERO), Unfinished::Forgotten);
    assert_eq!(fenced(Epoch(5), Epoch(4)), Unfinished::Forgotten, "it knows a former owner alone");
}
