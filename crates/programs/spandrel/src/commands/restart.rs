//! Servers that begin anew with the program that is installed: `cluster restart`, `node restart`, `witness restart`.
//!
//! One after the other: a node hands its volumes over first, and the next one has to wait until everything is whole again
//! that was whole before the first. Where that does not come, or where something needs the next one, it stops and says so.
//! What was begun stays visible: a node whose restart was interrupted is in maintenance.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use spandrel_shared::Error;

use crate::admin::api::{
    self, LegStatus, Maintenance, NodeDrain, NodeDrained, NodeStatus, ServerRestart, ServerRestarting,
    ServerStatus, VolumeStatus,
};
use crate::admin::client::{Client, is_passing, path_with};
use crate::arguments::{ClusterRestartArguments, Output, OutputArguments, ServerRestartArguments};
use crate::commands::node::{await_drained, warn};
use crate::failure::{EXIT_OK, Outcome};
use crate::table::Table;
use crate::text::{counted, json, say};

/// How often it is looked how far it is. There is nothing to wait for but the next look.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long a server may take to be there again, and what was whole to be so again, if nothing else is said: the state of a
/// volume that waits for a long resync is no reason to give up, but somebody should look.
const PATIENCE: Duration = Duration::from_secs(1800);

/// The state of a copy that holds everything and can be reached, as the API says it.
const IN_SYNC: &str = "in-sync";

/// What the state of a copy begins with that is not there yet.
const BEING_BUILT: &str = "being built";

/// Shows the servers and what they run.
pub fn servers(client: &Client, arguments: OutputArguments) -> Outcome {
    let servers: Vec<ServerStatus> = client.get(api::SERVERS)?;
    say(&match arguments.output {
        Output::Table => render(&servers),
        Output::Json => json(&servers),
    });
    Ok(EXIT_OK)
}

fn render(servers: &[ServerStatus]) -> String {
    let mut table = Table::new(&["SERVER", "KIND", "VERSION", "PROGRAM"]);
    for server in servers {
        let kind = if server.is_witness { "witness" } else { "node" };
        let (version, program) = match &server.run {
            None => ("-".to_owned(), "does not answer"),
            Some(run) if run.is_replaced => (run.version.clone(), "replaced since: runs after a restart"),
            Some(run) => (run.version.clone(), "as installed"),
        };
        table.row([server.name.clone(), kind.to_owned(), version, program.to_owned()]);
    }
    table.render()
}

/// Has all servers begin anew, one after the other.
pub fn restart_cluster(client: &Client, arguments: &ClusterRestartArguments) -> Outcome {
    let all: Vec<ServerStatus> = client.get(api::SERVERS)?;
    let mut chosen = choose(&all, arguments)?;
    // Whoever leads is replaced as the leader when it ends: last, so that it happens once.
    chosen.sort_by_key(|server| (!server.is_witness, server.leads));
    let restart = Restart { client, force: false, patience: patience(arguments.timeout) };
    if arguments.dry_run {
        for server in &chosen {
            let ServerRestarting { version, version_next, .. } = restart.ask(&server.name, true)?;
            say(&format!("{} can be restarted: version {version}, then {version_next}\n", server.name));
        }
        return Ok(EXIT_OK);
    }
    for (at, server) in chosen.iter().enumerate() {
        let restarted = restart.restart_and_await_whole(server);
        restarted.map_err(|error| with_rest(error, &chosen[at..], at))?;
    }
    say(&format!("{} restarted\n", counted(chosen.len() as u64, "server")));
    Ok(EXIT_OK)
}

/// Has one server begin anew.
pub fn restart_server(client: &Client, arguments: &ServerRestartArguments, witness: bool) -> Outcome {
    let ServerRestartArguments { name, dry_run, force, timeout } = arguments;
    let all: Vec<ServerStatus> = client.get(api::SERVERS)?;
    let server = all.iter().find(|server| server.name == *name && server.is_witness == witness);
    let server = server.ok_or_else(|| no_such_server(name, witness, &all))?;
    let restart = Restart { client, force: *force, patience: patience(*timeout) };
    if *dry_run {
        let ServerRestarting { version, version_next, warnings, .. } = restart.ask(name, true)?;
        warn(&warnings);
        say(&format!("{name} can be restarted: version {version}, then {version_next}\n"));
        return Ok(EXIT_OK);
    }
    restart.restart(server)?;
    Ok(EXIT_OK)
}

fn patience(seconds: Option<u64>) -> Duration {
    seconds.map_or(PATIENCE, Duration::from_secs)
}

/// The servers that are meant.
fn choose(all: &[ServerStatus], arguments: &ClusterRestartArguments) -> Result<Vec<ServerStatus>, Error> {
    if let Some(name) = arguments.names.iter().find(|name| !all.iter().any(|server| server.name == **name)) {
        return Err(unknown(format!("there is no server {name:?}"), all));
    }
    let is_meant = |server: &&ServerStatus| {
        let is_outdated = server.run.as_ref().is_none_or(|run| run.is_replaced);
        (arguments.names.is_empty() || arguments.names.contains(&server.name))
            && (is_outdated || !arguments.outdated)
    };
    Ok(all.iter().filter(is_meant).cloned().collect())
}

