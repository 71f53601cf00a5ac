//! `spandrel up`: a cluster of several nodes in this process, in the foreground.

use std::sync::Arc;
use std::time::Duration;

use spandrel_platform_linux::Cores;
use spandrel_shared::Error;
use spandrel_shared::size::format_size;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

use super::claim::{Claim, claim};
use super::cluster::{LocalCluster, RunOptions};
use super::flush;
use super::media::MediaSettings;
use super::settings::Settings;
use crate::admin::api::ClusterStatus;
use crate::admin::events::tell_faults;
use crate::admin::pool::memory_of_this_server;
use crate::admin::server::{self, Caller};
use crate::arguments::UpArguments;
use crate::cores::check_cores;
use crate::directory::Directory;
use crate::failure::{EXIT_OK, Outcome, system_error};
use crate::table::Table;
use crate::text::{copies_text, counted, format_us, say};
use crate::vm_hosting::VmHosting;
use crate::{drive_prefix, log, open_files};

/// How long nodes may take to find each other and to serve their volumes before that is said.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(15);
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

/// How long a stop in order may take before it is given up.
const STOP_TIME_MAX: Duration = Duration::from_secs(45);

/// How often it is looked what has changed.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a cluster until it is told to end.
pub fn run(directory: Directory, arguments: &UpArguments) -> Outcome {
    check_cores(arguments.threads.cores.as_ref())?;
    let claim = claim(directory, arguments)?;
    let names = claim.settings.nodes.iter().map(|node| node.name.clone()).collect();
    log::start(&claim.directory, arguments.log, names)?;
    open_files::raise();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| system_error("the program cannot start", &error))?;
    runtime.block_on(serve(claim, arguments))
}

async fn serve(claim: Claim, arguments: &UpArguments) -> Outcome {
    let mut interrupted = Interruption::new()?;
    let flush_us = if claim.settings.memory { None } else { flush::measure(claim.directory.path()).ok() };
    let (is_new, media, nodes) = (claim.is_new, claim.settings.media, claim.settings.nodes.len());
    let drives_per_node = claim.settings.drives_per_node;
    let on_memory = note_on_memory(&claim.settings, memory_of_this_server());
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let cores = arguments.threads.cores.as_ref().map_or_else(available, Cores::count);
    let options = RunOptions {
        listen: arguments.listen,
        nbd_port: arguments.nbd_port,
        threads: arguments.threads.clone(),
        vms: VmHosting::new(&arguments.vms, nodes),
        drive_prefix: drive_prefix(),
    };
    let cluster = Arc::new(LocalCluster::open(claim, options, flush_us).await?);
    let listener = listen(&cluster.nodes.claim().directory)?;
    cluster.nodes.start_all().await?;
    let vms = tokio::spawn({
        let nodes = Arc::clone(&cluster.nodes);
        async move { nodes.begin_vms().await }
    });
    let router = server::router(Arc::clone(&cluster.administration));
    let serving = tokio::spawn(async move {
        axum::serve(listener, router.into_make_service_with_connect_info::<Caller>()).await
    });
    let settled = tokio::select! {
        status = settle(&cluster) => Some(status?),
        () = interrupted.next() => None,
    };
    if let Some(status) = settled {
        say(&banner(&status, is_new, &media));
        let on_shards = note_on_shards(arguments.threads.shards, drives_per_node, cores);
        for note in on_shards.into_iter().chain(on_memory) {
            say(&note);
        }
        let watch = tokio::spawn(watch(Arc::clone(&cluster)));
        let telling = tokio::spawn(tell_faults(Arc::clone(&cluster.administration), None, WATCH_INTERVAL));
        interrupted.next().await;
        watch.abort();
        telling.abort();
    }
    say("stopping (once more to stop at once)\n");
    serving.abort();
    vms.abort();
    let stopped = tokio::select! {
        stopped = tokio::time::timeout(STOP_TIME_MAX, cluster.stop_all()) => stopped.is_ok(),
        () = interrupted.next() => false,
    };
    let _ = std::fs::remove_file(cluster.nodes.claim().directory.admin_socket());
    if stopped {
        say("stopped\n");
        return Ok(EXIT_OK);
    }
    // What was answered is on the drives; the next start recovers as from a crash.
    say(
        "stopped without waiting for all nodes; virtual machines that had not ended go on, and the next `up` looks after them\n",
    );
    std::process::exit(1)
}

