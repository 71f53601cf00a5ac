use super::*;

fn text(is_running: bool, nodes_reached: usize, nodes_running: usize) -> String {
    status(&NodeFacts { is_running, nodes_reached, nodes_running }).to_string()
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
