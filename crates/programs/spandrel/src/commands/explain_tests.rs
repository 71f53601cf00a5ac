use spandrel_health::{HealthStatus, OperationalStatus, Status};

use super::*;

#[test]
fn an_explanation_is_a_line_for_each_thing_to_say() {
    let explanation = Explanation {
        object: "volume v".to_owned(),
        status: Status::new(HealthStatus::Warning, OperationalStatus::Degraded),
        since_ms: Some(180_000),
        why: vec!["one".to_owned(), "two".to_owned()],
        doing: vec!["three".to_owned()],
        left_ms: Some(4_100),
        may: Vec::new(),
        must_not: vec!["four".to_owned()],
    };
    assert_eq!(
        render(&explanation),
        "volume v: Warning (Degraded), for 3 min\n\
         why       one\n          two\n\
         doing     three\n\
         time left 5 s\n\
         must not  four\n"
    );
}
