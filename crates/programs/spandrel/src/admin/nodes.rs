//! The nodes of a cluster, as whoever administers it reaches them: in this process, or in one
//! elsewhere.

use futures_channel::mpsc;
use futures_util::future::BoxFuture;
use spandrel_node::{
    NodeLoad, NodeReport, ScrubProgress, VolumeCreated, VolumeCreation, VolumeGrown, VolumeGrowth,
};
use spandrel_platform::Address;
use spandrel_shared::{Error, NodeId, VmId, VolumeId};
use spandrel_volume::ScrubReport;
use tokio::io::{AsyncRead, AsyncWrite};

use super::api::{self, NodeHandOver, NodeScrubLine};
use super::client::path_with;
use super::http::HttpClient;
use crate::running_node::NodeHandle;

/// What carries bytes both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A node, and how it is reached.
#[derive(Clone)]
pub struct NodeEntry {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: NodeId,
    /// Where it serves NBD, the unix socket first, as far as that is known without asking it.
    pub nbd_addresses: Vec<Address>,
    /// `None` if it does not run.
    pub access: Option<NodeAccess>,
}

/// How a node is reached.
#[derive(Clone)]
pub enum NodeAccess {
    /// On threads of this process.
    Here(NodeHandle),
    /// At its own admin API.
    There(HttpClient),
}

/// The nodes of a cluster.
pub trait Nodes: Send + Sync {
    /// All of them, in the order in which people expect them.
    fn list(&self) -> BoxFuture<'_, Result<Vec<NodeEntry>, Error>>;

    /// What a drive is called that `node` has at `location`.
    fn drive_name(&self, node: &str, location: &str) -> Option<String>;

    /// Starts a node that does not run.
    fn start<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// Stops a node that runs; what it said last, if it was stopped in order.
    fn stop<'a>(&'a self, name: &'a str, abrupt: bool) -> BoxFuture<'a, Result<Option<NodeReport>, Error>>;
}

impl NodeAccess {
    /// What the node says of itself.
    pub async fn report(&self) -> Result<NodeReport, Error> {
        match self {
            Self::Here(node) => node.report().await,
            Self::There(client) => client.get(api::NODE_REPORT).await,
        }
    }

    /// How busy the node is.
    pub async fn load(&self) -> Result<NodeLoad, Error> {
        match self {
            Self::Here(node) => node.load().await,
            Self::There(client) => client.get(api::NODE_LOAD).await,
        }
    }

    /// Has the node make a volume.
    pub async fn create_volume(&self, creation: VolumeCreation) -> Result<VolumeCreated, Error> {
        match self {
            Self::Here(node) => node.create_volume(creation).await,
            Self::There(client) => client.post(api::NODE_VOLUMES, &creation).await,
        }
    }

    /// Has the node delete a volume.
    pub async fn delete_volume(&self, name: String) -> Result<(), Error> {
        match self {
            Self::Here(node) => node.delete_volume(name).await,
            Self::There(client) => client.delete(&path_with(api::NODE_VOLUME, &name)).await,
        }
    }

    /// Where a virtual machine is awaited on the node.
    pub async fn open_incoming(&self, vm: VmId) -> Result<Box<dyn Duplex>, Error> {
        match self {
            Self::Here(node) => Ok(Box::new(node.open_incoming(vm).await?)),
            Self::There(client) => {
                let path = path_with(api::NODE_VM_INCOMING, &vm.to_string());
                Ok(Box::new(client.open_stream(&path).await?))
            }
        }
    }

    /// The console of a virtual machine on the node.
    pub async fn open_console(&self, vm: VmId) -> Result<Box<dyn Duplex>, Error> {
        match self {
            Self::Here(node) => Ok(Box::new(node.open_console(vm).await?)),
            Self::There(client) => {
                let path = path_with(api::NODE_VM_CONSOLE, &vm.to_string());
                Ok(Box::new(client.open_stream(&path).await?))
            }
        }
    }

    /// Has the volume's owner hand it over to another node.
    pub async fn hand_over(&self, volume: VolumeId, to: NodeId) -> Result<(), Error> {
        match self {
            Self::Here(node) => node.hand_over(volume, to).await,
            Self::There(client) => client.post(api::NODE_HAND_OVER, &NodeHandOver { volume, to }).await,
        }
    }

    /// Has the volume's owner make it larger.
    pub async fn grow_volume(&self, growth: VolumeGrowth) -> Result<VolumeGrown, Error> {
        match self {
            Self::Here(node) => node.grow_volume(growth).await,
            Self::There(client) => client.post(api::NODE_GROW, &growth).await,
        }
    }

    /// Has the volume's owner check it, and tells how it gets on.
    pub async fn scrub_volume(
        &self,
        volume: VolumeId,
        heal: bool,
        progress: mpsc::UnboundedSender<ScrubProgress>,
    ) -> Result<ScrubReport, Error> {
        // Whoever wanted to know may have left.
        let tell = move |step: ScrubProgress| drop(progress.unbounded_send(step));
        match self {
            Self::Here(node) => node.scrub_volume(volume, heal, tell).await,
            Self::There(client) => {
                let path = api::NODE_SCRUB.replace("{volume}", &volume.to_string());
                let mut outcome = None;
                let each = |line: NodeScrubLine| match line {
                    NodeScrubLine::Progress(step) => tell(step),
                    NodeScrubLine::Done(report) => outcome = Some(Ok(report.into())),
                    NodeScrubLine::Failed(error) => outcome = Some(Err(error)),
                };
                client.stream(&format!("{path}?heal={heal}"), each).await?;
                outcome.unwrap_or_else(|| Err(client.broken("it ended before the check was over")))
            }
        }
    }
}
