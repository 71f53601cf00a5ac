//! Where the slabs of a new volume go, or those by which one grows, and which node owns it.
//!
//! A volume is fixed: room for all its slabs, times its copies, is promised when it is created, so
//! that no later write fails because somebody else was faster. What a plan holds to:
//!
//! - The copies of a slab are on different nodes. This is the only rule that can refuse a volume
//!   for which there would be room otherwise. Where nodes have labels, they are in different fault
//!   domains, the widest of which there are enough and which have room (see the module `domains`).
//! - *One copy of each slab is on the owner's node*, where reads then need no network, as long as
//!   more than the node's largest drive stays free on it (its part of the reserve). Beyond that the
//!   owner's node gets no more than its proportion.
//! - All other copies are in proportion to the free room of nodes, or of wider domains, and on a node to the free room
//!   of its drives. So drives fill up together: what one volume has put on its owner's node, the
//!   others avoid. Drives with equally much free room get equally many copies, give or take one;
//!   the owner's node is compared with itself alone.
//! - Every stretch of a volume is spread like the whole, and which drives hold a slab together is
//!   mixed (see the module `turns`): a lost drive is rebuilt from and to as many others as possible.
//! - The owner, where none is asked for, is the node that owns fewest volumes among those that
//!   have room for a copy of each slab.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use spandrel_shared::size::format_size;
use spandrel_shared::{BLOCK_BYTES, DriveId, Error, FaultDomain, NodeId};

use crate::apportion::{Share, apportion};
use crate::domains::{Domain, salt_of_identity};
use crate::space::{Space, usable_slabs};
use crate::turns::Turns;
use crate::view::{NodeDrives, PoolView};

/// The most copies that a volume can have.
pub const COPIES_MAX: u8 = 3;

/// A volume to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRequest<'a> {
    /// Its name, for texts.
    pub name: &'a str,
    /// Its size: a multiple of 4 KiB, not zero.
    pub size_bytes: u64,
    /// How many copies it keeps, 1 to 3. `None`: three where the pool has three nodes, else two.
    /// A single copy has to be asked for.
    pub copies: Option<u8>,
    /// Which node is to own it. `None`: whichever suits.
    pub owner: Option<NodeId>,
}

/// What creating a volume would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The node that is to own the volume.
    pub owner: NodeId,
    /// How many copies each slab has.
    pub copies: u8,
    /// The drives of each slab's copies. A copy on the owner's node is the first.
    pub slabs: Vec<Vec<DriveId>>,
    /// In what the copies of each slab are kept apart.
    pub apart_by: FaultDomain,
    /// How many slabs have a copy on the owner's node.
    pub slabs_local: u64,
    /// What the operator should know before agreeing.
    pub warnings: Vec<Warning>,
}

/// Something about a plan that is allowed and may still not be wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Warning {
    /// The volume has one copy: any lost drive that it is on loses data.
    SingleCopy,
    /// What stays free is less than the reserve: after the loss of a drive, its content may not
    /// find room until the drive is replaced. Both in slab copies.
    BelowReserve {
        /// What stays free.
        free_after: u64,
        /// What should.
        reserve: u64,
        /// Bytes in a slab.
        slab_bytes: u64,
    },
    /// Some nodes are offline: nothing is placed there until the pool is evened out.
    NodesOffline {
        /// Their names.
        names: Vec<String>,
    },
    /// The copies of a slab are kept apart less widely than the labels allow: there is no room for more.
    NotApart {
        /// In what they could be.
        wanted: FaultDomain,
        /// In what they are.
        apart_by: FaultDomain,
    },
    /// Copies are placed on nodes in maintenance: the others do not suffice.
    NodesInMaintenance {
        /// Their names.
        names: Vec<String>,
    },
}

