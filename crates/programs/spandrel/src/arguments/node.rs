//! `spandrel node`.

use clap::{Args, Subcommand};

use super::{
    JoinArguments, LogArguments, OutputArguments, ServerRemoveArguments, ServerRestartArguments,
    ThreadArguments, VmHostArguments,
};

/// `spandrel node`.
#[derive(Clone, Debug, Subcommand)]
pub enum NodeCommand {
    /// Let this server join a cluster as a node
    Join(JoinArguments),
    /// Run the node, in the foreground, until Ctrl-C or SIGTERM
    ///
    /// Other nodes take its volumes over when it ends. Tells systemd when it is ready (Type=notify).
    Run(NodeRunArguments),
    /// List the nodes
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Show everything about a node: its drives, its volumes, how it reaches the others
    Get(NodeArguments),
    /// Stop a node: it hands its volumes over, and ends; its clients lose their connections
    ///
    /// Refused if volumes or the cluster's state need it, as `node safe-to-stop` says. A node that is a server of its own goes
    /// into maintenance first, so that nothing is built elsewhere however long it is away, and its process ends. Start it
    /// there again, and then `node resume` it.
    Stop(NodeStopArguments),
    /// Start a node that was stopped
    Start(NodeArguments),
    /// Say whether a node may be switched off now, and why; exit status 0 if so, 1 if not
    ///
    /// The check that `node drain` makes: whether others have every part in sync of what the node holds, and whether most
    /// of those that vote on the cluster's state stay.
    SafeToStop(NodeArguments),
    /// Put a node into maintenance: it hands its volumes over, and takes none until it is resumed
    ///
    /// Clients go on. Refused if no other running node has all data of its volumes. Waits until the last volume is
    /// handed over; interrupted, the node goes on with it by itself. It stays in maintenance when it starts anew.
    Drain(NodeDrainArguments),
    /// Take a node out of maintenance
    Resume(NodeArguments),
    /// Restart a node with the program that is installed: it hands its volumes over first, and takes volumes again then
    Restart(ServerRestartArguments),
    /// Say where a node stands: at which site, in which rack and chassis
    ///
    /// Copies are kept apart as widely as they can be: at different sites, else in different racks, else in different chassis,
    /// else on different nodes. A kind of label counts once every node with drives has one and there are enough of them for
    /// a volume's copies. Those that lie closer together move apart by themselves.
    Set(NodeSetArguments),
    /// Take a node out of the cluster for good: empties its drives first, and waits for that; asked on another server
    ///
    /// It may run or be gone; one that runs hands its volumes over, and ends. Refused if the other nodes have no room for
    /// what is on its drives, with what lacks it, and if the cluster's state would lose its majority. Interrupted, its
    /// drives go on being emptied; the same command takes up the waiting again, `spandrel drive retire --undo` of each drive
    /// and `spandrel node resume` end it.
    Remove(ServerRemoveArguments),
}

/// `spandrel node run`.
#[derive(Clone, Debug, Args)]
pub struct NodeRunArguments {
    /// On which threads.
    #[command(flatten)]
    pub threads: ThreadArguments,

    /// What it has for virtual machines.
    #[command(flatten)]
    pub vms: VmHostArguments,

    /// How to log.
    #[command(flatten)]
    pub log: LogArguments,
}

/// `spandrel node stop`.
#[derive(Clone, Debug, Args)]
pub struct NodeStopArguments {
    /// The node's name
    pub name: String,

    /// Without warning, as if its power had failed, and unchecked: for nodes of `spandrel up`
    #[arg(long)]
    pub abrupt: bool,

    /// Only say what would be done, or what stands against it
    #[arg(long)]
    pub dry_run: bool,

    /// Also if volumes, or the cluster's state, cannot do without it: they stand while it is away
    #[arg(long)]
    pub force: bool,

    /// Wait no longer than this for the volumes to be handed over, and then for its end; without it as long as it takes
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel node set`.
#[derive(Clone, Debug, Args)]
pub struct NodeSetArguments {
    /// The node's name
    pub name: String,

    /// The building or room; an empty one takes the label away
    #[arg(long, required_unless_present_any = ["rack", "chassis"])]
    pub site: Option<String>,

    /// The rack; one of its site
    #[arg(long)]
    pub rack: Option<String>,

    /// The chassis that it shares with other servers; one of its rack
    #[arg(long)]
    pub chassis: Option<String>,
}

/// `spandrel node drain`.
#[derive(Clone, Debug, Args)]
pub struct NodeDrainArguments {
    /// The node's name
    pub name: String,

    /// Only say what would be done, or what stands against it
    #[arg(long)]
    pub dry_run: bool,

    /// Also if volumes, or the cluster's state, cannot do without the node: they stand while it is away
    #[arg(long)]
    pub force: bool,

    /// Wait no longer than this for the volumes to be handed over; without it as long as it takes
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// A node's name and how to print the result.
#[derive(Clone, Debug, Args)]
pub struct NodeArguments {
    /// The node's name
    pub name: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}
