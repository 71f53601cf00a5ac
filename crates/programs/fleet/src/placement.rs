//! On which node each client is, and which node owns its volume.
//!
//! Clients are dealt out to the nodes one after the other. Of 100 clients so many are *aligned*: on the node that owns their volume. The
//! others are spread evenly over the nodes, and so are the nodes that own their volumes.

/// A client's node, and the node that owns its volume; both by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where the client connects.
    pub client: usize,
    /// Who owns its volume.
    pub owner: usize,
}

/// How many of so many clients are on another node than the one that owns their volume, where there is another one.
pub fn clients_apart(clients: usize, aligned_percent: u8) -> usize {
    (clients * (100 - usize::from(aligned_percent.min(100))) + 50) / 100
}

/// Places so many clients on so many nodes, of which there is one at least. With one node alone all are aligned.
pub fn placements(clients: usize, nodes: usize, aligned_percent: u8) -> Vec<Placement> {
    let apart = if nodes > 1 { clients_apart(clients, aligned_percent) } else { 0 };
    // How many are apart up to a place in the row in which clients of one node stand side by side.
    let apart_before = |place: usize| place * apart / clients.max(1);
    let on_nodes_before = |node: usize| clients / nodes * node + (clients % nodes).min(node);
    let is_apart = |number: usize| {
        let place = on_nodes_before(number % nodes) + number / nodes;
        apart_before(place + 1) > apart_before(place)
    };
    let mut owned = vec![0_usize; nodes];
    (0..clients).filter(|number| !is_apart(*number)).for_each(|number| owned[number % nodes] += 1);
    let place = |number: usize| {
        let client = number % nodes;
        let others = (1..nodes).map(|distance| (client + distance) % nodes);
        let owner = match is_apart(number) {
            // The one that owns the fewest, of these the next one.
            true => others.min_by_key(|node| owned[*node]).unwrap_or(client),
            false => client,
        };
        owned[owner] += usize::from(owner != client);
        Placement { client, owner }
    };
    (0..clients).map(place).collect()
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