impl Warning {
    /// A stable name, for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Warning::SingleCopy => "SINGLE_COPY",
            Warning::BelowReserve { .. } => "BELOW_RESERVE",
            Warning::NotApart { .. } => "NOT_APART",
            Warning::NodesOffline { .. } => "NODES_OFFLINE",
            Warning::NodesInMaintenance { .. } => "NODES_IN_MAINTENANCE",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::SingleCopy => {
                formatter.write_str("the volume has one copy: the loss of any drive that it is on loses data")
            }
            Warning::BelowReserve { free_after, reserve, slab_bytes } => write!(
                formatter,
                "{} of the pool would stay free, less than the reserve of {}: after the loss of a drive there \
                 may be no room to restore its copies until it is replaced",
                format_size(free_after * slab_bytes),
                format_size(reserve * slab_bytes)
            ),
            Warning::NotApart { wanted, apart_by } => write!(
                formatter,
                "the copies are on different {}, and not on different {}, for lack of room: they move apart when there is \
                 some, until then the loss of one {wanted} can cost several of them",
                apart_by.plural(),
                wanted.plural(),
            ),
            Warning::NodesOffline { names } => write!(
                formatter,
                "no copies are placed on nodes that are offline ({}): the volume will not be spread evenly",
                names.join(", ")
            ),
            Warning::NodesInMaintenance { names } => write!(
                formatter,
                "copies are placed on nodes in maintenance ({}), because the others do not suffice: the volume has \
                 fewer while these are away",
                names.join(", ")
            ),
        }
    }
}

/// Places a new volume, on nodes in maintenance only if the others do not suffice.
///
/// Errors: `SIZE_ZERO`, `SIZE_UNALIGNED`, `COPIES_INVALID`, `OWNER_UNKNOWN`, `OWNER_OFFLINE`, `NODE_IN_MAINTENANCE`,
/// `TOO_FEW_NODES`, `POOL_FULL`.
pub fn plan_volume(view: &PoolView, request: &VolumeRequest<'_>) -> Result<Plan, Error> {
    check_size(request)?;
    plan_for(view, request, Purpose::Create)
}

/// Places slabs that make a volume, or come to one.
pub(crate) fn plan_for(
    view: &PoolView,
    request: &VolumeRequest<'_>,
    purpose: Purpose,
) -> Result<Plan, Error> {
    let without = view.without_maintenance();
    let placed = without.and_then(|view| plan_among(&view, request, purpose).ok());
    let mut plan = placed.map_or_else(|| plan_among(view, request, purpose), Ok)?;
    plan.warnings = warnings(view, &plan);
    Ok(plan)
}

/// What slabs are placed for: for texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A new volume.
    Create,
    /// One that is there, and keeps as many copies as it does.
    Grow,
}

impl Purpose {
    /// That it cannot be done.
    fn refusal(self, name: &str) -> String {
        match self {
            Purpose::Create => format!("volume {name:?} cannot be made"),
            Purpose::Grow => format!("volume {name:?} cannot grow"),
        }
    }
}

/// Places slabs on nodes that are online. Warns of nothing.
fn plan_among(view: &PoolView, request: &VolumeRequest<'_>, purpose: Purpose) -> Result<Plan, Error> {
    let nodes = view.by_node();
    let space = Space::of(view);
    let copies = choose_copies(request, &nodes, purpose)?;
    let slabs = view.geometry.slabs_for(request.size_bytes);
    if slabs > volume_slabs_max(&space, copies) {
        return Err(pool_full(view, request, purpose, &space, slabs, copies));
    }
    let owner = &nodes[choose_owner(request, &nodes, slabs)?];
    let levels = view.levels(copies).into_iter().map(|level| (level, view.by_domain(level)));
    let (apart_by, domains) = levels
        .into_iter()
        .find(|(_, domains)| slabs <= usable_slabs(&free_in(domains), copies))
        .expect("nodes are the narrowest domains, and have room");
    let parts = divide(&domains, owner, slabs, copies);
    Ok(Plan {
        owner: owner.room.node,
        copies,
        slabs: place(&domains, owner.room.node, &parts, copies),
        apart_by,
        slabs_local: parts.local,
        warnings: Vec::new(),
    })
}

