use spandrel_health::{HealthStatus, Status};

use super::*;
use crate::admin::testing::facts;

/// It would be waited for in vain.
#[tokio::test]
async fn nobody_waits_for_a_drive_that_is_used_again() {
    use OperationalStatus as State;
    let known = facts().await.drives().remove(0);
    let drive = |operational: &[State]| {
        let status = Status { health: HealthStatus::Warning, operational: operational.to_vec() };
        DriveStatus { status, ..known.clone() }
    };
    let leaves = [
        drive(&[State::RemovingFromPool]),
        drive(&[State::LostCommunication, State::RemovingFromPool]),
        drive(&[State::FailedMedia]),
    ];
    assert_eq!(check_leave(&leaves.iter().collect::<Vec<_>>()), Ok(()));
    for used in [drive(&[State::Ok]), drive(&[State::LostCommunication])] {
        let error = check_leave(&[&leaves[0], &used]).expect_err("it does not become empty");
        assert_eq!(error.code, "DRIVE_USED_AGAIN");
    }
}