fn no_such_server(name: &str, witness: bool, all: &[ServerStatus]) -> Error {
    let kind = if witness { "witness" } else { "node" };
    unknown(format!("there is no {kind} {name:?}"), all)
}

fn unknown(what: String, all: &[ServerStatus]) -> Error {
    let names: Vec<&str> = all.iter().map(|server| server.name.as_str()).collect();
    Error::new(
        "SERVER_NOT_FOUND",
        what,
        format!("the cluster has {}", names.join(", ")),
        "use one of these names",
    )
}

/// What is whole: volumes, each with a node all of whose copies of it are in sync.
type Whole = BTreeSet<(String, String)>;

fn whole_copies<'a>(volumes: impl IntoIterator<Item = (&'a str, &'a [LegStatus])>) -> Whole {
    let (mut whole, mut lacking) = (Whole::new(), Whole::new());
    for (volume, legs) in volumes {
        // What is being built takes the place of another copy when it is whole, and not before.
        for leg in legs.iter().filter(|leg| !leg.state.starts_with(BEING_BUILT)) {
            let copies = if leg.state == IN_SYNC { &mut whole } else { &mut lacking };
            copies.insert((volume.to_owned(), leg.node.clone()));
        }
    }
    &whole - &lacking
}

/// The volumes that lack something now that was `whole`; what is gone, or has moved to another node, is not lacking.
fn lacking_volumes<'a>(
    whole: &Whole,
    volumes: impl IntoIterator<Item = (&'a str, &'a [LegStatus])> + Clone,
) -> Vec<&'a str> {
    let now = whole_copies(volumes.clone());
    let lacks = |(volume, legs): &(&str, &[LegStatus])| {
        let mut copies = legs.iter().map(|leg| ((*volume).to_owned(), leg.node.clone()));
        copies.any(|copies| whole.contains(&copies) && !now.contains(&copies))
    };
    volumes.into_iter().filter(lacks).map(|(volume, _)| volume).collect()
}

fn with_legs(volumes: &[VolumeStatus]) -> impl Iterator<Item = (&str, &[LegStatus])> + Clone {
    volumes.iter().map(|volume| (&*volume.name, &*volume.legs))
}

/// What stands yet when servers are not all restarted.
fn with_rest(mut error: Error, left: &[ServerStatus], done: usize) -> Error {
    let names: Vec<&str> = left.iter().map(|server| server.name.as_str()).collect();
    error.next = format!(
        "{}; {} done, left: `spandrel cluster restart {}`",
        error.next,
        counted(done as u64, "server"),
        names.join(" ")
    );
    error
}

/// How servers are restarted.
struct Restart<'a> {
    client: &'a Client,
    force: bool,
    patience: Duration,
}

