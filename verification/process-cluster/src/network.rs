//! Networks between servers that can be cut: each server in a network namespace of its own, with one link per network
//! to a router, which forwards between them.
//!
//! What is cut is dropped by a rule of the router's, silently and one direction at a time: nobody is told, connections
//! stay open, and whatever was cut goes on where it stood when it is healed.
//!
//! Invariants:
//! - When they are dropped, their namespaces are gone. Those of a test that was killed are cleared away by the next
//!   one, with all that runs in them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Where `ip` keeps the names of namespaces.
const NAMES: &str = "/run/netns";

/// What the names of all namespaces made here begin with; the process follows, and which of its networks it is.
const PREFIX: &str = "spandrel-test-";

/// The namespace of the router, behind that.
const ROUTER: &str = "router";

/// One of the networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Network {
    /// The first one.
    A,
    /// The second one, if there are two.
    B,
}

impl Network {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// What a server's link to it is called.
    fn link(self) -> &'static str {
        match self {
            Self::A => "net-a",
            Self::B => "net-b",
        }
    }

    /// The first two bytes of all its addresses.
    fn prefix(self) -> &'static str {
        match self {
            Self::A => "10.1",
            Self::B => "10.2",
        }
    }
}

/// The networks of a cluster.
pub struct Networks {
    /// What the names of its namespaces begin with.
    name: String,
    servers: Vec<String>,
    networks: Vec<Network>,
    /// The rules by which the router drops packets.
    cuts: Mutex<BTreeSet<String>>,
}

impl Networks {
    /// Networks between these servers. None if this machine does not let this user make any: that is said on standard
    /// output, where cargo shows it for tests that pass, too. `what` cannot be tested then.
    ///
    /// # Panics
    ///
    /// If they cannot be made for another reason; or on a build machine (`CI=true`), where nobody would see that
    /// something was left out, unless `SPANDREL_TEST_WITHOUT_NETWORKS` is set.
    pub fn between(servers: &[String], networks: &[Network], what: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if let Err(why) = check_permitted() {
            let on_build_machine =
                std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false");
            let may_be_left_out =
                !on_build_machine || std::env::var_os("SPANDREL_TEST_WITHOUT_NETWORKS").is_some();
            assert!(may_be_left_out, "{what} cannot be tested, no network namespaces: {why}");
            // Not by `println!`, which cargo hides.
            let _ = writeln!(std::io::stdout(), "LEFT OUT: {what}: no network namespaces: {why}");
            return None;
        }
        clear_away();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let made = Self {
            name: format!("{PREFIX}{}-{number}-", std::process::id()),
            servers: servers.to_vec(),
            networks: networks.to_vec(),
            cuts: Mutex::default(),
        };
        made.make();
        Some(made)
    }

    fn make(&self) {
        let all = self.servers.iter().map(|server| self.namespace(server));
        let all = all.chain([self.namespace(ROUTER)]);
        batch(None, &all.map(|name| format!("netns add {name}")).collect::<Vec<_>>());
        let router = self.namespace(ROUTER);
        let mut lines = Vec::new();
        for (server, network) in self.links() {
            let (inner, outer) = (network.link(), router_link(server, network));
            let subnet = self.subnet(server, network);
            let namespace = self.namespace(server);
            lines.push(format!("link add {outer} type veth peer name {inner} netns {namespace}"));
            lines.push(format!("address add {subnet}.1/24 dev {outer}"));
            lines.push(format!("link set {outer} up"));
        }
        batch(Some(&router), &lines);
        for server in &self.servers {
            let mut lines = vec!["link set lo up".to_owned()];
            for network in &self.networks {
                let (link, prefix) = (network.link(), network.prefix());
                let subnet = self.subnet(server, *network);
                lines.push(format!("address add {subnet}.2/24 dev {link}"));
                lines.push(format!("link set {link} up"));
                lines.push(format!("route add {prefix}.0.0/16 via {subnet}.1"));
            }
            batch(Some(&self.namespace(server)), &lines);
        }
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        ip(&["netns", "exec", &router, "sh", "-c", forward], "").expect("a router may forward");
    }

    /// Each server's link to each network.
    fn links(&self) -> impl Iterator<Item = (&str, Network)> {
        self.servers
            .iter()
            .flat_map(|server| self.networks.iter().map(move |network| (server.as_str(), *network)))
    }

    /// The namespace of a server.
    pub fn namespace(&self, server: &str) -> String {
        format!("{}{server}", self.name)
    }

