//! The admin API: bodies and query strings of requests, which anybody who reaches the socket may send.
//!
//! They go through the server's own forms and its own extractors; a volume that is asked for is planned for
//! a small pool, with all the arithmetic on sizes that nobody has checked before. What is planned fits.

// The program is no library, and its forms name nothing else of it.
#[expect(dead_code, unused_imports, reason = "the forms of answers are not read here")]
#[path = "../../../../crates/programs/spandrel/src/admin/api.rs"]
mod api;

use api::{
    AccessCreate, CheckLine, CheckQuery, ClusterLoad, ClusterStatus, DeleteQuery, DriveAdd, Explanation,
    Fault, JoinRequest, NodeStop, PlaceChange, PoolSettingsChange, ServerRestart, VolumeCreate,
};
use axum::Json;
use axum::extract::Query;
use axum::http::Uri;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spandrel_pool::{DriveRoom, NodeRoom, PoolView, VolumeRequest, plan_volume};
use spandrel_shared::name::validate_name;
use spandrel_shared::{DriveId, Error, NodeId, SlabGeometry};
use spandrel_trust::{AccessToken, JoinToken};

use crate::Target;
use crate::choices::Choices;

pub const TARGET: Target = Target {
    name: "admin",
    about: "bodies and query strings of the admin API, and the plan of a volume",
    run,
    seeds,
    smoke_runs: 10_000,
    memory_bytes_max: 2 << 20,
};

fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let kind = choices.byte() % 17;
    let bytes = choices.rest();
    match kind {
        0 => {
            if let Ok(Json(create)) = Json::<VolumeCreate>::from_bytes(bytes) {
                plan(&create);
            }
        }
        1 => read::<NodeStop>(bytes),
        2 => read_queries(bytes),
        // What a client reads of a server.
        3 => read::<CheckLine>(bytes),
        4 => read::<ClusterStatus>(bytes),
        5 => read::<Error>(bytes),
        6 => read::<JoinRequest>(bytes),
        7 => read::<AccessCreate>(bytes),
        8 => read::<DriveAdd>(bytes),
        9 => read_tokens(bytes),
        10 => read::<PoolSettingsChange>(bytes),
        11 => read::<Explanation>(bytes),
        12 => read::<Fault>(bytes),
        13 => read::<PlaceChange>(bytes),
        14 => read::<ServerRestart>(bytes),
        15 => read::<VolumeCreate>(bytes),
        _ => read::<ClusterLoad>(bytes),
    }
}

/// What is read is written and read again to the same.
fn read<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    if let Ok(Json(value)) = Json::<T>::from_bytes(bytes) {
        let text = serde_json::to_string(&value).expect("forms are plain data");
        let again: T = serde_json::from_str(&text).expect("what is written can be read");
        assert_eq!(serde_json::to_string(&again).expect("forms are plain data"), text);
    }
}

/// A token that is read says again what it was read from.
fn read_tokens(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(token) = text.parse::<JoinToken>() {
        assert_eq!(token.to_string().parse::<JoinToken>().expect("what is written can be read"), token);
    }
    if let Ok(token) = text.parse::<AccessToken>() {
        assert_eq!(token.to_string(), text.trim());
    }
}

fn read_queries(bytes: &[u8]) {
    let uri = [b"/v1/volumes/vm-01?", bytes].concat();
    if let Ok(uri) = Uri::try_from(uri) {
        let _ = Query::<DeleteQuery>::try_from_uri(&uri);
        let _ = Query::<CheckQuery>::try_from_uri(&uri);
    }
}

/// Plans a volume for a pool of four nodes.
fn plan(create: &VolumeCreate) {
    if validate_name("volume", &create.name).is_err() {
        return;
    }
    let view = pool();
    let owner = create.owner.as_ref().map(|_| view.nodes[0].node);
    let request =
        VolumeRequest { name: &create.name, size_bytes: create.size_bytes, copies: create.copies, owner };
    let Ok(plan) = plan_volume(&view, &request) else { return };
    let slabs = view.geometry.slabs_for(create.size_bytes);
    let placed: u64 = plan.copies_per_drive().values().map(|copies| u64::from(*copies)).sum();
    assert_eq!(placed, slabs * u64::from(create.copies.unwrap_or(3)), "every copy has its place");
    for (drive, copies) in plan.copies_per_drive() {
        let room = view.drives.iter().find(|room| room.drive == drive).expect("a drive of the pool");
        assert!(room.slabs_used + copies <= room.slabs_total, "what is planned fits");
    }
    plan.warnings.iter().for_each(|warning| assert!(!warning.to_string().is_empty()));
}

/// Four nodes with two drives each, one of which is nearly full.
fn pool() -> PoolView {
    let geometry = SlabGeometry::new(16 << 20).expect("16 MiB is a size of slabs");
    let mut view = PoolView { geometry, nodes: Vec::new(), drives: Vec::new() };
    for number in 1..=4 {
        let node = NodeId::from_bytes([number; 16]);
        let name = format!("n{number}");
        view.nodes.push(NodeRoom {
            node,
            name,
            is_online: true,
            volumes_owned: u32::from(number),
            place: Default::default(),
            is_in_maintenance: number == 1,
        });
        for place in 0..2 {
            let drive = DriveId::from_bytes([number + 16 * place; 16]);
            let slabs_used = if (number, place) == (2, 1) { 60 } else { u32::from(number) };
            view.drives.push(DriveRoom {
                drive,
                node,
                slabs_total: 64,
                slabs_used,
                slabs_leaving: 0,
                is_online: true,
            });
        }
    }
    view
}

fn seeds() -> Vec<Vec<u8>> {
    let bodies: [(u8, &str); 16] = [
        (0, r#"{"name":"vm-01","size_bytes":1073741824}"#),
        (0, r#"{"name":"vm-01","size_bytes":4096,"copies":2,"owner":"n1"}"#),
        (0, r#"{"name":"vm-01","size_bytes":18446744073709547520,"copies":1}"#),
        (1, r#"{"abrupt":true}"#),
        (2, "force=true"),
        (2, "heal=false&force=%74rue"),
        (3, r#"{"progress":{"volume":"vm-01","slabs":{"done":1,"total":2}}}"#),
        (3, r#"{"failed":{"code":"A","what":"b","why":"c","next":"d"}}"#),
        (5, r#"{"code":"A","what":"b","why":"c","next":"d"}"#),
        (
            6,
            r#"{"secret":"AAAAAAAAAAAAAAAAAAAAAA","node":"00000000-0000-4000-8000-000000000001","name":"n2",
                "listen":["192.0.2.7:7440"],"key":[4,1,2],"witness":false}"#,
        ),
        (7, r#"{"name":"grafana","role":"read"}"#),
        (16, r#"{"cluster":"demo","taken_unix_ms":7,"nodes":[],"jobs":[]}"#),
        (8, r#"{"path":"/dev/disk/by-id/nvme-1"}"#),
        (10, r#"{"rebuild_after_drive_s":900,"balance":false}"#),
        (
            9,
            "sj1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA.192.0.2.7:7441",
        ),
        (9, "sa1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
    ];
    bodies.iter().map(|(kind, text)| [&[*kind][..], text.as_bytes()].concat()).collect()
}
