use spandrel_cluster::{VmDiskBus, VmGoal, VmPriority};
use spandrel_shared::VmId;

use super::*;

fn status(name: &str, state: VmState) -> VmStatus {
    VmStatus {
        name: name.to_owned(),
        id: VmId::from_random(1, 2),
        volume: format!("{name}-disk"),
        processors: 2,
        memory_bytes: 512 << 20,
        boot: VmBoot::Disk,
        disk_bus: VmDiskBus::Nbd,
        priority: VmPriority::Medium,
        goal: VmGoal::Running,
        state,
        why: None,
        node: None,
        node_because: None,
        node_since_unix_ms: None,
        moves_to: None,
        runs: 1,
        accelerator: None,
    }
}

#[test]
fn a_list_says_of_each_what_is_the_matter_with_it() {
    let running = VmStatus { node: Some("n2".to_owned()), ..status("web", VmState::Running) };
    let waiting = VmStatus { why: Some("no node has room".to_owned()), ..status("db", VmState::Waiting) };
    assert_eq!(
        render_list(&[running, waiting]),
        "\
NAME  STATE    NODE  DISK      VCPUS   MEMORY  PRIORITY
web   running  n2    web-disk      2  512 MiB  medium
db    waiting  -     db-disk       2  512 MiB  medium
db is waiting: no node has room
"
    );
}

#[test]
fn one_is_shown_with_where_it_runs_and_why_there() {
    let vm = VmStatus {
        node: Some("n2".to_owned()),
        node_because: Some("node n1 was lost".to_owned()),
        node_since_unix_ms: Some(1000),
        accelerator: Some("kvm".to_owned()),
        runs: 2,
        boot: VmBoot::Kernel { kernel: "/k".to_owned(), initrd: None, arguments: "quiet".to_owned() },
        ..status("web", VmState::Running)
    };
    assert_eq!(
        render(&vm, 8000),
        "\
web is running

  node       n2, for 7 s: node n1 was lost
  runs by    kvm
  disk       volume web-disk, by nbd
  processors 2
  memory     512 MiB
  priority   medium
  kernel     /k
  append     quiet
  claimed    2 times
"
    );
}
