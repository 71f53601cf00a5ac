//! Who may ask for what, held against a table: a path without a line there fails.

use std::future::{pending, ready};

use axum::serve::Listener;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use spandrel_cluster::store::Expected;
use spandrel_cluster::{ClusterRecord, ClusterState, NodeRecord, StateKey, WitnessRecord};
use spandrel_shared::{ClusterId, SlabGeometry};
use spandrel_state_redb::RedbState;
use spandrel_trust::Fingerprint;
use tokio::io::DuplexStream;
use tokio::sync::mpsc as queue;

use super::*;
use crate::admin::administration::ProcessFacts;
use crate::admin::nodes::{NodeEntry, Nodes};
use crate::node_state::NodeState;

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// A token of this role, or of one that may do more.
    Role(Role),
    /// To be a node of the cluster, or a witness.
    Server,
    /// A certificate of the cluster, whether the state knows its holder or not.
    Certificate,
    /// Nothing that is asked for here: what is asked says it.
    Nothing,
}

use Needs::{Certificate, Nothing, Server};
const READ: Needs = Needs::Role(Role::Read);
const OPERATE: Needs = Needs::Role(Role::Operate);
const ADMINISTER: Needs = Needs::Role(Role::Administer);

/// Every request that is answered.
const TABLE: &[(&str, &str, Needs)] = &[
    ("GET", api::STATUS, READ),
    ("GET", api::VOLUMES, READ),
    ("POST", api::VOLUMES, OPERATE),
    ("GET", api::VOLUME, READ),
    ("DELETE", api::VOLUME, ADMINISTER),
    ("GET", api::VOLUME_DELETION, READ),
    ("POST", api::VOLUME_CHECK, OPERATE),
    ("POST", api::VOLUME_MOVE, OPERATE),
    ("POST", api::VOLUME_RESIZE, OPERATE),
    ("POST", api::VOLUME_SETTINGS, OPERATE),
    ("GET", api::NODES, READ),
    ("GET", api::NODE, READ),
    ("POST", api::NODE_STOP, OPERATE),
    ("POST", api::NODE_START, OPERATE),
    ("POST", api::NODE_DRAIN, OPERATE),
    ("GET", api::NODE_MAINTENANCE, READ),
    ("GET", api::NODE_SAFETY, READ),
    ("POST", api::NODE_RESUME, OPERATE),
    ("POST", api::NODE_PLACE, ADMINISTER),
    ("GET", api::VOLUME_EXPLANATION, READ),
    ("GET", api::DRIVE_EXPLANATION, READ),
    ("GET", api::NODE_EXPLANATION, READ),
    ("GET", api::POOL_EXPLANATION, READ),
    ("GET", api::FAULTS, READ),
    ("GET", api::DRIVES, READ),
    ("GET", api::CACHES, READ),
    ("POST", api::DRIVES, ADMINISTER),
    ("POST", api::DRIVE_RETIRE, ADMINISTER),
    ("POST", api::NODE_EVACUATE, ADMINISTER),
    ("POST", api::DRIVE_REMOVE, ADMINISTER),
    ("GET", api::POOL, READ),
    ("POST", api::POOL_OPTIMIZE, OPERATE),
    ("POST", api::POOL_SETTINGS, ADMINISTER),
    ("POST", api::POOL_SETTINGS_PREVIEW, ADMINISTER),
    ("GET", api::SCRUB, READ),
    ("POST", api::SCRUB, OPERATE),
    ("GET", api::USAGE, READ),
    ("GET", api::LOAD, READ),
    ("GET", api::NODE_REPORT, Server),
    ("GET", api::NODE_LOAD, Server),
    ("POST", api::NODE_SCRUB, Server),
    ("POST", api::NODE_HAND_OVER, Server),
    ("POST", api::NODE_GROW, Server),
    ("POST", api::NODE_LET_GO, Server),
    ("POST", api::NODE_VOLUMES, Server),
    ("DELETE", api::NODE_VOLUME, Server),
    ("POST", api::JOIN, Nothing),
    ("GET", api::JOIN_TOKEN, ADMINISTER),
    ("POST", api::JOIN_TOKEN, ADMINISTER),
    ("DELETE", api::JOIN_TOKEN_OF, ADMINISTER),
    ("GET", api::ACCESS, ADMINISTER),
    ("POST", api::ACCESS, ADMINISTER),
    ("DELETE", api::ACCESS_OF, ADMINISTER),
    ("POST", api::SERVER_REMOVE, ADMINISTER),
    ("GET", api::SERVERS, READ),
    ("POST", api::SERVER_RESTART, OPERATE),
    ("GET", api::SERVER_HERE, Server),
    ("POST", api::SERVER_HERE_RESTART, Server),
    ("POST", api::SERVER_HERE_STOP, Server),
    ("GET", api::STANDING, Certificate),
    ("GET", api::STATE_BACKUP, ADMINISTER),
    ("POST", api::SETTLE, ADMINISTER),
    ("GET", api::STATE, READ),
];

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// No nodes at all.
struct NoNodes;

