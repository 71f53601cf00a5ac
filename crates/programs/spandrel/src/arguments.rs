//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use spandrel_cluster::MediaClass;
use spandrel_fleet::FleetArguments;
use spandrel_inspect::InspectArguments;
use spandrel_shared::duration::parse_duration;
use spandrel_shared::size::parse_size;
use spandrel_shared::{RepairShare, SlabGeometry};

use crate::admin::api::NewSize;
use crate::commands::TopArguments;
use crate::server::PORT_DEFAULT;

const EXIT_CODES: &str = "\
Exit status:
  0    done
  1    refused or failed; the error on standard error has a code, a reason and a way out
  2    verify, scrub or inspect found damage, differences, or copies that they could not check
  64   the command line makes no sense
  130  interrupted

The cluster's directory is --dir, else $SPANDREL_DIR, else $XDG_DATA_HOME/spandrel, else
~/.local/share/spandrel. With --server a server elsewhere is asked instead.";

/// Spandrel: storage of a few servers as one, every write on two or three of them
#[derive(Debug, Parser)]
#[command(name = "spandrel", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Arguments {
    /// Which cluster.
    #[command(flatten)]
    pub reach: ReachArguments,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Which cluster is asked, and how.
#[derive(Clone, Debug, Default, Args)]
pub struct ReachArguments {
    /// The cluster's directory
    #[arg(long, global = true, env = "SPANDREL_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Ask a server elsewhere instead, with an access token: its address or name, as in its --listen
    #[arg(long, global = true, value_name = "ADDRESS[:PORT]")]
    pub server: Option<String>,

    /// The access token: what `spandrel access create` has printed. Other users of this machine can see what stands here
    #[arg(
        long = "token",
        global = true,
        env = "SPANDREL_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub access_token: Option<String>,

    /// A file that holds the access token
    // The same identity as the option of `join`, which takes its place there.
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a cluster of several nodes on this machine, in the foreground
    ///
    /// Each node has its own drives, files in DIR, and serves every volume on its own NBD socket. The
    /// same DIR comes back with all its data. Ends cleanly on Ctrl-C or SIGTERM.
    Up(UpArguments),
    /// Show how the cluster is
    Status(OutputArguments),
    /// Watch how busy the cluster is: operations, latency and queue by layer, nodes, volumes, repairs, pauses
    Top(TopArguments),
    /// Make a cluster of servers, and let servers join it
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Make, look at, check and delete volumes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Let this server join a cluster as a node, run it; look at nodes, stop and start them
    #[command(subcommand)]
    Node(NodeCommand),
    /// Let this server join a cluster as a witness, and run it
    ///
    /// A witness has no drives and serves nobody. It helps to keep the cluster's state, so that a cluster of
    /// two nodes goes on without either, and one of four without any two.
    #[command(subcommand)]
    Witness(WitnessCommand),
    /// Say who may use the admin API
    #[command(subcommand)]
    Access(AccessCommand),
    /// Look at drives
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Look at all drives together, say how they keep themselves, spread what is on them
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Show what is the matter with the cluster
    #[command(subcommand)]
    Fault(FaultCommand),
    /// Say why something is as it is, what is being done about it, and what you may and must not do
    #[command(subcommand)]
    Explain(ExplainCommand),
    /// Scrub volumes now, or show how far their scrubs are
    ///
    /// A scrub reads every block of every copy, checks it against its checksum and the other copies,
    /// and heals what is damaged.
    Scrub(ScrubArguments),
    /// Measure the cluster with a fleet of clients
    Fleet(FleetArguments),
    /// Show it all in three minutes: a cluster, a sweep, a node that dies under load and comes back
    Demo(DemoArguments),
    /// Print the completion script for a shell
    Completions(CompletionsArguments),
}

/// `spandrel up`.
#[derive(Clone, Debug, Args)]
pub struct UpArguments {
    /// Keep the drives in memory: quicker than any disk, and gone when the cluster ends
    #[arg(long)]
    pub memory: bool,

    /// How many nodes [default: 4]
    #[arg(long, value_name = "COUNT")]
    pub nodes: Option<u32>,

    /// How many drives each node has [default: 2]
    #[arg(long, value_name = "COUNT")]
    pub drives: Option<u32>,

    /// How large each drive is [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub drive_size: Option<u64>,

    /// The unit in which room is given to volumes: a power of two from 4M to 256M [default: a 64th
    /// of a drive, within these]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub slab_size: Option<u64>,