fn free_in(domains: &[Domain<'_>]) -> Vec<u64> {
    domains.iter().map(Domain::slabs_free).collect()
}

/// The slabs of the largest volume that fits. Slabs are numbered with 32 bits.
fn volume_slabs_max(space: &Space, copies: u8) -> u64 {
    space.usable_slabs(copies).min(u64::from(u32::MAX))
}

fn check_size(request: &VolumeRequest<'_>) -> Result<(), Error> {
    let what = Purpose::Create.refusal(request.name);
    let block = BLOCK_BYTES as u64;
    if request.size_bytes == 0 {
        return Err(Error::new("SIZE_ZERO", what, "its size is zero", "give it a size, such as 10 GiB"));
    }
    let beyond = request.size_bytes % block;
    if beyond == 0 {
        return Ok(());
    }
    let lower = request.size_bytes - beyond;
    let next = match lower.checked_add(block) {
        Some(higher) if lower > 0 => format!("make it {lower} or {higher} bytes"),
        Some(higher) => format!("make it {higher} bytes"),
        None => format!("make it {lower} bytes"),
    };
    let why = format!(
        "its size of {} bytes is {beyond} bytes above a multiple of {block}, the unit in which blocks are stored",
        request.size_bytes
    );
    Err(Error::new("SIZE_UNALIGNED", what, why, next))
}

/// How many copies the volume is to have, if there are enough nodes for them.
fn choose_copies(
    request: &VolumeRequest<'_>,
    nodes: &[NodeDrives<'_>],
    purpose: Purpose,
) -> Result<u8, Error> {
    let what = purpose.refusal(request.name);
    let with_drives = nodes.iter().filter(|node| !node.drives.is_empty()).count();
    let copies = request.copies.unwrap_or(if with_drives > 2 { 3 } else { 2 });
    if !(1..=COPIES_MAX).contains(&copies) {
        return Err(Error::new(
            "COPIES_INVALID",
            what,
            format!("it was to keep {copies} copies, and a volume keeps 1 to {COPIES_MAX}"),
            "use 3 to survive the loss of two nodes, 2 to survive the loss of one, 1 for what may be lost",
        ));
    }
    let is_usable = |node: &&NodeDrives<'_>| {
        node.room.is_online && node.drives.iter().any(|drive| drive.is_online && drive.slabs_total > 0)
    };
    let usable: Vec<&str> = nodes.iter().filter(is_usable).map(|node| node.room.name.as_str()).collect();
    if usable.len() >= usize::from(copies) {
        return Ok(copies);
    }
    let others = nodes.iter().filter(|node| !is_usable(node)).map(|node| node.room.name.as_str());
    let why = format!(
        "its {copies} copies must be on {copies} different nodes, and {} have drives that are online ({}); without: {}",
        usable.len(),
        list_or_none(usable.iter().copied()),
        list_or_none(others)
    );
    let next = match usable.len() {
        _ if purpose == Purpose::Grow => "bring nodes with drives online or add some".to_owned(),
        0 => "bring nodes with drives online".to_owned(),
        1 => "bring nodes with drives online or add some; or ask for 1 copy, if its data may be lost"
            .to_owned(),
        fewer => format!("bring nodes with drives online or add some; or ask for {fewer} copies"),
    };
    Err(Error::new("TOO_FEW_NODES", what, why, next))
}

fn list_or_none<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn pool_full(
    view: &PoolView,
    request: &VolumeRequest<'_>,
    purpose: Purpose,
    space: &Space,
    slabs: u64,
    copies: u8,
) -> Error {
    let (more, at_most, whose) = match purpose {
        Purpose::Create => ("", "make it at most", ""),
        Purpose::Grow => ("more ", "let it grow by at most", " to grow"),
    };
    let slab_bytes = view.geometry.slab_bytes();
    let usable = volume_slabs_max(space, copies);
    let free = space.nodes.iter().map(|node| format!("{} {}", node.name, node.free));
    let mut why = format!(
        "it needs {slabs} {more}slabs of {} × {copies} = {} slab copies; {} are free ({}), which is room for {usable} slabs \
         with {copies} copies on different nodes: {}",
        exact_size(slab_bytes),
        u128::from(slabs) * u128::from(copies),
        space.free(),
        list_or_none(free.collect::<Vec<_>>().iter().map(String::as_str)),
        exact_size(usable * slab_bytes),
    );
    let stranded: Vec<String> =
        space.stranded(copies).iter().map(|(node, slabs)| format!("{slabs} on {}", node.name)).collect();
    if !stranded.is_empty() {
        why += &format!("; no use for {}, because the other nodes have less room", stranded.join(", "));
    }
    let mut next = String::new();
    if usable > 0 {
        next += &format!("{at_most} {}, or ", exact_size(usable * slab_bytes));
    }
    let fewer = (2..copies)
        .filter(|_| purpose == Purpose::Create)
        .rev()
        .find(|fewer| space.usable_slabs(*fewer) >= slabs);
    if let Some(fewer) = fewer {
        next += &format!("keep {fewer} copies, or ");
    }
    next += "delete volumes, or add drives";
    if !stranded.is_empty() {
        next += " to the smaller nodes";
    }
    Error::new("POOL_FULL", format!("no room for volume {:?}{whose}", request.name), why, next)
}

/// A size in the largest unit that says it exactly, so that it can be typed in again.
pub(crate) fn exact_size(bytes: u64) -> String {
    let mut unit = 1 << 60;
    while unit > 1 && (bytes == 0 || !bytes.is_multiple_of(unit)) {
        unit >>= 10;
    }
    let unit_name = format_size(unit);
    let unit_name = unit_name.trim_start_matches("1 ");
    format!("{} {unit_name}", bytes / unit)
}

/// The index of the node that is to own the volume.
fn choose_owner(request: &VolumeRequest<'_>, nodes: &[NodeDrives<'_>], slabs: u64) -> Result<usize, Error> {
    let Some(asked) = request.owner else {
        let candidates = (0..nodes.len()).filter(|index| nodes[*index].slabs_free() > 0);
        let chosen = candidates.min_by_key(|index| {
            let node = &nodes[*index];
            // One in maintenance only if there is no other: a volume that is served is better than none.
            let last = node.room.is_in_maintenance;
            (last, node.slabs_free() < slabs, node.room.volumes_owned, Reverse(node.slabs_free()))
        });
        return Ok(chosen.expect("there is room for a slab, so a node has some"));
    };
    let what = Purpose::Create.refusal(request.name);
    let online = nodes.iter().filter(|node| node.room.is_online).map(|node| node.room.name.as_str());
    let next = format!("name another owner, or none; online are: {}", list_or_none(online));
    match nodes.iter().position(|node| node.room.node == asked) {
        Some(index) if nodes[index].room.is_in_maintenance => {
            let why = format!("it was to be owned by {}, which is in maintenance", nodes[index].room.name);
            let next = "name another owner, or none; or take the node out of maintenance with `spandrel node resume`";
            Err(Error::new("NODE_IN_MAINTENANCE", what, why, next))
        }
        Some(index) if nodes[index].room.is_online => Ok(index),
        Some(index) => {
            let why = format!("it was to be owned by {}, which is offline", nodes[index].room.name);
            Err(Error::new("OWNER_OFFLINE", what, why, next))
        }
        None => {
            let why = format!("it was to be owned by node {asked}, which the cluster does not have");
            Err(Error::new("OWNER_UNKNOWN", what, why, next))
        }
    }
}

