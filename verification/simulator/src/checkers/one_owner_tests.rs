use super::*;

fn answer(volume: u64, epoch: u32) -> Completion {
    Completion { volume: VolumeId::from_random(volume, 1), epoch: Epoch(epoch) }
}

#[test]
fn owners_that_follow_each_other_are_fine() {
    let mut checker = OneOwner::default();
    assert_eq!(checker.check(&[answer(1, 1), answer(1, 1), answer(1, 3)]), Ok(()));
    assert_eq!(checker.check(&[answer(1, 3), answer(1, 4)]), Ok(()));
    assert_eq!(checker.completions(), 5);
}

#[test]
fn an_owner_that_goes_on_behind_its_successor_is_found() {
    let mut checker = OneOwner::default();
    let found = checker.check(&[answer(1, 1), answer(1, 2), answer(1, 1)]).expect_err("two owners");
    assert!(found.contains("epoch 1 after one under epoch 2"), "{found}");
}

#[test]
fn what_was_told_before_counts() {
    let mut checker = OneOwner::default();
    checker.check(&[answer(1, 5)]).expect("one owner");
    assert!(checker.check(&[answer(1, 4)]).is_err());
}

#[test]
fn every_volume_has_epochs_of_its_own() {
    let mut checker = OneOwner::default();
    assert_eq!(checker.check(&[answer(1, 5), answer(2, 1), answer(1, 5), answer(2, 2)]), Ok(()));
}
