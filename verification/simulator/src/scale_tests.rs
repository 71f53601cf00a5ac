use super::*;

#[test]
fn a_lost_owner_of_many_volumes_is_replaced_in_time() {
    let findings = measure(1, Scale::SMALL, |_| ()).expect("it can be built");
    assert_eq!(findings.check(), Ok(()), "{findings}");
    assert!(findings.waited.len() >= Scale::SMALL.owned_by_lost);
}

#[test]
fn what_is_too_large_is_noticed() {
    let found = Findings {
        scale: Scale::SMALL,
        state_keys: 1,
        state_bytes: BTreeMap::from([("slabs".to_owned(), STATE_BYTES_MAX)]),
        transaction_max: (TRANSACTION_BYTES_MAX as u64, TRANSACTION_OPERATIONS_MAX as u64),
        waited: vec![TAKE_OVER_MAX; Scale::SMALL.owned_by_lost],
        failed: Vec::new(),
        requests: StateRequests::default(),
        virtual_time: Duration::ZERO,
    };
    assert_eq!(found.check(), Ok(()));
    let too_large = [
        Findings {
            state_bytes: BTreeMap::from([("a".to_owned(), STATE_BYTES_MAX), ("b".to_owned(), 1)]),
            ..found.clone()
        },
        Findings { transaction_max: (found.transaction_max.0 + 1, 1), ..found.clone() },
        Findings { transaction_max: (1, found.transaction_max.1 + 1), ..found.clone() },
        Findings { waited: vec![TAKE_OVER_MAX + Duration::from_millis(1); 50], ..found.clone() },
        Findings { waited: found.waited[1..].to_vec(), ..found.clone() },
        Findings { failed: vec!["a volume is not served".to_owned()], ..found.clone() },
    ];
    assert!(too_large.iter().all(|found| found.check().is_err()));
}