/// How many copies each drive gets, by domain, and how many of them are on the owner's node.
struct Parts {
    drives: Vec<Vec<u64>>,
    local: u64,
}

/// Divides the copies among domains, and in each among its drives.
fn divide(domains: &[Domain<'_>], owner: &NodeDrives<'_>, slabs: u64, copies: u8) -> Parts {
    let is_owners = |domain: &Domain<'_>| domain.drives.iter().any(|(node, _)| node.node == owner.room.node);
    let mut shares: Vec<Share> =
        free_in(domains).into_iter().map(|free| Share { weight: free, limit: free.min(slabs) }).collect();
    let count = slabs * u64::from(copies);
    let even = apportion(count, &shares).expect("the caller knows that there is room");
    let by_drives = |quotas: Vec<u64>| -> Vec<Vec<u64>> {
        let parts = domains.iter().zip(quotas);
        parts.map(|(domain, quota)| divide_among_drives(domain, quota, |_| true)).collect()
    };
    // An owner that was asked for may have no drives.
    let Some(own) = domains.iter().position(is_owners) else {
        return Parts { drives: by_drives(even), local: 0 };
    };
    let above_reserve = owner.slabs_free().saturating_sub(owner.largest_drive_slabs()).min(slabs);
    // A smaller part of the owner's would be needed elsewhere; a larger one leaves the others less
    // than they have room for.
    let owners_part = above_reserve.max(even[own]);
    shares[own] = Share { weight: 0, limit: 0 };
    let others = apportion(count - owners_part, &shares);
    let mut quotas = others.expect("the others take what they take of an even division, or less");
    quotas[own] = owners_part;
    let mut drives = by_drives(quotas);
    let is_local = |node: NodeId| node == owner.room.node;
    let even_local = of_drives(&domains[own], &drives[own], is_local);
    // What the owner's node takes beyond its proportion, the others of its domain do not.
    let local = above_reserve.max(even_local);
    if local > even_local {
        let mine = divide_among_drives(&domains[own], local, is_local);
        let rest = divide_among_drives(&domains[own], owners_part - local, |node| !is_local(node));
        drives[own] = mine.iter().zip(rest).map(|(mine, rest)| mine + rest).collect();
    }
    Parts { drives, local }
}

/// Divides copies among those drives of a domain whose nodes are meant.
fn divide_among_drives(domain: &Domain<'_>, quota: u64, is_meant: impl Fn(NodeId) -> bool) -> Vec<u64> {
    let nodes = domain.drives.iter().map(|(node, _)| node.node);
    let share = |(node, free)| {
        let free = if is_meant(node) { free } else { 0 };
        Share { weight: free, limit: free }
    };
    let shares: Vec<Share> = nodes.zip(domain.drives_free()).map(share).collect();
    apportion(quota, &shares).expect("a domain's part is not above its room")
}

/// How many of these parts are on those nodes that are meant.
fn of_drives(domain: &Domain<'_>, parts: &[u64], is_meant: impl Fn(NodeId) -> bool) -> u64 {
    let meant = domain.drives.iter().zip(parts).filter(|((node, _), _)| is_meant(node.node));
    meant.map(|(_, part)| part).sum()
}

/// The drives of every slab.
fn place(domains: &[Domain<'_>], owner: NodeId, parts: &Parts, copies: u8) -> Vec<Vec<DriveId>> {
    let places = domains.iter().zip(&parts.drives).map(|(domain, drives)| (drives.iter().sum(), domain.salt));
    let mut domain_turns = Turns::new(places, usize::from(copies));
    let mut drive_turns: Vec<Turns> =
        domains.iter().zip(&parts.drives).map(|(domain, drives)| turns_of_drives(domain, drives)).collect();
    let mut slabs = Vec::new();
    loop {
        let mut drives = Vec::with_capacity(usize::from(copies));
        for domain in domain_turns.next_round() {
            let drive = drive_turns[domain].next_round().next();
            let (node, drive) =
                domains[domain].drives[drive.expect("a domain has as many turns as its drives")];
            drives.push(drive.drive);
            if node.node == owner {
                let last = drives.len() - 1;
                drives.swap(0, last);
            }
        }
        if drives.is_empty() {
            return slabs;
        }
        slabs.push(drives);
    }
}

fn turns_of_drives(domain: &Domain<'_>, parts: &[u64]) -> Turns {
    let salts = domain.drives.iter().map(|(_, drive)| salt_of_identity(drive.drive.to_bytes()));
    Turns::new(parts.iter().copied().zip(salts), 1)
}

fn warnings(view: &PoolView, plan: &Plan) -> Vec<Warning> {
    let (nodes, space) = (view.by_node(), Space::of(view));
    let mut warnings = Vec::new();
    if plan.copies == 1 {
        warnings.push(Warning::SingleCopy);
    }
    let free_after = space.free() - plan.slabs.len() as u64 * u64::from(plan.copies);
    if free_after < space.reserve {
        let slab_bytes = view.geometry.slab_bytes();
        warnings.push(Warning::BelowReserve { free_after, reserve: space.reserve, slab_bytes });
    }
    let names_of = |is_meant: &dyn Fn(&NodeDrives<'_>) -> bool| -> Vec<String> {
        nodes.iter().filter(|node| is_meant(node)).map(|node| node.room.name.clone()).collect()
    };
    let wanted = view.levels(plan.copies)[0];
    if plan.apart_by < wanted {
        warnings.push(Warning::NotApart { wanted, apart_by: plan.apart_by });
    }
    let names = names_of(&|node| !node.room.is_online && !node.drives.is_empty());
    if !names.is_empty() {
        warnings.push(Warning::NodesOffline { names });
    }
    let used = plan.copies_per_drive();
    let is_used = |node: &NodeDrives<'_>| node.drives.iter().any(|drive| used.contains_key(&drive.drive));
    let names = names_of(&|node| node.room.is_in_maintenance && is_used(node));
    if !names.is_empty() {
        warnings.push(Warning::NodesInMaintenance { names });
    }
    warnings
}

impl Plan {
    /// How many slab copies the plan puts on each drive.
    pub fn copies_per_drive(&self) -> BTreeMap<DriveId, u32> {
        let mut copies = BTreeMap::new();
        for drive in self.slabs.iter().flatten() {
            *copies.entry(*drive).or_default() += 1;
        }
        copies
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