    /// Let drive files take room only as they are written to. If the file system fills up later,
    /// writes fail
    #[arg(long)]
    pub sparse: bool,

    /// Where to listen on TCP, if at all (see --nbd-port); without TLS only this machine itself
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,

    /// Serve NBD on TCP too: the first node on this port, the others on those behind it
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub nbd_port: Option<u16>,

    /// How to log.
    #[command(flatten)]
    pub log: LogArguments,
}

/// How a cluster's or a server's process logs.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LogArguments {
    /// Log to standard error instead of DIR/log/spandrel.log, and more
    #[arg(short, long)]
    pub verbose: bool,

    /// How a line of the log looks
    #[arg(long, value_enum, env = "SPANDREL_LOG_FORMAT", value_name = "FORMAT", default_value_t)]
    pub log_format: LogFormat,
}

/// The forms of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs: one JSON object a line, with time, level, target, node, message and fields
    Json,
}

/// How to print a result.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArguments {
    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// The forms of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

/// `spandrel volume`.
#[derive(Clone, Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume
    Create(VolumeCreateArguments),
    /// List the volumes
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Show a volume: how it is, where its copies are, how to use it
    Get(VolumeArguments),
    /// Have another node serve a volume; its clients go on
    Move(VolumeMoveArguments),
    /// Make a volume larger while it is used; it never becomes smaller
    ///
    /// Its clients go on, and see the new size when they connect anew: NBD cannot tell them in a connection. Returns when
    /// the volume has the size. If that cannot be, it keeps the one that it has, and the error says why.
    ///
    /// For example, `spandrel volume resize disk1 +10G` adds 10 GiB, and `spandrel volume resize disk1 50G` makes it 50 GiB
    /// large, whatever it was before.
    Resize(VolumeResizeArguments),
    /// Delete a volume and all its data
    #[command(alias = "rm")]
    Delete(VolumeDeleteArguments),
    /// Read every block of every copy of a volume, check it, and compare the copies
    ///
    /// The volume can be used meanwhile. Exit status 2 if anything is damaged or different, or if a
    /// copy could not be read.
    Verify(VerifyArguments),
}

/// `spandrel volume create`.
#[derive(Clone, Debug, Args)]
pub struct VolumeCreateArguments {
    /// Its name: letters, digits, '-', '_' and '.'
    pub name: String,

    /// Its size, a multiple of 4 KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub size: u64,

    /// How many copies of it are kept, each on another node [default: 3, or 2 if there are only two
    /// nodes]
    #[arg(long, value_name = "COUNT")]
    pub copies: Option<u8>,

    /// The node that is to serve it; its reads need no network there [default: the one with the
    /// fewest volumes]
    #[arg(long, value_name = "NODE")]
    pub owner: Option<String>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// A volume's name and how to print the result.
#[derive(Clone, Debug, Args)]
pub struct VolumeArguments {
    /// The volume's name
    pub name: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel volume move`.
#[derive(Clone, Debug, Args)]
pub struct VolumeMoveArguments {
    /// The volume's name
    pub name: String,

    /// The node that is to serve it
    #[arg(long, value_name = "NODE")]
    pub owner: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel volume resize`.
#[derive(Clone, Debug, Args)]
pub struct VolumeResizeArguments {
    /// The volume's name
    pub name: String,

    /// The size that it is to have, or with '+' by how much it is to grow: 50G, +10G, 1536M (units of
    /// 1024: K, M, G, T, P), a multiple of 4 KiB
    #[arg(value_name = "SIZE", value_parser = parse_new_size)]
    pub size: NewSize,

    /// Only print what would be done: which drives would hold the copies that come
    #[arg(long)]
    pub dry_run: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel volume delete`.
#[derive(Clone, Debug, Args)]
pub struct VolumeDeleteArguments {
    /// The volume's name
    pub name: String,

    /// Also if a client has it open for writing
    #[arg(long)]
    pub force: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel volume verify`.
#[derive(Clone, Debug, Args)]
pub struct VerifyArguments {
    /// The volume's name
    pub name: String,