/// The signals that end the program.
struct Interruption {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interruption {
    fn new() -> Result<Self, Error> {
        let failed = |error: std::io::Error| system_error("signals cannot be received", &error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn listen(directory: &Directory) -> Result<UnixListener, Error> {
    let path = directory.admin_socket();
    // Whoever holds the directory's lock owns the socket; that nobody listens on it was checked.
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(&path).map_err(|error| {
        Error::new(
            "ADDRESS_UNUSABLE",
            format!("the cluster cannot listen on {}", path.display()),
            error.to_string(),
            "name another directory with --dir; some file systems have no sockets",
        )
    })
}

/// Waits until all nodes reach each other and all volumes that can be are served.
async fn settle(cluster: &LocalCluster) -> Result<ClusterStatus, Error> {
    let deadline = tokio::time::Instant::now() + SETTLE_TIME_MAX;
    loop {
        let facts = cluster.administration.facts().await?;
        let others = facts.nodes.len() - 1;
        let reached = facts
            .nodes
            .iter()
            .all(|node| node.report.as_ref().is_some_and(|report| report.reachable.len() == others));
        let is_served = facts.volumes().iter().all(|volume| volume.is_serving);
        if reached && is_served || tokio::time::Instant::now() > deadline {
            return cluster.administration.status().await;
        }
        tokio::time::sleep(SETTLE_PAUSE).await;
    }
}

/// What is shown when the cluster serves.
fn banner(status: &ClusterStatus, is_new: bool, media: &MediaSettings) -> String {
    let mut nodes = Table::new(&["NODE", "DRIVES", "NBD"]);
    for node in &status.nodes {
        let prefix = format!("{}/", status.directory);
        let within = |address: &String| match address.strip_prefix(&prefix) {
            Some(path) => format!("DIR/{path}"),
            None => address.clone(),
        };
        let addresses: Vec<String> = node.nbd_addresses.iter().map(within).collect();
        let drives = format!("{} of {}", node.drives_usable, node.drives);
        nodes.row([node.name.clone(), drives, addresses.join(", ")]);
    }
    let made = if is_new { "new cluster" } else { "cluster" };
    let drives = status.drives.len() as u64;
    let drive_bytes = status.drives.iter().map(|drive| drive.size_bytes).max().unwrap_or(0);
    let flush = match (status.memory, status.flush_us) {
        (true, _) => "the drives are in memory, and nothing outlives this process".to_owned(),
        (false, Some(us)) => {
            format!("a flush of this disk takes {}, and every small write waits for one", format_us(us))
        }
        (false, None) => "what a flush of this disk takes could not be measured".to_owned(),
    };
    let mut text =
        format!("spandrel {}: {made} in DIR = {}\n\n{}\n", status.version, status.directory, nodes.render());
    for volume in status.volumes.iter().filter(|volume| !volume.status.is_healthy()) {
        text += &format!("volume {} is {}\n", volume.name, volume.status);
    }
    text += &format!(
        "{} of {}, room for {} of volumes with {}\n",
        counted(drives, "drive"),
        format_size(drive_bytes),
        format_size(status.pool.volume_bytes_max),
        copies_text(status.pool.copies_default),
    );
    if let Some(media) = media.describe() {
        text += &format!("simulated media: {media}\n");
    }
    text += &format!("try `spandrel --dir {} status`; Ctrl-C stops\n", status.directory);
    let verb = if status.nodes.len() == 1 { "serves" } else { "serve" };
    text += &format!("ready: {} {verb}; {flush}\n", counted(status.nodes.len() as u64, "node"));
    text
}

/// That nodes have more shards than can be of use.
fn note_on_shards(shards: u8, drives_per_node: u32, cores: usize) -> Option<String> {
    let of = match shards {
        1 => return None,
        _ if usize::from(shards) > cores => counted(cores as u64, "core"),
        _ if u32::from(shards) > drives_per_node => counted(drives_per_node.into(), "drive"),
        _ => return None,
    };
    Some(format!(
        "note: {shards} shards of a node share {of}: more do no more, and cost memory and messages; leave --shards out or name fewer\n"
    ))
}

/// That drives in memory may come to need so much that nothing else has enough.
fn note_on_memory(settings: &Settings, memory_bytes: u64) -> Option<String> {
    let drives_bytes = settings.drives_bytes();
    (settings.memory && drives_bytes > memory_bytes / 2).then(|| {
        format!(
            "note: the drives may come to take {} of this machine's {} of memory: what is overwritten is written elsewhere on \
             them. A machine without memory stands still, or ends programs; see --drive-size\n",
            format_size(drives_bytes),
            format_size(memory_bytes)
        )
    })
}

/// Tells of nodes that have ended by themselves.
async fn watch(cluster: Arc<LocalCluster>) {
    loop {
        for name in cluster.nodes.take_ended() {
            tracing::error!("node {name} has ended by itself: report this with the log");
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

#[cfg(test)]
#[path = "up_tests.rs"]
mod tests;