impl Nodes for NoNodes {
    fn list(&self) -> BoxFuture<'_, Result<Vec<NodeEntry>, Error>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn drive_name(&self, _: &str, _: &str) -> Option<String> {
        None
    }

    fn start<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        ready(Ok(())).boxed()
    }

    fn stop<'a>(&'a self, _: &'a str, _: bool) -> BoxFuture<'a, Result<Option<NodeReport>, Error>> {
        ready(Ok(None)).boxed()
    }
}

/// Connections of callers that a test names.
struct Callers(queue::Receiver<(DuplexStream, Caller)>);

impl Listener for Callers {
    type Io = DuplexStream;
    type Addr = Caller;

    async fn accept(&mut self) -> (DuplexStream, Caller) {
        match self.0.recv().await {
            Some(accepted) => accepted,
            None => pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Caller> {
        Ok(Caller::Here)
    }
}

impl Connected<IncomingStream<'_, Callers>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Callers>) -> Self {
        stream.remote_addr().clone()
    }
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nobody answers such a request.
    Unknown,
    /// Whoever asks may not.
    Denied,
    /// It was looked at, whatever came of it.
    Passed,
}

struct Api {
    callers: queue::Sender<(DuplexStream, Caller)>,
    cluster: Arc<Administration>,
    _folder: tempfile::TempDir,
}

impl Api {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let store = RedbState::open(&folder.path().join("state.redb")).expect("a new file");
        let state = ClusterState::new(NodeState::File(store));
        let record = ClusterRecord {
            id: ClusterId::from_random(1, 2),
            name: "test".to_owned(),
            feature_level: 1,
            slab_bytes: SlabGeometry::new(4 << 20).expect("a slab size"),
            created_unix_ms: 0,
            generation: 0,
        };
        state.create_cluster(record.clone()).await.expect("it is empty");
        let node = NodeRecord {
            name: "n1".to_owned(),
            addresses: Vec::new(),
            further_shards: Vec::new(),
            joined_unix_ms: 0,
            key_digest: None,
            maintenance_since_unix_ms: None,
            place: Default::default(),
            unknown: Default::default(),
        };
        state.put(&StateKey::Node(known_node()), Expected::Absent, node).await.expect("it is not there yet");
        let witness = WitnessRecord {
            name: "w".to_owned(),
            addresses: Vec::new(),
            joined_unix_ms: 0,
            key_digest: String::new(),
        };
        let key = StateKey::Witness(known_witness());
        state.put(&key, Expected::Absent, witness).await.expect("it is not there yet");
        let process = ProcessFacts { directory: String::new(), memory: true, flush_us: None };
        let cluster = Administration::new(process, record, state, Arc::new(NoNodes), None);
        let (callers, incoming) = queue::channel(1);
        let service = router(Arc::clone(&cluster)).into_make_service_with_connect_info::<Caller>();
        tokio::spawn(async move { axum::serve(Callers(incoming), service).await });
        Self { callers, cluster, _folder: folder }
    }

    async fn token(&self, role: Role) -> String {
        let create = AccessCreate { name: role.to_string(), role };
        self.cluster.create_access(create, Fingerprint([1; 32])).await.expect("it can be given").token
    }

    async fn ask(&self, caller: Caller, token: Option<&str>, method: &str, path: &str) -> Outcome {
        let path = path.replace("{name}", "x").replace("{volume}", &VolumeId::from_random(1, 2).to_string());
        let (near, far) = tokio::io::duplex(64 << 10);
        self.callers.send((far, caller)).await.expect("it is served");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(near)).await.expect("it answers");
        tokio::spawn(connection);
        let mut request = hyper::Request::builder().method(method).uri(path).header("host", "x");
        request = request.header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from("{}"))).expect("it is a request");
        let response = sender.send_request(request).await.expect("it answers");
        let status = response.status();
        let body = response.into_body().collect().await.expect("it answers").to_bytes();
        let code = serde_json::from_slice::<Error>(&body).map(|error| error.code).unwrap_or_default();
        match status {
            StatusCode::METHOD_NOT_ALLOWED => Outcome::Unknown,
            StatusCode::NOT_FOUND if code == "PATH_NOT_FOUND" => Outcome::Unknown,
            // What is asked for says itself whether it will do: a join token's secret.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Outcome::Denied,
            _ => Outcome::Passed,
        }
    }
}

