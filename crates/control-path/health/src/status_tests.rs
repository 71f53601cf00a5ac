use super::*;

#[test]
fn the_worst_decides_and_all_are_listed_once() {
    let status = Status::worst_of(
        [
            (HealthStatus::Warning, OperationalStatus::InService),
            (HealthStatus::Unhealthy, OperationalStatus::NoRedundancy),
            (HealthStatus::Warning, OperationalStatus::Degraded),
            (HealthStatus::Warning, OperationalStatus::InService),
        ],
        OperationalStatus::Ok,
    );
    assert_eq!(status.health, HealthStatus::Unhealthy);
    assert_eq!(status.operational_text(), "No Redundancy, Degraded, In Service");
    assert!(!status.is_healthy());
}

#[test]
fn nothing_found_is_healthy() {
    let status = Status::worst_of([], OperationalStatus::Up);
    assert_eq!(status.to_string(), "Healthy (Up)");
    assert!(status.is_healthy());
}

#[test]
fn programs_read_the_same_words_as_people() {
    let status = Status::new(HealthStatus::Warning, OperationalStatus::LostCommunication);
    let text = serde_json::to_string(&status).expect("a status is plain data");
    assert_eq!(text, r#"{"health":"Warning","operational":["Lost Communication"]}"#);
    let back: Status = serde_json::from_str(&text).expect("it was written so");
    assert_eq!(back, status);
}
