use super::*;

fn text(is_running: bool, nodes_reached: usize, nodes_running: usize) -> String {
    let facts =
        NodeFacts { is_running, nodes_reached, nodes_running, is_in_maintenance: false, owns_volumes: true };
    status(&facts).to_string()
}

#[test]
fn a_node_in_maintenance_drains_and_is_paused_then() {
    let draining = NodeFacts {
        is_running: true,
        nodes_reached: 3,
        nodes_running: 3,
        is_in_maintenance: true,
        owns_volumes: true,
    };
    let text = |facts: NodeFacts| status(&facts).to_string();
    assert_eq!(text(draining), "Warning (Draining)");
    assert_eq!(text(NodeFacts { owns_volumes: false, ..draining }), "Warning (Paused)");
    assert_eq!(text(NodeFacts { nodes_reached: 0, ..draining }), "Warning (Isolated, Draining)");
    let off = NodeFacts { is_running: false, owns_volumes: false, ..draining };
    assert_eq!(text(off), "Unhealthy (Down, Paused)");
}

#[test]
fn a_node_is_up_down_or_isolated() {
    assert_eq!(text(true, 3, 3), "Healthy (Up)");
    assert_eq!(text(true, 1, 3), "Healthy (Up)");
    assert_eq!(text(true, 0, 3), "Warning (Isolated)");
    assert_eq!(text(false, 0, 3), "Unhealthy (Down)");
}

#[test]
fn a_node_that_is_alone_is_not_isolated() {
    assert_eq!(text(true, 0, 0), "Healthy (Up)");
}
