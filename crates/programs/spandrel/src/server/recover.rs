//! `spandrel cluster recover`: a state made of a backup, or of what one member of etcd still has, when most of the
//! members are lost for good, or the state is older than what the drives know.
//!
//! The new state is made in an etcd of this server alone, whose former data are put aside; the others join it again
//! by themselves. It gets a generation above all that this server's drives have seen, and is a place of its own (see
//! [`super::generation`]). What the state does not know stays on the drives; what it wrongly believes of copies is
//! found out before a volume is served.
//!
//! Nothing is lost by it but what the new state does not know: the backup is written down first, and former data and
//! states are put aside. An attempt that was interrupted is made again from that backup.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spandrel_cluster::backup::StateBackup;
use spandrel_cluster::store::{StoreError, StoreErrorKind};
use spandrel_cluster::{ClusterState, StateError, StateStamp, generation_to_recover};
use spandrel_drive::DriveStore;
use spandrel_platform::Platform as _;
use spandrel_platform_linux::{Runtime, RuntimeConfig};
use spandrel_shared::{ClusterId, Error};
use spandrel_state_etcd::member::{Beginning, Member, MemberSettings, MemberStatus};
use spandrel_state_etcd::{EtcdOptions, EtcdState};

use super::backups::keep_for_good;
use super::generation::{generation, namespace, present, set_generation};
use super::run::etcd_options;
use super::settings::{Pki, ServerSettings, StatePlace, not_writable};
use super::silence::check_stopped;
use super::state_member::StateMemberKeeper;
use crate::admin::administration::{state_error, unix_ms};
use crate::directory::Directory;
use crate::drive_prefix;
use crate::failure::system_error;
use crate::node_state::NodeState;
use crate::random::random;

/// How long etcd may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// How often it is asked until it does.
const ANSWER_PAUSE: Duration = Duration::from_millis(100);

/// How often etcd is started to read what a member has, if it ends by itself.
const READ_ATTEMPTS: u32 = 3;

/// What this server's own member of etcd still has, as a backup.
pub async fn read_member(directory: &Directory, settings: &ServerSettings) -> Result<StateBackup, Error> {
    // A member that others may need is not ended for nothing.
    check_stopped(settings, None).await?;
    let StatePlace::Own { program, .. } = &settings.state else {
        return Err(no_member("others keep the state"));
    };
    let data = directory.join("etcd/data");
    if !data.join("member/wal").is_dir() {
        return Err(no_member("it keeps no part of the state, or its data are gone"));
    }
    StateMemberKeeper::new(directory.clone(), settings.clone()).end_member().await?;
    Pki(directory).ensure_revoked(settings.cluster)?;
    let mut attempts = 1;
    loop {
        match read_copy_of_member(directory, settings, program, &data).await? {
            CopyRead::Whole(backup) => return Ok(backup),
            // Another process may have taken a port that was free.
            CopyRead::Ended(_) if attempts < READ_ATTEMPTS => attempts += 1,
            CopyRead::Ended(reason) => return Err(no_member(&format!("etcd ends on it: {reason}"))),
            // One without a vote gets none when it is alone, and answers nobody.
            CopyRead::Silent(why) => return Err(no_member(&format!("etcd does not answer from it: {why}"))),
        }
    }
}

/// What an etcd did that was started on a copy of a member's data.
enum CopyRead {
    Whole(StateBackup),
    /// Its process ended, for this reason.
    Ended(String),
    /// It ran, and did not give the state.
    Silent(String),
}