    /// Also heal what is damaged
    #[arg(long)]
    pub heal: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel cluster`.
#[derive(Clone, Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a cluster whose first node is this server, and print what lets others join
    ///
    /// Only makes files, in --dir. `spandrel node run` then runs the node.
    Init(ClusterInitArguments),
    /// Show how the cluster is
    Status(OutputArguments),
    /// Print a new join token, good for a week; list those that are valid, revoke one
    JoinToken(JoinTokenArguments),
    /// Show which servers keep the cluster's state
    State(OutputArguments),
    /// Show the servers, nodes and witnesses, and which version of the program each runs
    Servers(OutputArguments),
    /// Restart all servers, one after the other, with the program that is installed: clients go on
    ///
    /// Each node hands its volumes over first, and the next server waits until all copies are in sync again. Stops, and
    /// says why, where a server is needed by volumes or by the cluster's state, or does not come back. The processes go on
    /// under their numbers, so that whatever looks after them sees no end.
    Restart(ClusterRestartArguments),
    /// Write the cluster's state into a file. Each server makes such backups by itself, too
    Backup(BackupArguments),
    /// Put the cluster's state back to a backup, when the newest one is lost for good
    ///
    /// To be run on one server, while all of them are stopped: the way out when most of the servers that keep the
    /// state are lost for good, or when the state is older than what the drives have seen. Says what may be lost,
    /// and asks.
    Recover(RecoverArguments),
    /// Show which volumes wait for their copies to be compared after `cluster recover`, or go on without some nodes
    Settle(SettleArguments),
}

/// `spandrel cluster restart`.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterRestartArguments {
    /// Only these servers
    #[arg(value_name = "SERVER")]
    pub names: Vec<String>,

    /// Only servers whose program has been replaced since they started
    #[arg(long)]
    pub outdated: bool,

    /// Only say whether each can be restarted now, and with which version
    #[arg(long)]
    pub dry_run: bool,

    /// Wait no longer than this for one server to be back, or for copies to be in sync again [default: 1800]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
}

/// `spandrel node restart` and `spandrel witness restart`.
#[derive(Clone, Debug, Args)]
pub struct ServerRestartArguments {
    /// The server's name
    pub name: String,

    /// Only say whether it can be restarted now, and with which version
    #[arg(long)]
    pub dry_run: bool,

    /// Also if volumes, or the cluster's state, cannot do without it: they stand until it is back
    #[arg(long)]
    pub force: bool,

    /// Wait no longer than this for it to be back [default: 1800]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
}

/// `spandrel cluster join-token`.
#[derive(Clone, Debug, Args)]
pub struct JoinTokenArguments {
    /// What to do; a new one is made if nothing is said.
    #[command(subcommand)]
    pub command: Option<JoinTokenCommand>,
}

/// `spandrel cluster join-token`.
#[derive(Clone, Debug, Subcommand)]
pub enum JoinTokenCommand {
    /// Print a new one
    Create,
    /// List those that are valid, without their secrets
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Let nobody join any more with one of them
    Revoke(JoinTokenNameArguments),
}

/// `spandrel cluster join-token revoke`.
#[derive(Clone, Debug, Args)]
pub struct JoinTokenNameArguments {
    /// How its number begins, as the list shows it
    pub id: String,
}

/// `spandrel cluster backup`.
#[derive(Clone, Debug, Args)]
pub struct BackupArguments {
    /// A file that is not there yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `spandrel cluster recover`.
#[derive(Clone, Debug, Args)]
pub struct RecoverArguments {
    /// The backup: any server's newest one in DIR/backups, or one that `spandrel cluster backup` has made
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "from_member",
        conflicts_with = "from_member"
    )]
    pub from: Option<PathBuf>,

    /// Use what this server's own member of etcd still has: newer than any backup, if it was not cut off
    #[arg(long)]
    pub from_member: bool,

    /// Only say what would be done, and what may be lost
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,
}

/// `spandrel cluster settle`.
#[derive(Clone, Debug, Args)]
pub struct SettleArguments {
    /// Give the drives of this node up for lost; may be said several times
    #[arg(long, value_name = "NODE")]
    pub without: Vec<String>,

    /// Only show what waits
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,
}

/// `spandrel cluster init`.
#[derive(Clone, Debug, Args)]
pub struct ClusterInitArguments {
    /// The cluster's name
    #[arg(long)]
    pub name: String,

    /// What this server is and where it listens.
    #[command(flatten)]
    pub server: ServerArguments,

    /// The unit in which room is given to volumes: a power of two from 4M to 256M
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_slab_size)]
    pub slab_size: SlabGeometry,

    /// Keep the cluster's state in an etcd that others look after: its members, like
    /// etcd://10.0.0.5:2379. Those on other machines need the three files below
    #[arg(long, value_name = "URL,...", value_delimiter = ',', value_parser = parse_state)]
    pub state: Vec<String>,

    /// The certificate of the authority that has signed for the members of that etcd, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["state", "state_certificate", "state_key"])]
    pub state_authority: Option<PathBuf>,

    /// A certificate that they let in. All servers of the cluster use it, and get it when they join
    #[arg(long, value_name = "FILE", requires_all = ["state", "state_authority", "state_key"])]
    pub state_certificate: Option<PathBuf>,

    /// Its private key
    #[arg(long, value_name = "FILE", requires_all = ["state", "state_authority", "state_certificate"])]
    pub state_key: Option<PathBuf>,
}

/// What a new server is and where it listens.
#[derive(Clone, Debug, Args)]
pub struct ServerArguments {
    /// The server's name [default: the machine's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// Where the other servers reach this one: an address, with the first of four ports unless it is 7440.
    /// Several addresses are several ways
    #[arg(long, value_name = "ADDRESS[:PORT],...", value_delimiter = ',', required = true, value_parser = parse_listen)]
    pub listen: Vec<SocketAddr>,

    /// The program etcd, version 3.4 or later, with which servers keep the cluster's state
    #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
    pub etcd: PathBuf,
}

/// `spandrel witness`.
#[derive(Clone, Debug, Subcommand)]
pub enum WitnessCommand {
    /// Let this server join a cluster as a witness
    Join(JoinArguments),
    /// Run the witness, in the foreground, until Ctrl-C or SIGTERM
    Run(RunArguments),
    /// Restart a witness with the program that is installed
    Restart(ServerRestartArguments),
    /// Take a witness out of the cluster for good; asked on another server
    Remove(ServerRemoveArguments),
}

/// `spandrel node join` and `spandrel witness join`.
#[derive(Clone, Debug, Args)]
pub struct JoinArguments {
    /// What `spandrel cluster init` or `spandrel cluster join-token` has printed; `-` for standard input. Other users of
    /// this machine can see what stands here
    #[arg(required_unless_present = "token_file", conflicts_with = "token_file")]
    pub token: Option<String>,

    /// A file that holds the token
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// What this server is and where it listens.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `spandrel node run` and `spandrel witness run`.
#[derive(Clone, Copy, Debug, Args)]
pub struct RunArguments {
    /// How to log.
    #[command(flatten)]
    pub log: LogArguments,
}

/// `spandrel access`.
#[derive(Clone, Debug, Subcommand)]
pub enum AccessCommand {
    /// List who may use the admin API
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Let somebody use the admin API, and print the token that they show
    Create(AccessCreateArguments),
    /// Take somebody's access back
    #[command(alias = "rm")]
    Delete(AccessNameArguments),
}

/// `spandrel access create`.
#[derive(Clone, Debug, Args)]
pub struct AccessCreateArguments {
    /// Who: letters, digits, '-', '_' and '.'
    pub name: String,

    /// How much they may do
    #[arg(long, value_enum)]
    pub role: RoleArgument,
}

/// A role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleArgument {
    /// Look at everything
    Read,
    /// Also make, move and check volumes, drain and resume nodes
    Operate,
    /// Everything
    Administer,
}

/// `spandrel access delete`.
#[derive(Clone, Debug, Args)]
pub struct AccessNameArguments {
    /// Who
    pub name: String,
}

/// `spandrel node`.
#[derive(Clone, Debug, Subcommand)]
pub enum NodeCommand {
    /// Let this server join a cluster as a node
    Join(JoinArguments),
    /// Run the node, in the foreground, until Ctrl-C or SIGTERM
    ///
    /// Other nodes take its volumes over when it ends. Tells systemd when it is ready (Type=notify).
    Run(RunArguments),
    /// List the nodes
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Show everything about a node: its drives, its volumes, how it reaches the others
    Get(NodeArguments),
    /// Stop a node: its volumes move to other nodes, its clients lose their connections
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

/// `spandrel node remove` and `spandrel witness remove`.
#[derive(Clone, Debug, Args)]
pub struct ServerRemoveArguments {
    /// The server's name
    pub name: String,

    /// Only say what would be done, or what stands against it
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,
}

/// `spandrel node stop`.
#[derive(Clone, Debug, Args)]
pub struct NodeStopArguments {
    /// The node's name
    pub name: String,

    /// Without warning, as if its power had failed
    #[arg(long)]
    pub abrupt: bool,

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

/// `spandrel drive`.
#[derive(Clone, Debug, Subcommand)]
pub enum DriveCommand {
    /// List the drives
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Show everything about a drive
    Get(DriveGetArguments),
    /// Give drives of this server to the pool: block devices or files
    ///
    /// A drive that carries anything is refused with what that is, and left as it is.
    Add(DriveAddArguments),
    /// Empty a drive of the pool: its copies move to others, and it takes no new ones
    ///
    /// It serves what it holds until that is elsewhere, so nothing is kept less often meanwhile. Refused if the other
    /// drives have no room, with what lacks it.
    Retire(DriveRetireArguments),
    /// Take a drive out of the pool: empties it first, and waits for that
    ///
    /// Refused if the other drives have no room for what it holds, with what lacks it. Interrupted, it goes on being
    /// emptied; the same command takes up the waiting again. Its node does not use it any more then; `drive clean` wipes it.
    Remove(DriveRemoveArguments),
    /// Wipe a block device or a file of this server, so that `drive add` takes it
    ///
    /// Says what stands there, and asks. Refused while anybody uses it, if it is a drive of the node in --dir, and if it is
    /// one of the cluster's. What is not emptied by the drive itself may still be read from it: this is no way to destroy
    /// secrets.
    Clean(DriveCleanArguments),
    /// Read a drive that no node has open, check everything on it, and show what it holds
    Inspect(InspectArguments),
}

/// `spandrel pool`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Show the pool's room, what is being repaired or moved and how long that takes yet, and what is set
    Status(OutputArguments),
    /// Spread copies so that all drives are filled alike, and wait for it
    ///
    /// Done in the background, by those who serve the volumes; ending this command does not end it. By itself the pool
    /// does so when drives have been filled unevenly for a minute, if --balance is on (`spandrel pool set`).
    Optimize(PoolOptimizeArguments),
    /// Set how the pool keeps itself
    Set(PoolSetArguments),
}

/// `spandrel pool optimize`.
#[derive(Clone, Copy, Debug, Args)]
pub struct PoolOptimizeArguments {
    /// Only say how much would be moved
    #[arg(long)]
    pub dry_run: bool,

    /// Do not wait until it is done
    #[arg(long)]
    pub no_wait: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel pool set`.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = true)]
pub struct PoolSetArguments {
    /// How long a drive may be away while its node is there, before what it holds is built anew elsewhere: 15m, 1h
    /// [default of a new cluster: 15m]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub rebuild_after_drive: Option<u32>,