impl Restart<'_> {
    fn ask(&self, name: &str, dry_run: bool) -> Result<ServerRestarting, Error> {
        self.client.post(&path_with(api::SERVER_RESTART, name), &ServerRestart { dry_run, force: self.force })
    }

    /// Has a server begin anew, and waits until all copies are in sync again that were so before.
    fn restart_and_await_whole(&self, server: &ServerStatus) -> Result<(), Error> {
        let volumes: Vec<VolumeStatus> = self.client.watch(api::VOLUMES)?;
        self.restart(server)?;
        self.await_whole(&whole_copies(with_legs(&volumes)))
    }

    /// Has a server begin anew, and waits until it is there again.
    fn restart(&self, server: &ServerStatus) -> Result<(), Error> {
        let name = &server.name;
        let begun = Instant::now();
        // What would be refused is refused before anything is handed over.
        let restarting = self.ask(name, true)?;
        warn(&restarting.warnings);
        if server.is_witness {
            self.begin_anew(server)?;
        } else {
            self.restart_node(server)?;
        }
        say(&format!(
            "{name} restarted: version {}, {} s\n",
            restarting.version_next,
            begun.elapsed().as_secs()
        ));
        Ok(())
    }

    /// Drains a node, has it begin anew, and resumes it unless it was in maintenance already.
    fn restart_node(&self, server: &ServerStatus) -> Result<(), Error> {
        let name = &server.name;
        let maintenance: Option<Maintenance> = self.client.get(&path_with(api::NODE_MAINTENANCE, name))?;
        let drain = NodeDrain { dry_run: false, force: self.force };
        let drained: NodeDrained = self.client.post(&path_with(api::NODE_DRAIN, name), &drain)?;
        await_drained(self.client, &drained, Some(self.patience))?;
        let resume =
            || self.patient(|| self.client.post::<NodeStatus>(&path_with(api::NODE_RESUME, name), &()));
        let begun = self.begin_anew(server);
        match begun {
            // It runs as before.
            Err(error) if error.code != "SERVER_NOT_BACK" && maintenance.is_none() => {
                let _ = resume();
                Err(error)
            }
            Err(error) => Err(error),
            Ok(()) if maintenance.is_none() => resume().map(drop),
            Ok(()) => Ok(()),
        }
    }

    /// Has a server begin anew, and waits for that.
    fn begin_anew(&self, server: &ServerStatus) -> Result<(), Error> {
        let name = &server.name;
        // What was known of its run when the command began may be long over.
        let former = self.patient(|| self.ask(name, true))?.started_unix_ms;
        let mut turn =
            Turn { former: former.or(server.run.as_ref().map(|run| run.started_unix_ms)), is_asked: false };
        match self.ask(name, false) {
            // The answer may have been lost with the process that gave it.
            Err(error) if is_passing(&error) => {}
            asked => turn.note_asked(&asked?),
        }
        let bar = spinner(format!("{name} begins anew"));
        let deadline = Instant::now() + self.patience;
        loop {
            let run = match self.client.get::<Vec<ServerStatus>>(api::SERVERS) {
                Ok(servers) => {
                    servers.into_iter().find(|known| known.name == *name).and_then(|known| known.run)
                }
                Err(error) if is_passing(&error) => None,
                Err(error) => return Err(error),
            };
            match turn.next(run.map(|run| run.started_unix_ms)) {
                Next::Done => {
                    bar.finish_and_clear();
                    return Ok(());
                }
                Next::Ask => match self.ask(name, false) {
                    Err(error) if is_passing(&error) || error.code == "SERVER_NOT_RUNNING" => {}
                    asked => turn.note_asked(&asked?),
                },
                Next::Wait => {}
            }
            if Instant::now() >= deadline {
                return Err(not_back(server));
            }
            self.client.pause(INTERVAL);
        }
    }

    /// Asks until the cluster answers, which may be finding itself a new leader.
    fn patient<T>(&self, ask: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        let deadline = Instant::now() + self.patience;
        loop {
            match ask() {
                Err(error) if is_passing(&error) && Instant::now() < deadline => self.client.pause(INTERVAL),
                answer => return answer,
            }
        }
    }

    /// Waits until all of this is whole, what is gone left out.
    fn await_whole(&self, whole: &Whole) -> Result<(), Error> {
        let bar = spinner("waiting until all copies are in sync again".to_owned());
        let deadline = Instant::now() + self.patience;
        loop {
            let volumes: Vec<VolumeStatus> = self.patient(|| self.client.get(api::VOLUMES))?;
            let waiting = lacking_volumes(whole, with_legs(&volumes));
            if waiting.is_empty() {
                bar.finish_and_clear();
                return Ok(());
            }
            bar.set_message(format!("waiting until all copies of {} are in sync again", waiting.join(", ")));
            if Instant::now() >= deadline {
                return Err(not_whole(&waiting));
            }
            self.client.pause(INTERVAL);
        }
    }
}

/// How far the restart of a server is.
struct Turn {
    /// When the run began that is to end.
    former: Option<u64>,
    /// Whether the server has said that it begins anew.
    is_asked: bool,
}

/// What is next in it.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The server is there again.
    Done,
    /// The request has not arrived.
    Ask,
    /// To look again.
    Wait,
}

impl Turn {
    fn note_asked(&mut self, restarting: &ServerRestarting) {
        self.is_asked = true;
        // Somebody else may have started it anew just before: then it is this run that ends.
        self.former = restarting.started_unix_ms.or(self.former);
    }

    /// What is next, if the server has just said that its run began then; none if it does not answer.
    fn next(&self, run: Option<u64>) -> Next {
        match run {
            Some(_) if run != self.former => Next::Done,
            Some(_) if !self.is_asked => Next::Ask,
            _ => Next::Wait,
        }
    }
}

fn spinner(message: String) -> ProgressBar {
    let bar =
        if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{elapsed_precise} {spinner} {msg}");
    bar.set_style(style.expect("the template is well-formed"));
    bar.set_message(message);
    bar.enable_steady_tick(INTERVAL);
    bar
}

fn not_back(server: &ServerStatus) -> Error {
    let ServerStatus { name, is_witness, .. } = server;
    let (kind, resumed) = match is_witness {
        true => ("witness", String::new()),
        false => ("node", format!("; it is in maintenance until `spandrel node resume {name}`")),
    };
    Error::new(
        "SERVER_NOT_BACK",
        format!("the server {name} was restarted and is not back"),
        "it has not answered since in the time that was given",
        format!(
            "see on its machine what it says (log/spandrel.log in its directory), and start it with `spandrel {kind} run` \
             if it has ended{resumed}"
        ),
    )
}

fn not_whole(waiting: &[&str]) -> Error {
    Error::new(
        "VOLUMES_NOT_WHOLE",
        "no further server is restarted",
        format!("not all copies of {} are in sync again in the time that was given", waiting.join(", ")),
        "see with `spandrel explain volume` what they wait for",
    )
}

#[cfg(test)]
#[path = "restart_tests.rs"]
mod tests;
