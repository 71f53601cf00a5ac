use super::*;
use crate::test_cluster::TestCluster;

fn record(objects: &[&str]) -> ToldRecord {
    let fault = |object: &&str| ToldFault { kind: "server.down".to_owned(), object: (*object).to_owned() };
    ToldRecord { faults: objects.iter().map(fault).collect() }
}

#[test]
fn what_was_told_is_there_for_the_next_one_and_makes_the_state_no_newer() {
    let cluster = TestCluster::new(1, 1, 1, 1);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        assert_eq!(state.told().await, Ok(None));
        let stamp = state.stamp().await.unwrap();
        let first = state.note_told(None, record(&["node n1"])).await.unwrap();
        assert_eq!(state.told().await.unwrap().as_ref(), Some(&first));
        let other = state.note_told(None, record(&[])).await;
        assert_eq!(other, Err(StateError::Conflict), "somebody else tells");
        let second = state.note_told(Some(first.revision), record(&["node n1", "node n2"])).await.unwrap();
        assert_eq!(state.told().await.unwrap(), Some(second));
        assert_eq!(state.stamp().await.unwrap(), stamp);
    });
}