    /// The same for drives that are away with their node, or with most of its other drives. A node in maintenance is
    /// waited for [default of a new cluster: 1h]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub rebuild_after_node: Option<u32>,

    /// Whether copies are spread by themselves when drives are filled unevenly [default of a new cluster: on]
    #[arg(long, value_enum)]
    pub balance: Option<Switch>,

    /// How much of the nodes' work the repair of copies may be while clients are served: very-low, low, medium, high or
    /// very-high, each twice the one before. While no clients are, it takes all [default of a new cluster: medium]
    #[arg(long, value_name = "SHARE")]
    pub repair_share: Option<RepairShare>,

    /// Whether a drive is retired that was slow three times, with less than an hour in between [default of a new cluster: off]
    #[arg(long, value_enum)]
    pub retire_slow: Option<Switch>,

    /// Within which time every block of every copy is read and compared once: 2w, 10d, or off [default of a new
    /// cluster: 4w]
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub scrub_period: Option<u32>,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// A time in whole seconds; 0 if it never is.
fn parse_period(text: &str) -> Result<u32, String> {
    if ["off", "never", "0"].contains(&text.trim()) { Ok(0) } else { parse_seconds(text) }
}

/// A time in whole seconds.
fn parse_seconds(text: &str) -> Result<u32, String> {
    let duration = parse_duration(text)?;
    if duration < Duration::from_secs(1) {
        return Err(format!("{text:?} is too short: write 1s or more"));
    }
    u32::try_from(duration.as_secs()).map_err(|_| format!("{text:?} is too long"))
}

/// `spandrel drive add`.
#[derive(Clone, Debug, Args)]
pub struct DriveAddArguments {
    /// The block devices or files. Give devices by names that stay, like those in /dev/disk/by-id
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// What they are made of, where the kernel does not know or is wrong
    #[arg(long, value_enum)]
    pub media: Option<Media>,
}

/// `spandrel fault`.
#[derive(Clone, Debug, Subcommand)]
pub enum FaultCommand {
    /// Show everything that is the matter, the most severe first, with what to do about it
    ///
    /// A fault is there as long as its cause, and needs no acknowledgement. What follows from another one is not shown
    /// beside it, like the drives of a node that is down.
    List(OutputArguments),
}

/// `spandrel explain`.
#[derive(Clone, Debug, Subcommand)]
pub enum ExplainCommand {
    /// Why a volume is as it is
    Volume(ExplainArguments),
    /// Why a node is as it is
    Node(ExplainArguments),
    /// Why a drive is as it is
    Drive(ExplainArguments),
    /// Why the pool is as it is
    Pool(OutputArguments),
}

/// `spandrel explain volume`, `node` and `drive`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArguments {
    /// Its name
    pub name: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel drive retire`.
#[derive(Clone, Debug, Args)]
pub struct DriveRetireArguments {
    /// The drive's name
    pub name: String,

    /// Use it again: what is on it stays there
    #[arg(long)]
    pub undo: bool,

    /// Only say whether it can be done, and what would be moved
    #[arg(long)]
    pub dry_run: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel drive remove`.
#[derive(Clone, Debug, Args)]
pub struct DriveRemoveArguments {
    /// The drive's name
    pub name: String,

