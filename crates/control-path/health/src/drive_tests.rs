use super::*;

const GOOD: DriveFacts = DriveFacts {
    is_node_reachable: true,
    trouble: None,
    is_given_up: false,
    is_retired: false,
    is_slow: false,
    blocks_damaged: 0,
};

fn text(facts: DriveFacts) -> String {
    status(&facts).to_string()
}

#[test]
fn each_fact_has_its_word() {
    let trouble = |trouble| DriveFacts { trouble: Some(trouble), ..GOOD };
    assert_eq!(text(GOOD), "Healthy (OK)");
    assert_eq!(text(DriveFacts { is_node_reachable: false, ..GOOD }), "Warning (Lost Communication)");
    assert_eq!(text(trouble(DriveTrouble::Foreign)), "Unhealthy (Unrecognized Metadata)");
    assert_eq!(text(trouble(DriveTrouble::OldOrForeignIdentity)), "Unhealthy (Stale Metadata)");
    assert_eq!(text(trouble(DriveTrouble::Failed)), "Unhealthy (Not Usable)");
    assert_eq!(text(DriveFacts { is_given_up: true, ..GOOD }), "Unhealthy (Failed Media)");
    assert_eq!(text(DriveFacts { is_retired: true, ..GOOD }), "Warning (Removing From Pool)");
    assert_eq!(text(DriveFacts { is_slow: true, ..GOOD }), "Warning (Abnormal Latency)");
    assert_eq!(text(DriveFacts { blocks_damaged: 1, ..GOOD }), "Warning (IO Error)");
}

#[test]
fn what_a_silent_node_said_before_does_not_count() {
    let facts = DriveFacts { is_node_reachable: false, trouble: Some(DriveTrouble::Failed), ..GOOD };
    assert_eq!(text(facts), "Warning (Lost Communication)");
}
