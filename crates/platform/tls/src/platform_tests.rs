use std::net::{Ipv4Addr, SocketAddr};

use spandrel_platform_linux::{Runtime, RuntimeConfig};

use super::*;
use crate::testing::TestAuthority;

/// One thread talks to itself over TCP, with TLS. Whether that stayed within the process, and what the connecting side knows of the
/// other one.
fn talk_to_itself(stays_in_process: bool) -> (bool, Option<String>) {
    let authority = TestAuthority::new("one.cluster.test");
    let any_port = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let settings = authority.holder("itself", &authority, std::slice::from_ref(&any_port));
    let config = RuntimeConfig { stays_in_process, ..RuntimeConfig::default() };
    let mut runtime = Runtime::new(config).unwrap();
    let platform = TlsPlatform::new(runtime.platform(), Some(settings));
    runtime.block_on(async move {
        let listener = platform.listen(&any_port).unwrap();
        let client = platform.connect(&listener.address()).await.unwrap();
        let server = listener.accept().await.unwrap();
        assert_eq!(client.is_within_process(), server.is_within_process());
        let answering = server.clone();
        platform.spawn(async move {
            let mut into = [0; 8];
            let count = answering.receive(&mut into).await.unwrap();
            answering.send(&into[..count], &[]);
            // Until the other side is gone: what closes first takes what is under way with it.
            let _ = answering.receive(&mut into).await;
        });
        client.send(b"hello", &[]);
        let mut into = [0; 8];
        assert_eq!(client.receive(&mut into).await, Ok(5));
        (client.is_within_process(), client.peer_name())
    })
}

#[test]
fn what_stays_within_the_process_is_not_encrypted_and_all_else_is() {
    assert_eq!(talk_to_itself(false), (false, Some("itself".to_owned())));
    assert_eq!(talk_to_itself(true), (true, None));
}