    /// Only say whether it can be done, and what would be moved
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,
}

/// `spandrel drive clean`.
#[derive(Clone, Debug, Args)]
pub struct DriveCleanArguments {
    /// The block device or file
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// Only say what stands there and would be lost, or what stands against it
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant. If a Spandrel drive stands there, --drive-id must say which
    #[arg(long)]
    pub yes: bool,

    /// The identity of the Spandrel drive that may be lost; of each one, if there are several
    #[arg(long = "drive-id", value_name = "IDENTITY")]
    pub drive_ids: Vec<spandrel_shared::DriveId>,
}

/// `spandrel drive get`.
#[derive(Clone, Debug, Args)]
pub struct DriveGetArguments {
    /// The drive's name
    pub name: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// What a drive is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Media {
    /// Flash on PCI Express
    Nvme,
    /// Flash behind SATA, SAS or the like
    Ssd,
    /// Spinning disks
    Hdd,
}

impl From<Media> for MediaClass {
    fn from(media: Media) -> Self {
        match media {
            Media::Nvme => Self::Nvme,
            Media::Ssd => Self::Ssd,
            Media::Hdd => Self::Hdd,
        }
    }
}

/// `spandrel scrub`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ScrubArguments {
    /// What to do, if not to scrub volumes now.
    #[command(subcommand)]
    pub command: Option<ScrubCommand>,