fn known_node() -> NodeId {
    NodeId::from_random(1, 1)
}

fn known_witness() -> NodeId {
    NodeId::from_random(2, 2)
}

fn stranger() -> Caller {
    Caller::Stranger(Proof::default())
}

/// The paths that the API names, as its source says them.
fn paths() -> Vec<&'static str> {
    let lines = include_str!("api.rs").lines();
    let paths = lines.filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = \""));
    paths.map(|(_, path)| path.trim_end_matches("\";")).collect()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

#[test]
fn every_request_has_its_line_in_the_table_and_no_other_is_answered() {
    assert!(paths().len() > 20, "{:?}", paths());
    for path in paths() {
        assert!(TABLE.iter().any(|(_, known, _)| *known == path), "{path} has no line in the table");
    }
    run(async {
        let api = Api::start().await;
        for path in paths() {
            for method in METHODS {
                let known = TABLE.iter().any(|(known, at, _)| (*known, *at) == (method, path));
                let answered = api.ask(Caller::Here, None, method, path).await != Outcome::Unknown;
                assert_eq!(answered, known, "{method} {path}");
            }
        }
    });
}

#[test]
fn everybody_may_do_what_the_table_says_and_nothing_else() {
    run(async {
        let api = Api::start().await;
        let roles = [Role::Read, Role::Operate, Role::Administer];
        let mut tokens = Vec::new();
        for role in roles {
            tokens.push((role, api.token(role).await));
        }
        for (method, path, needs) in TABLE {
            let may = |is: bool| if is { Outcome::Passed } else { Outcome::Denied };
            let what = |who: &str| format!("{who}: {method} {path}");
            assert_eq!(api.ask(Caller::Here, None, method, path).await, Outcome::Passed, "{}", what("here"));
            let is_open = *needs == Nothing;
            assert_eq!(api.ask(stranger(), None, method, path).await, may(is_open), "{}", what("stranger"));
            let wrong = api.ask(stranger(), Some("sa1.wrong"), method, path).await;
            assert_eq!(wrong, may(is_open), "{}", what("wrong token"));
            for (role, token) in &tokens {
                let is_enough = match needs {
                    Needs::Role(needed) => role >= needed,
                    _ => is_open,
                };
                let asked = api.ask(stranger(), Some(token), method, path).await;
                assert_eq!(asked, may(is_enough), "{}", what(&role.to_string()));
            }
            for (who, server) in [("node", known_node()), ("witness", known_witness())] {
                let asked = api.ask(Caller::Server(server), None, method, path).await;
                assert_eq!(asked, may(is_open || matches!(needs, Server | Certificate)), "{}", what(who));
            }
            let former = Caller::Server(NodeId::from_random(9, 9));
            let former = api.ask(former, None, method, path).await;
            assert_eq!(former, may(is_open || *needs == Certificate), "{}", what("former node"));
        }
    });
}

#[test]
fn a_token_that_was_taken_back_is_worth_nothing() {
    run(async {
        let api = Api::start().await;
        let token = api.token(Role::Read).await;
        assert_eq!(api.ask(stranger(), Some(&token), "GET", api::STATUS).await, Outcome::Passed);
        api.cluster.delete_access("read").await.expect("it was given");
        assert_eq!(api.ask(stranger(), Some(&token), "GET", api::STATUS).await, Outcome::Denied);
    });
}
