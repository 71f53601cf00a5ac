use super::*;
use crate::test_cluster::{TestCluster, TestState, code, new_volume, node, owner, plan, volume};

fn vm(number: u8) -> VmId {
    VmId::from_bytes([number; 16])
}

fn record(name: &str, volume: VolumeId) -> VmRecord {
    VmRecord {
        name: name.to_owned(),
        volume,
        processors: 1,
        memory_bytes: 512 << 20,
        boot: VmBoot::Disk,
        disk_bus: VmDiskBus::Nbd,
        priority: VmPriority::Medium,
        goal: VmGoal::Off,
        placement: None,
        migration: None,
        waits_because: None,
        last_run: 0,
        created_unix_ms: 5,
    }
}

async fn make_volume(state: &TestState, number: u8) {
    let room = state.pool_room().await.unwrap();
    let sets = plan(1, 3, 3, 1, u64::from(number));
    state.create_volume(&new_volume(number, 1, 3), &sets, &room).await.unwrap();
}

async fn stored(state: &TestState, number: u8) -> Stored<VmRecord> {
    state.vms().await.unwrap().remove(&vm(number)).expect("it was made")
}

#[test]
fn a_virtual_machine_is_made_found_and_deleted_and_its_disk_is_nobody_elses_meanwhile() {
    let cluster = TestCluster::new(1, 3, 1, 100);
    let (state, others) = (cluster.state(1), cluster.state(2));
    cluster.platform.run(async move {
        make_volume(&state, 1).await;
        make_volume(&state, 2).await;
        state.create_vm(vm(1), &record("web", volume(1))).await.unwrap();
        state.create_vm(vm(1), &record("web", volume(1))).await.unwrap();
        assert_eq!(code(others.create_vm(vm(2), &record("db", volume(1))).await), "VOLUME_OF_VM");
        assert_eq!(code(others.create_vm(vm(2), &record("web", volume(2))).await), "VM_EXISTS");
        assert_eq!(code(others.create_vm(vm(2), &record("db", volume(7))).await), "VOLUME_NOT_FOUND");
        assert_eq!(code(others.create_vm(vm(2), &record("d b", volume(2))).await), "NAME_INVALID");
        let small = VmRecord { memory_bytes: 1 << 20, ..record("db", volume(2)) };
        assert_eq!(code(others.create_vm(vm(2), &small).await), "VM_INVALID");
        assert_eq!(code(others.delete_volume(volume(1), 9).await), "VOLUME_OF_VM");
        let (found, seen) = others.vm_by_name("web").await.unwrap().expect("it was made");
        assert_eq!((found, &seen.record), (vm(1), &record("web", volume(1))));
        state.delete_vm(vm(1), &seen).await.unwrap();
        state.delete_vm(vm(1), &seen).await.unwrap();
        assert_eq!(others.vm_by_name("web").await.unwrap(), None);
        others.create_vm(vm(2), &record("web", volume(1))).await.unwrap();
        let seen = stored(&others, 2).await;
        others.delete_vm(vm(2), &seen).await.unwrap();
        others.delete_volume(volume(1), 9).await.unwrap();
    });
}

#[test]
fn of_two_nodes_that_claim_a_virtual_machine_one_has_it_and_one_that_is_claimed_is_not_deleted() {
    let cluster = TestCluster::new(2, 3, 1, 100);
    let (first, second) = (cluster.state(1), cluster.state(2));
    cluster.platform.run(async move {
        make_volume(&first, 1).await;
        let wanted = VmRecord { goal: VmGoal::Running, ..record("web", volume(1)) };
        first.create_vm(vm(1), &wanted).await.unwrap();
        let seen = stored(&second, 1).await;
        assert_eq!(code(first.delete_vm(vm(1), &seen).await), "VM_NOT_OFF");
        let claim = |number| seen.record.claimed(node(number), PlacementReason::Started, 7);
        let claimed = first.change_vm(vm(1), &seen, claim(1)).await.unwrap();
        assert_eq!(second.change_vm(vm(1), &seen, claim(2)).await, Err(StateError::Conflict));
        assert_eq!(claimed.record.placement.as_ref().map(|placement| placement.run), Some(1));
        assert_eq!(code(first.delete_vm(vm(1), &claimed).await), "VM_NOT_OFF");
        let lost = PlacementReason::NodeLost { node: node(1) };
        let released = second.change_vm(vm(1), &claimed, claimed.record.released(Some(lost))).await.unwrap();
        let again = released.record.claimed(node(2), PlacementReason::Started, 8);
        assert_eq!((again.last_run, again.waits_because), (2, None), "a run is never used twice");
    });
}

#[test]
fn in_a_state_that_was_put_back_nothing_runs_and_runs_are_new() {
    let cluster = TestCluster::new(3, 3, 1, 100);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        make_volume(&state, 1).await;
        state.create_vm(vm(1), &record("web", volume(1))).await.unwrap();
        let seen = stored(&state, 1).await;
        let claimed = seen.record.claimed(owner(1).shard.node, PlacementReason::Started, 7);
        state.change_vm(vm(1), &seen, claimed).await.unwrap();
        let restored = stored(&state, 1).await.record.restored(1);
        assert_eq!(restored.placement, None);
        assert!(restored.last_run > 1 << 31);
    });
}
