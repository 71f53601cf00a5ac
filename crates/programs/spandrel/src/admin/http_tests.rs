use axum::routing::get;
use axum::{Json, Router};
use spandrel_shared::{ClusterId, NodeId};
use spandrel_trust::{Authority, Credentials, Holder, HolderKey};
use tokio::net::TcpListener;

use super::*;
use crate::admin::server::Caller;
use crate::server::listener::TlsListener;

const ANSWER: u32 = 7;

fn credentials() -> Credentials {
    let cluster = ClusterId::from_random(1, 1);
    let authority = Authority::create(cluster).expect("a new one");
    let key = HolderKey::generate().expect("a new one");
    let holder = Holder { node: NodeId::from_random(1, 2), key: &key.public(), addresses: &[] };
    Credentials {
        cluster,
        authority_pem: authority.certificate_pem().to_owned(),
        certificate_pem: authority.issue(&holder).expect("it can sign"),
        key_pem: key.pem(),
    }
}

/// An address at which nobody ever answers, as of a server that stands still or behind a network that is cut.
async fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
    let address = listener.local_addr().expect("it listens");
    (listener, address)
}

/// An address at which nobody listens.
async fn refusing() -> SocketAddr {
    silent().await.1
}

async fn answering(credentials: &Credentials) -> SocketAddr {
    let address = refusing().await;
    let config = Arc::new(credentials.server(true).expect("they are good"));
    let listener = TlsListener::bind(address, config).await.expect("the port was free a moment ago");
    let router = Router::new().route("/", get(|| async { Json(ANSWER) }));
    let service = router.into_make_service_with_connect_info::<Caller>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

async fn ask(credentials: &Credentials, addresses: Vec<SocketAddr>) -> Result<u32, Error> {
    let tls = Arc::new(credentials.client().expect("they are good"));
    let name = credentials.common_name().expect("it is one");
    HttpClient::new(Place::Addresses { addresses, tls, name }, None).get("/").await
}

#[tokio::test]
async fn addresses_that_do_not_answer_hold_nobody_up() {
    let credentials = credentials();
    let (_first, first) = silent().await;
    let (_second, second) = silent().await;
    let (refusing, good) = (refusing().await, answering(&credentials).await);
    for addresses in
        [vec![good, first], vec![first, good], vec![first, second, good], vec![refusing, first, good]]
    {
        // Before a silent one is given up.
        tokio::select! {
            answer = ask(&credentials, addresses.clone()) => assert_eq!(answer.ok(), Some(ANSWER), "{addresses:?}"),
            given_up = ask(&credentials, vec![first]) => panic!("{addresses:?}: only after {given_up:?}"),
        }
    }
}

#[tokio::test]
async fn when_no_address_answers_it_is_said_of_each_why() {
    let (_silent, silent) = silent().await;
    let refusing = refusing().await;
    let error = ask(&credentials(), vec![refusing, silent]).await.expect_err("nobody answers");
    assert_eq!(error.code, "CLUSTER_NOT_REACHED");
    assert!(error.why.contains(&format!("{silent}: no answer")), "{}", error.why);
    assert!(error.why.contains(&format!("{refusing}: ")), "{}", error.why);
    assert_eq!(ask(&credentials(), Vec::new()).await.expect_err("there is none").code, "CLUSTER_NOT_REACHED");
}
