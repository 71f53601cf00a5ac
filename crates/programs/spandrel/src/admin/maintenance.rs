//! Stopping and starting nodes, taking them into maintenance and out of it, and saying where they stand.

use spandrel_cluster::StateError;
use spandrel_shared::{Error, Place};

use super::administration::{Administration, node_not_found, state_error, unix_ms, unless_conflict};
use super::api::{
    self, Maintenance, MaintenanceProgress, NodeDrain, NodeDrained, NodeSafety, NodeStatus, NodeStop,
    PlaceChange,
};
use super::servers::ServerAccess;

/// How often a change of a node's maintenance is begun anew when something else changes at the same time.
const MAINTENANCE_TRIES: u32 = 16;

impl Administration {
    /// Starts a node that does not run.
    pub async fn start_node(&self, name: &str) -> Result<NodeStatus, Error> {
        self.nodes.start(name).await?;
        tracing::info!("node {name} was started");
        self.node(name).await
    }

    /// Stops a node that runs. One that is a process of its own ends as SIGTERM would have it: this returns before. That
    /// nothing needs it is checked first, unless its power is to fail.
    ///
    /// Errors: `NODE_NOT_FOUND`, `NODE_NOT_RUNNING`, `NODE_IS_A_PROCESS` if that is to be abrupt; but with `force` also
    /// `NODE_NEEDED` and `STATE_MAJORITY_NEEDED`.
    pub async fn stop_node(&self, name: &str, stop: NodeStop) -> Result<NodeStatus, Error> {
        if !stop.abrupt && !stop.force {
            self.check_stop(name).await?;
        }
        match self.server() {
            Ok(_) if !stop.abrupt => self.end_server(name).await,
            _ => self.stop_thread(name, stop.abrupt).await,
        }
    }

    async fn check_stop(&self, name: &str) -> Result<(), Error> {
        let facts = self.facts().await?;
        let node = facts.known_node(name)?;
        let against = facts.safety(node, &self.state_members().await?).against;
        against.into_iter().next().filter(|_| node.is_alive).map_or(Ok(()), Err)
    }

    /// Has the server of a node end.
    async fn end_server(&self, name: &str) -> Result<NodeStatus, Error> {
        let status = self.node(name).await?;
        let entries = self.server()?.servers().await?;
        let entry = entries.iter().find(|entry| entry.id == status.id);
        tracing::warn!("node {name} is told to end");
        match entry.map(|entry| &entry.access) {
            Some(ServerAccess::Here) => self.server()?.end(),
            Some(ServerAccess::There(client)) => {
                let told = client.post::<()>(api::SERVER_HERE_STOP, &()).await;
                told.map_err(|error| not_stopped(name, error))?;
            }
            None => return Err(node_not_found(name, &[])),
        }
        Ok(status)
    }

    /// Stops a node that is a thread of this process.
    async fn stop_thread(&self, name: &str, abrupt: bool) -> Result<NodeStatus, Error> {
        // For the totals; a node that does not answer is stopped all the same.
        if let Some(access) = self.entry(name).await?.access {
            self.report(access).await;
        }
        if let Some(report) = self.nodes.stop(name, abrupt).await? {
            self.take_in(&report);
        }
        tracing::warn!("node {name} was stopped{}", if abrupt { " abruptly" } else { "" });
        self.node(name).await
    }

    /// Ends this process as SIGTERM would.
    pub fn end_here(&self) -> Result<(), Error> {
        self.server()?.end();
        Ok(())
    }

    /// Puts a node into maintenance, or only says whether that could be done. It hands its volumes over by itself from
    /// then on, and keeps to that when it starts anew. Of one that is in maintenance already it says whether it may be
    /// switched off now: that may have changed since.
    ///
    /// Errors, but with `force`: `NODE_NEEDED` if volumes could not do without it, `STATE_MAJORITY_NEEDED` if the
    /// cluster's state could not. Others: `NODE_NOT_FOUND`.
    pub async fn drain_node(&self, name: &str, drain: NodeDrain) -> Result<NodeDrained, Error> {
        for _ in 0..MAINTENANCE_TRIES {
            // Before the facts: what changes after this is seen by the transaction.
            let seen = self.state().nodes().await.map_err(state_error)?;
            let facts = self.facts().await?;
            let known = facts.known_node(name)?;
            let volumes = facts.volumes_with(known);
            let members = self.state_members().await?;
            let mut warnings = Vec::new();
            for checked in [facts.check_drain(known), facts.check_votes(known, &members)] {
                match checked {
                    Err(needed) if drain.force => warnings.push(needed.why),
                    checked => checked?,
                }
            }
            if known.maintenance_since_unix_ms().is_none() && !drain.dry_run {
                match self.state().set_maintenance(known.id, Some(unix_ms()), &seen).await {
                    Ok(()) => tracing::warn!("node {name} goes into maintenance"),
                    Err(StateError::Conflict) => continue,
                    Err(error) => return Err(state_error(error)),
                }
            }
            let needing = facts.volumes_needing(known);
            return Ok(NodeDrained { node: self.node(name).await?, volumes, needing, warnings });
        }
        Err(state_error(StateError::Conflict))
    }

