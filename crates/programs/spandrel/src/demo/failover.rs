//! A node that dies under load and comes back, and what its volumes' users notice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use spandrel_fleet::{
    CellResult, CellSpec, ClientVolumes, LiveLoad, LiveSample, Target, TargetPlace, VolumeRequest, fill,
};
use spandrel_platform::Address;
use spandrel_shared::Error;

use crate::admin::api::{self, NodeStatus, NodeStop, Progress, VolumeStatus};
use crate::admin::client::{Client, path_with};
use crate::commands::{ApiVolumes, check, resync_of};
use crate::demo::verdict::Verdict;
use crate::table::count_text;
use crate::text::say;

/// The clients, and how much each of them has.
const VOLUMES: VolumeRequest = VolumeRequest { count: 16, size_bytes: 16 << 20, aligned_percent: 100 };

/// The node that dies.
const VICTIM: &str = "n4";

/// How long each part is shown.
const STEADY: Duration = Duration::from_secs(4);
const WITHOUT: Duration = Duration::from_secs(8);
const AFTERWARDS: Duration = Duration::from_secs(3);

/// How long a resync may take.
const RESYNC_TIME_MAX: Duration = Duration::from_secs(60);

/// The longest pause that is accepted. Clients wait while promises run out and owners are taken
/// over, some two seconds; a machine that does much else at the same time needs longer.
const PAUSE_MAX: Duration = Duration::from_secs(10);

const TICK: Duration = Duration::from_secs(1);

/// Shows it, and adds what was found to the verdict.
pub fn show(client: &Client, verdict: &mut Verdict) -> Result<(), Error> {
    let mut volumes = ApiVolumes::new(client, "vm");
    let mut targets = volumes.prepare(&VOLUMES)?;
    move_clients(client, &mut targets);
    say(&format!("filling {} volumes of 16 MiB\n", targets.len()));
    fill(&targets, None, 1, |_, _| {})?;
    let load =
        CellSpec { outstanding: 2, write_percent: 30, warmup: Duration::from_secs(1), ..CellSpec::default() };
    let mut show = Show { client, begin: Instant::now(), load: LiveLoad::start(&targets, &load)? };
    let is_healthy = show.play(verdict)?;
    let result = show.load.stop()?;
    judge(&result, &clients_of_victim(client, &targets), verdict);
    verdict.add(is_healthy, "all volumes have all their copies again");
    verify(client, &targets, verdict)?;
    volumes.cleanup()
}

/// Moves two of the dying node's clients to other nodes, as live migration would: their volumes' owner
/// dies, and they must survive that it is replaced.
fn move_clients(client: &Client, targets: &mut [Target]) {
    let there = targets.iter_mut().filter(|target| is_of_victim(client, target));
    for (target, node) in there.zip(["n1", "n2"]) {
        let socket = Address::Unix(client.directory().nbd_socket(node).display().to_string());
        *target = Target::new(target.name.clone(), socket, target.name.clone());
    }
}

/// A load that runs, and what is shown of it.
struct Show<'client> {
    client: &'client Client,
    begin: Instant,
    load: LiveLoad,
}

impl Show<'_> {
    /// Stops the node, starts it again and waits until all is well. Returns whether it is.
    fn play(&mut self, verdict: &mut Verdict) -> Result<bool, Error> {
        say("   time       IOPS   mean ms  failed   pause ms  state\n");
        self.watch(STEADY, |_| false)?;
        self.event(&format!("{VICTIM} stops without warning: its clients are gone, all others must go on"));
        let _: NodeStatus =
            self.client.post(&path_with(api::NODE_STOP, VICTIM), &NodeStop { abrupt: true, force: false })?;
        self.watch(WITHOUT, |_| false)?;
        let degraded = self.volumes()?.iter().filter(|volume| !volume.status.is_healthy()).count();
        verdict.add(degraded > 0, format!("{degraded} volumes noticed that copies of theirs were missing"));
        self.event(&format!("{VICTIM} comes back, and is brought up to date while the load goes on"));
        let back = Instant::now();
        let _: NodeStatus = self.client.post(&path_with(api::NODE_START, VICTIM), &())?;
        let is_healthy = |volumes: &[VolumeStatus]| volumes.iter().all(|volume| volume.status.is_healthy());
        self.watch(RESYNC_TIME_MAX, is_healthy)?;
        let is_healthy = is_healthy(&self.volumes()?);
        if is_healthy {
            self.event(&format!(
                "all copies are whole again, {:.1} s after {VICTIM} came back",
                back.elapsed().as_secs_f64()
            ));
            self.watch(AFTERWARDS, |_| false)?;
        }
        Ok(is_healthy)
    }

    fn volumes(&self) -> Result<Vec<VolumeStatus>, Error> {
        self.client.get(api::VOLUMES)
    }

    fn event(&self, text: &str) {
        say(&format!("{:5.1} s  >>> {text}\n", self.begin.elapsed().as_secs_f64()));
    }

    /// Shows a line each second, for so long or until the volumes are as awaited.
    fn watch(&mut self, duration: Duration, is_done: impl Fn(&[VolumeStatus]) -> bool) -> Result<(), Error> {
        let end = Instant::now() + duration;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            // tidy-allow(sleep): it is the pace of what is shown, and awaits nothing.
            std::thread::sleep(left.min(TICK));
            let volumes = self.volumes()?;
            let sample = self.load.sample();
            say(&format!("{:5.1} s  {}\n", self.begin.elapsed().as_secs_f64(), line(&sample, &volumes)));
            if is_done(&volumes) {
                return Ok(());
            }
        }
    }
}