/// Starts etcd alone on a copy, and has it say what it has: whatever is found there, the data stay as they are.
async fn read_copy_of_member(
    directory: &Directory,
    settings: &ServerSettings,
    program: &Path,
    data: &Path,
) -> Result<CopyRead, Error> {
    let folder = directory.join("etcd/reading");
    let failed = |error: std::io::Error| not_writable(directory, &error);
    remove_folder(&folder).map_err(failed)?;
    copy_folder(data, &folder.join("data")).map_err(failed)?;
    let [client, peer] = free_addresses()?;
    let member = MemberSettings {
        program: program.to_owned(),
        folder: folder.clone(),
        name: settings.node.to_string(),
        client_addresses: vec![client],
        peer_addresses: vec![peer],
        identity: Some(StateMemberKeeper::identity(directory)),
        beginning: Beginning::Alone,
    };
    let options = EtcdOptions {
        endpoints: vec![member.url(&client)],
        ..etcd_options(directory, settings, &Pki(directory).credentials(settings.cluster)?)?
    };
    let mut member = Member::start(member).await?;
    let read = tokio::select! {
        read = read_state(settings.cluster, &options) => match read {
            Ok(backup) => CopyRead::Whole(backup),
            Err(error) => CopyRead::Silent(error.why),
        },
        Some(MemberStatus::Ended { reason }) = member.changed() => CopyRead::Ended(reason),
    };
    member.stop().await;
    remove_folder(&folder).map_err(failed)?;
    Ok(read)
}

async fn read_state(cluster: ClusterId, options: &EtcdOptions) -> Result<StateBackup, Error> {
    let etcd = EtcdState::connect(options)?;
    let backup = answered(|| async {
        let state = ClusterState::new(NodeState::Etcd(present(&etcd, cluster).await?));
        state.backup(unix_ms()).await
    });
    backup.await?.ok_or_else(|| no_member("its part of the state holds no cluster"))
}

/// The newest state that this server's drives have seen. Drives that cannot be read say nothing.
pub fn newest_seen(settings: &ServerSettings) -> Result<StateStamp, Error> {
    if settings.drives.is_empty() {
        return Ok(StateStamp::default());
    }
    let runtime = Runtime::new(RuntimeConfig::default());
    let mut runtime = runtime.map_err(|error| {
        let next = "raise the limit of open files (ulimit -n)";
        Error::new("DRIVES_UNREADABLE", "the drives cannot be read", error.to_string(), next)
    })?;
    let platform = runtime.platform();
    let locations: Vec<String> =
        settings.drives.iter().map(|path| format!("{}{path}", drive_prefix())).collect();
    let newest = runtime.block_on(async move {
        let mut newest = 0;
        for location in locations {
            let Ok(drive) = platform.open_drive(&location).await else { continue };
            if let Ok(identity) = DriveStore::identify(&platform, &drive).await {
                newest = newest.max(identity.state_revision);
            }
        }
        newest
    });
    Ok(StateStamp(newest))
}

/// Makes a state of `backup` that counts although drives have `seen` a newer one. Its generation.
pub async fn recover(
    directory: &Directory,
    settings: ServerSettings,
    backup: &StateBackup,
    seen: StateStamp,
) -> Result<u32, Error> {
    check_stopped(&settings, Some(backup)).await?;
    let kept = keep_for_good(directory, backup)?;
    make_it_count(directory, settings, backup, seen).await.map_err(|error| Error {
        // What a member had is put aside by now.
        next: format!("{}; then recover with --from {}", error.next, kept.display()),
        ..error
    })
}

async fn make_it_count(
    directory: &Directory,
    settings: ServerSettings,
    backup: &StateBackup,
    seen: StateStamp,
) -> Result<u32, Error> {
    let known = settings.generation.max(backup.generation).max(seen.generation());
    match &settings.state {
        StatePlace::Own { .. } => recover_own(directory, settings, backup, known).await,
        StatePlace::External { .. } => {
            let credentials = Pki(directory).credentials(settings.cluster)?;
            let etcd = EtcdState::connect(&etcd_options(directory, &settings, &credentials)?)?;
            let former = answered(|| generation(&etcd, settings.cluster)).await?.unwrap_or_default();
            let next = later_generation(known.max(former))?;
            make_state(&etcd, settings.cluster, backup, next).await?;
            let former = in_generation(&etcd, settings.cluster, former);
            // What the backup does not know is there to be looked at; nobody finds it by mistake.
            if let Some(displaced) = answered(|| former.backup(unix_ms())).await? {
                keep_for_good(directory, &displaced)?;
            }
            answered(|| former.clear()).await?;
            Ok(next)
        }
    }
}

