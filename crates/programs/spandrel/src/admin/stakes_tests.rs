use spandrel_shared::Version;

use super::*;
use crate::admin::testing::*;

fn names(stakes: &Stakes) -> [usize; 3] {
    [stakes.last.len(), stakes.thin.len(), stakes.unsettled.len()]
}

#[tokio::test]
async fn nothing_hangs_on_a_drive_as_long_as_all_other_copies_are_whole_and_there() {
    let mut facts = facts().await;
    assert!(facts.stakes_of_drive(drive_id(1)).are_none());
    assert!(facts.stakes_of_drive(drive_id(9)).are_none(), "nothing is on it");
    // What is on the drive itself is of no matter.
    facts.volumes[0].marks.insert(drive_id(1), Version::ZERO);
    assert!(facts.stakes_of_drive(drive_id(1)).are_none());
    assert!(facts.stakes_of_node(node_id(1)).are_none());
}

#[tokio::test]
async fn copies_that_are_stale_away_or_given_up_do_not_help() {
    let stakes = async |change: fn(&mut Facts)| {
        let mut facts = facts().await;
        change(&mut facts);
        assert_eq!(facts.stakes_of_drive(drive_id(1)), facts.stakes_of_node(node_id(1)));
        names(&facts.stakes_of_drive(drive_id(1)))
    };
    let stale = |facts: &mut Facts| facts.volumes[0].marks.extend([(drive_id(2), Version::ZERO)]);
    assert_eq!(stakes(stale).await, [0, 1, 0]);
    assert_eq!(stakes(|facts| facts.nodes[1].report = None).await, [0, 1, 0]);
    let given_up = |facts: &mut Facts| {
        facts.room.drives.get_mut(&drive_id(2)).expect("it is there").state = DriveState::Failed;
    };
    assert_eq!(stakes(given_up).await, [0, 1, 0]);
    let both = |facts: &mut Facts| {
        facts.nodes[1].report = None;
        facts.volumes[0].marks.insert(drive_id(3), Version::ZERO);
    };
    assert_eq!(stakes(both).await, [1, 0, 0]);
    let one_slab = |facts: &mut Facts| facts.volumes[0].sets[1].members.truncate(1);
    assert_eq!(stakes(one_slab).await, [1, 0, 0], "of one slab alone");
}

#[tokio::test]
async fn a_copy_that_is_being_built_is_none() {
    let mut facts = facts().await;
    let sets = &mut facts.volumes[0].sets;
    sets.iter_mut().for_each(|set| set.members[1].building = true);
    assert_eq!(names(&facts.stakes_of_drive(drive_id(1))), [0, 1, 0]);
    assert!(facts.stakes_of_drive(drive_id(2)).are_none());
}

#[tokio::test]
async fn before_copies_were_compared_any_drive_may_have_what_counts() {
    let mut facts = facts().await;
    facts.generation = 1;
    let stakes = facts.stakes_of_drive(drive_id(9));
    assert_eq!(names(&stakes), [0, 0, 1]);
    assert!(!stakes.can_be_built());
    assert!(stakes.must_not("wipe it")[0].starts_with("wipe it: the cluster's state was put back"));
}

/// Before copies were compared: what is nowhere else is not given up, however often it is asked for.
#[tokio::test]
async fn drives_with_the_only_copies_are_not_given_up() {
    let mut facts = facts().await;
    let nodes = |numbers: &[u64]| numbers.iter().map(|number| node_id(*number)).collect::<BTreeSet<NodeId>>();
    let all = nodes(&[1, 2, 3]);
    assert_eq!(facts.check_left_without(&all), Ok(()), "nothing waits for them");
    facts.generation = 1;
    assert_eq!(facts.check_left_without(&nodes(&[2, 3])), Ok(()));
    let refused = facts.check_left_without(&all).expect_err("nobody else has anything");
    assert_eq!(
        (refused.code.as_str(), refused.why.as_str()),
        ("LAST_COPY", "parts of v1 are on no other drives")
    );
    facts.room.drives.get_mut(&drive_id(1)).expect("it is there").state = DriveState::Failed;
    assert!(facts.check_left_without(&nodes(&[2, 3])).is_err(), "the third was given up before");
    assert_eq!(facts.check_left_without(&nodes(&[])), Ok(()));
}