    fn subnet(&self, server: &str, network: Network) -> String {
        let place = self.servers.iter().position(|known| known == server);
        let place = place.unwrap_or_else(|| panic!("there is no server {server}"));
        format!("{}.{}", network.prefix(), place + 1)
    }

    /// How many networks there are.
    pub fn count(&self) -> usize {
        self.networks.len()
    }

    /// A server's addresses, one in each network.
    pub fn addresses(&self, server: &str) -> Vec<String> {
        let each = self.networks.iter();
        each.map(|network| format!("{}.2", self.subnet(server, *network))).collect()
    }

    /// Drops all that goes from any of these servers to any of those in these networks, from now on.
    pub fn cut(&self, from: &[&str], to: &[&str], networks: &[Network]) {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        for network in networks.iter().filter(|network| self.networks.contains(network)) {
            for (from, to) in from.iter().flat_map(|from| to.iter().map(move |to| (from, to))) {
                let rule = format!(
                    "iif {} to {}.2 blackhole",
                    router_link(from, *network),
                    self.subnet(to, *network)
                );
                if from != to && cuts.insert(rule.clone()) {
                    lines.push(format!("rule add {rule}"));
                }
            }
        }
        batch(Some(&self.namespace(ROUTER)), &lines);
    }

    /// Drops all between these servers and the others in these networks, in both directions.
    pub fn cut_off(&self, servers: &[&str], networks: &[Network]) {
        let others = self.others(servers);
        self.cut(servers, &others, networks);
        self.cut(&others, servers, networks);
    }

    /// Drops everything in a network.
    pub fn cut_whole(&self, network: Network) {
        let all = self.others(&[]);
        self.cut(&all, &all, &[network]);
    }

    /// The servers other than these.
    pub fn others(&self, servers: &[&str]) -> Vec<&str> {
        self.servers.iter().map(String::as_str).filter(|server| !servers.contains(server)).collect()
    }

    /// Drops nothing any more.
    pub fn heal(&self) {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<String> = cuts.iter().map(|rule| format!("rule delete {rule}")).collect();
        batch(Some(&self.namespace(ROUTER)), &lines);
        cuts.clear();
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for server in self.servers.iter().map(String::as_str).chain([ROUTER]) {
            remove(&self.namespace(server));
        }
    }
}

/// What the router's end of a server's link is called.
fn router_link(server: &str, network: Network) -> String {
    format!("{server}-{}", network.link())
}

/// Whether this user may make namespaces on this machine. It is tried once: what two tests tried beside each other would
/// have one name.
fn check_permitted() -> Result<(), String> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    TRIED.get_or_init(try_one).clone()
}

fn try_one() -> Result<(), String> {
    let is_root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0\t")));
    if !is_root {
        return Err("only root may make them".to_owned());
    }
    let trial = format!("{PREFIX}{}-trial", std::process::id());
    let tried =
        ip(&["netns", "add", &trial], "").and_then(|()| ip(&["-n", &trial, "link", "set", "lo", "up"], ""));
    remove(&trial);
    tried
}

/// Removes what tests that were killed have left.
fn clear_away() {
    let names = fs::read_dir(NAMES).into_iter().flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let process = rest.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            remove(&name);
        }
    }
}

/// Removes a namespace, with all that runs in it. That there is none is as good.
fn remove(namespace: &str) {
    let inside = Command::new("ip").args(["netns", "pids", namespace]).output();
    let inside =
        inside.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    for process in inside.split_whitespace() {
        let _ = Command::new("kill").args(["-KILL", process]).status();
    }
    let _ = ip(&["netns", "delete", namespace], "");
}

/// Runs lines of `ip` in a namespace.
fn batch(namespace: Option<&str>, lines: &[String]) {
    let place = namespace.map(|namespace| ["-n", namespace]);
    let arguments: Vec<&str> = place.iter().flatten().copied().chain(["-batch", "-"]).collect();
    ip(&arguments, &lines.join("\n")).unwrap_or_else(|why| panic!("{lines:?}: {why}"));
}

/// Runs `ip`. What it complains about, if it fails.
fn ip(arguments: &[&str], input: &str) -> Result<(), String> {
    let started = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = started.unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("ip is not installed: `cargo xtask packages`"),
        _ => panic!("ip cannot be run: {error}"),
    });
    let mut pipe = child.stdin.take().expect("it was asked for");
    // What it does not read it complains about.
    let _ = pipe.write_all(input.as_bytes());
    drop(pipe);
    let output = child.wait_with_output().expect("it is a child of this process");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