/// Makes the state in an etcd of this server alone.
async fn recover_own(
    directory: &Directory,
    settings: ServerSettings,
    backup: &StateBackup,
    known: u32,
) -> Result<u32, Error> {
    let next = later_generation(known)?;
    let keeper = StateMemberKeeper::new(directory.clone(), settings);
    keeper.leave_former_state().await?;
    keeper.change(|settings| {
        let listen = settings.addresses(super::Port::StateClients);
        if let StatePlace::Own { endpoints, is_member, .. } = &mut settings.state {
            *is_member = false;
            *endpoints = listen.iter().map(spandrel_state_etcd::secured_url).collect();
        }
        settings.founding = None;
    })?;
    let settings = keeper.settings();
    let pki = Pki(directory);
    pki.ensure_revoked(settings.cluster)?;
    // Members of the former etcd look for it at the very address where this one answers.
    keeper.begin(Beginning::First(format!("{}.{next}", settings.cluster))).await?;
    let made = async {
        let credentials = pki.credentials(settings.cluster)?;
        let etcd = EtcdState::connect(&etcd_options(directory, &settings, &credentials)?)?;
        make_state(&etcd, settings.cluster, backup, next).await
    };
    let made = made.await;
    let ended = keeper.end_member().await;
    made?;
    ended?;
    keeper.set_generation(next)?;
    Ok(next)
}

/// A generation above all that are known here.
fn later_generation(known: u32) -> Result<u32, Error> {
    generation_to_recover(known, random()).ok_or_else(|| {
        Error::new(
            "STATE_NOT_RECOVERABLE",
            "this state cannot be made to count",
            "older states were made to count some 4,000 times already",
            "make a new cluster and import its drives",
        )
    })
}

fn in_generation(etcd: &EtcdState, cluster: ClusterId, generation: u32) -> ClusterState<NodeState> {
    ClusterState::new(NodeState::Etcd(etcd.within(&namespace(cluster, generation))))
}

/// Makes the state, and has it count.
async fn make_state(
    etcd: &EtcdState,
    cluster: ClusterId,
    backup: &StateBackup,
    next: u32,
) -> Result<(), Error> {
    let state = &in_generation(etcd, cluster, next);
    // Nobody uses it before it is said to count. What an attempt without an answer has left goes first.
    answered(|| async move {
        state.clear().await?;
        state.restore(backup, next).await
    })
    .await?;
    answered(|| set_generation(etcd, cluster, next)).await
}

/// Repeats what is the same when it is done twice, until etcd answers.
async fn answered<T, F>(attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, StateError>>,
{
    let started = Instant::now();
    loop {
        match attempt().await {
            Err(StateError::Store(StoreError {
                kind: StoreErrorKind::Unavailable | StoreErrorKind::Unknown,
                ..
            })) if started.elapsed() < ANSWER_TIME_MAX => tokio::time::sleep(ANSWER_PAUSE).await,
            outcome => return outcome.map_err(state_error),
        }
    }
}

/// Two addresses that are free now.
fn free_addresses() -> Result<[SocketAddr; 2], Error> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // Both are held until both are known: else they could be the same.
    let bound = bind().and_then(|one| Ok((one, bind()?)));
    let addresses = bound.and_then(|(one, other)| Ok([one.local_addr()?, other.local_addr()?]));
    addresses.map_err(|error| system_error("no port of the loopback interface is free", &error))
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target: PathBuf = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

fn remove_folder(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn no_member(why: &str) -> Error {
    Error::new(
        "STATE_MEMBER_UNKNOWN",
        "this server's own part of the state cannot be used",
        why,
        "use a backup with --from FILE: each server has some, in the folder `backups` of its directory",
    )
}