/// One line of the live view.
fn line(sample: &LiveSample, volumes: &[VolumeStatus]) -> String {
    let mean_ms = sample.mean_us.map_or("-".to_owned(), |us| format!("{:.2}", us / 1000.0));
    // Clients that lost their node are not those that count.
    let errors: u64 =
        sample.clients.iter().filter(|client| !client.is_lost).map(|client| client.errors).sum();
    let living = sample.clients.iter().filter(|client| !client.is_lost);
    let pause = living.map(|client| client.longest_pause).max().unwrap_or_default();
    format!(
        "{:>9}  {mean_ms:>8}  {errors:>6}  {:>9}  {}",
        count_text(sample.iops as u64),
        count_text(pause.as_millis() as u64),
        state(volumes)
    )
}

/// How the volumes are, in a few words.
fn state(volumes: &[VolumeStatus]) -> String {
    let mut by_status: BTreeMap<String, usize> = BTreeMap::new();
    for volume in volumes {
        *by_status.entry(volume.status.operational_text()).or_default() += 1;
    }
    let parts: Vec<String> =
        by_status.into_iter().map(|(status, count)| format!("{count} {status}")).collect();
    let legs: Vec<_> = volumes.iter().flat_map(|volume| volume.legs.clone()).collect();
    let resync = match resync_of(&legs) {
        Some(Progress { total: 0, .. }) => "; resync begins".to_owned(),
        Some(Progress { done, total }) => format!("; resync {done} of {total} pages"),
        None => String::new(),
    };
    parts.join(", ") + &resync
}

/// The clients that were on the node that dies.
fn clients_of_victim(client: &Client, targets: &[Target]) -> BTreeSet<String> {
    let there = targets.iter().filter(|target| is_of_victim(client, target));
    there.map(|target| target.name.clone()).collect()
}

/// Whether a client is served by the node that dies.
fn is_of_victim(client: &Client, target: &Target) -> bool {
    let socket = client.directory().nbd_socket(VICTIM).display().to_string();
    matches!(&target.place, TargetPlace::Export { address: Address::Unix(path), .. } if *path == socket)
}

fn judge(result: &CellResult, gone: &BTreeSet<String>, verdict: &mut Verdict) {
    let others: Vec<_> = result.clients.iter().filter(|client| !gone.contains(&client.name)).collect();
    let failed: u64 = others.iter().map(|client| client.errors + client.unanswered).sum();
    let lost = others.iter().filter(|client| client.is_lost).count();
    verdict.add(
        failed == 0 && lost == 0 && !others.is_empty(),
        format!(
            "of {} I/Os of the {} clients on the other nodes {failed} failed; {} clients were on {VICTIM}",
            count_text(result.total.count),
            others.len(),
            gone.len()
        ),
    );
    let pause_ms = others.iter().map(|client| client.longest_pause_ms).fold(0.0, f64::max);
    verdict.add(
        pause_ms < PAUSE_MAX.as_secs_f64() * 1000.0,
        format!("the longest pause of any of them was {} ms", count_text(pause_ms as u64)),
    );
}

fn verify(client: &Client, targets: &[Target], verdict: &mut Verdict) -> Result<(), Error> {
    let (mut blocks, mut clean) = (0, 0);
    for target in targets {
        let reports = check(client, &path_with(api::VOLUME_CHECK, &target.name))?;
        blocks += reports.iter().map(|report| report.blocks_checked).sum::<u64>();
        clean += reports.iter().filter(|report| report.is_clean()).count();
    }
    verdict.add(
        clean == targets.len(),
        format!(
            "every copy of {clean} of {} volumes is whole and the same ({} blocks read)",
            targets.len(),
            count_text(blocks)
        ),
    );
    Ok(())
}