    /// Whether a node may be switched off now, and the arithmetic behind that.
    ///
    /// Errors: `NODE_NOT_FOUND`.
    pub async fn node_safety(&self, name: &str) -> Result<NodeSafety, Error> {
        let facts = self.facts().await?;
        Ok(facts.safety(facts.known_node(name)?, &self.state_members().await?))
    }

    /// How far a node is with leaving its volumes to others, if it is in maintenance. Reads little, so that it can be
    /// asked again and again.
    ///
    /// Errors: `NODE_NOT_FOUND`.
    pub async fn maintenance(&self, name: &str) -> Result<Option<MaintenanceProgress>, Error> {
        let entry = self.entry(name).await?;
        let records = self.state().nodes().await.map_err(state_error)?;
        let record = records.get(&entry.id).map(|stored| stored.record.clone());
        let known = self.know(entry, record).await;
        let Some(since_unix_ms) = known.maintenance_since_unix_ms() else { return Ok(None) };
        let volumes = self.state().volumes().await.map_err(state_error)?;
        let records = volumes.iter().map(|(volume, stored)| (*volume, &stored.record));
        let maintenance = Maintenance { since_unix_ms, volumes_left: known.volumes_of(records) };
        Ok(Some(MaintenanceProgress { maintenance, vms_left: self.vms_to_move(known.id).await? }))
    }

    /// Takes a node out of maintenance. One that is in none is left as it is.
    pub async fn resume_node(&self, name: &str) -> Result<NodeStatus, Error> {
        for _ in 0..MAINTENANCE_TRIES {
            let seen = self.state().nodes().await.map_err(state_error)?;
            let entry = self.entry(name).await?;
            match self.state().set_maintenance(entry.id, None, &seen).await {
                Ok(()) => {
                    tracing::info!("node {name} is not in maintenance any more");
                    return self.node(name).await;
                }
                Err(StateError::Conflict) => {}
                Err(error) => return Err(state_error(error)),
            }
        }
        Err(state_error(StateError::Conflict))
    }

    /// Says where a node stands. Copies of its slabs move apart by themselves, if they can.
    ///
    /// Errors: `NODE_NOT_FOUND`, `NAME_INVALID`.
    pub async fn set_place(&self, name: &str, change: PlaceChange) -> Result<Place, Error> {
        let entry = self.entry(name).await?;
        let put = |label: &mut Option<String>, change: &Option<String>| {
            if let Some(text) = change {
                *label = (!text.is_empty()).then(|| text.clone());
            }
        };
        let change = |place: &mut Place| {
            put(&mut place.site, &change.site);
            put(&mut place.rack, &change.rack);
            put(&mut place.chassis, &change.chassis);
        };
        let mut would = Place::default();
        change(&mut would);
        would.validate()?;
        let place = unless_conflict(|| self.state().set_place(entry.id, &change)).await?;
        tracing::info!("node {name} stands at: {place}");
        Ok(place)
    }
}

fn not_stopped(name: &str, error: Error) -> Error {
    let what = format!("node {name} is not stopped");
    match error.code.as_str() {
        "CLUSTER_NOT_REACHED" => Error::new(
            "NODE_NOT_RUNNING",
            what,
            error.why,
            "if it runs all the same, end it on its own server, with Ctrl-C or SIGTERM",
        ),
        "PATH_NOT_FOUND" => Error::new(
            "SERVER_IS_OLDER",
            what,
            "it runs a version that cannot be told to end by another server",
            "end it on its own server, with Ctrl-C or SIGTERM",
        ),
        _ => error,
    }
}