    /// The volumes [default: all of them]
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel scrub ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum ScrubCommand {
    /// Show when each volume was read last, how far it is in this pass, and what was found
    Status(ScrubStatusArguments),
}

/// `spandrel scrub status`.
#[derive(Clone, Debug, Args)]
pub struct ScrubStatusArguments {
    /// The volumes [default: all of them]
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel demo`.
#[derive(Clone, Copy, Debug, Args)]
pub struct DemoArguments {
    /// Keep the drives in memory
    #[arg(long)]
    pub memory: bool,
}

/// `spandrel completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

fn parse_slab_size(text: &str) -> Result<SlabGeometry, String> {
    let slabs = SlabGeometry::new(parse_size_argument(text)?);
    slabs.ok_or_else(|| format!("{text:?} is no power of two from 4M to 256M"))
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse().ok();
    let without =
        text.trim_matches(['[', ']']).parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, PORT_DEFAULT));
    with_port
        .or(without)
        .ok_or_else(|| format!("{text:?} is no address: write for example 192.0.2.7 or 192.0.2.7:7440"))
}

fn parse_state(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("etcd://").unwrap_or_default();
    let is_name = |host: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        !host.is_empty() && host.bytes().all(is_part)
    };
    let is_named = |(host, port): (&str, &str)| is_name(host) && port.parse::<u16>().is_ok();
    match address.parse::<SocketAddr>().is_ok() || address.rsplit_once(':').is_some_and(is_named) {
        true => Ok(address.to_owned()),
        false => Err(format!("{text:?} is no etcd: write for example etcd://10.0.0.5:2379")),
    }
}

fn parse_size_argument(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{text:?} is no size: write for example 64M, 1G or 1536M"))
}

fn parse_new_size(text: &str) -> Result<NewSize, String> {
    if text.starts_with('-') {
        return Err("a volume never becomes smaller: write a size that it is to have, or +SIZE".to_owned());
    }
    match text.strip_prefix('+') {
        Some(more) => parse_size_argument(more).map(NewSize::AddBytes),
        None => parse_size_argument(text).map(NewSize::SizeBytes),
    }
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
