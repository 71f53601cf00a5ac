use std::net::SocketAddr;
use std::time::Duration;

use spandrel_platform::{Address, Listener, Platform};
use spandrel_platform_simulated::{
    DelayRange, Process, RunEnd, SimulatedConnection, SimulatedPlatform, World, WorldConfig,
};

use super::*;
use crate::TlsPlatform;
use crate::testing::TestAuthority;

type SecurePlatform = TlsPlatform<SimulatedPlatform>;
type Secure = TlsConnection<SimulatedConnection>;

const CLUSTER: &str = "one.cluster.test";

fn config(seed: u64) -> WorldConfig {
    let mut config = WorldConfig::default();
    config.network.delay = DelayRange::microseconds(50, 500);
    config.network.split_per_mille = (seed % 4) as u32 * 300;
    config
}

/// Two processes with TLS, one of which listens. A seed decides about the network; keys and signatures differ from run to
/// run.
struct Pair {
    world: World,
    server: Process,
    client: Process,
    near: SecurePlatform,
    far: SecurePlatform,
    address: Address,
}

impl Pair {
    fn new(seed: u64, far: &TestAuthority, near: &TestAuthority) -> Self {
        Self::with(seed, |address| far.holder("far", near, &[address]), near.holder("near", far, &[]))
    }

    fn with(seed: u64, far: impl FnOnce(Address) -> TlsSettings, near: TlsSettings) -> Self {
        let world = World::with_config(seed, config(seed));
        let (server, client) = (world.process("server"), world.process("client"));
        let address = Address::Tcp(SocketAddr::new(server.host().address(0), 7000));
        let far = TlsPlatform::new(server.platform(), Some(far(address.clone())));
        let near = TlsPlatform::new(client.platform(), Some(near));
        Self { world, server, client, near, far, address }
    }

    /// Connects, and has both sides do something with their ends. What both come to.
    fn connected<A: 'static, B: 'static, NearDone, FarDone>(
        &self,
        near: impl FnOnce(Secure) -> NearDone + 'static,
        far: impl FnOnce(Secure) -> FarDone + 'static,
    ) -> (A, B)
    where
        NearDone: Future<Output = A>,
        FarDone: Future<Output = B>,
    {
        let listener = self.far.listen(&self.address).unwrap();
        let outcome = Rc::new(RefCell::new(None));
        let far_outcome = Rc::clone(&outcome);
        self.server.spawn(async move {
            let connection = listener.accept().await.unwrap();
            *far_outcome.borrow_mut() = Some(far(connection).await);
        });
        let (platform, address) = (self.near.clone(), self.address.clone());
        let near = async move { near(platform.connect(&address).await.unwrap()).await };
        let near = self.client.block_on(near).expect("it ends");
        let end = self.world.run_until_within(Duration::from_secs(60), || outcome.borrow().is_some());
        assert_eq!(end, RunEnd::ConditionMet);
        let far = outcome.borrow_mut().take();
        (near, far.expect("it ends"))
    }
}

async fn receive_exactly(connection: &Secure, count: usize) -> Result<Vec<u8>, LinkError> {
    let mut all = Vec::new();
    let mut part = vec![0; 1 + count % 5000];
    while all.len() < count {
        let room = part.len().min(count - all.len());
        let received = connection.receive(&mut part[..room]).await?;
        assert_ne!(received, 0, "the other side closed after {} of {count} bytes", all.len());
        all.extend_from_slice(&part[..received]);
    }
    Ok(all)
}

/// Bytes that show where they belong.
fn pattern(count: usize, seed: u64) -> Vec<u8> {
    (0..count as u64).map(|index| (index.wrapping_mul(31) ^ (index >> 8) ^ seed) as u8).collect()
}

/// Sends `bytes` as heads and bodies of many sizes.
fn send_in_parts(platform: &SimulatedPlatform, connection: &Secure, bytes: &[u8], seed: u64) {
    let mut rest = bytes;
    let mut step = seed as usize;
    while !rest.is_empty() {
        step = step.wrapping_mul(1103).wrapping_add(7) % 70_000;
        let (head, behind) = rest.split_at((step % 300).min(rest.len()));
        let (body, behind) = behind.split_at(step.min(behind.len()));
        let cut = body.len() / 3;
        let parts = [&body[..cut], &body[cut..]].map(|part| platform.buffers().copy_of(part).freeze());
        connection.send(head, &parts);
        rest = behind;
    }
}

fn exchange(seed: u64, authority: &TestAuthority) {
    let pair = Pair::new(seed, authority, authority);
    let (there, back) = (pattern(300_000, seed), pattern(500_000, seed + 1));
    let (client, server) = (pair.client.platform(), pair.server.platform());
    let (near_there, near_back) = (there.clone(), back.len());
    let (far_there, far_back) = (there.len(), back.clone());
    let (received_back, received_there) = pair.connected(
        async move |connection| {
            send_in_parts(&client, &connection, &near_there, seed);
            receive_exactly(&connection, near_back).await.unwrap()
        },
        async move |connection| {
            send_in_parts(&server, &connection, &far_back, seed + 1);
            receive_exactly(&connection, far_there).await.unwrap()
        },
    );
    assert!(received_there == there, "seed {seed}: the bytes that went there differ");
    assert!(received_back == back, "seed {seed}: the bytes that came back differ");
}

#[test]
fn bytes_arrive_whole_and_in_order_both_ways() {
    let authority = TestAuthority::new(CLUSTER);
    (0..12).for_each(|seed| exchange(seed, &authority));
}

#[test]
fn keys_are_renewed_while_both_sides_send() {
    let authority = TestAuthority::with_short_keys(CLUSTER, 5);
    (0..6).for_each(|seed| exchange(seed, &authority));
}

#[test]
fn each_side_learns_who_the_other_is_with_the_first_bytes() {
    let authority = TestAuthority::new(CLUSTER);
    let pair = Pair::new(1, &authority, &authority);
    let (near, far) = pair.connected(
        async |connection| {
            connection.send(b"hello", &[]);
            receive_exactly(&connection, 7).await.unwrap();
            connection.peer_name()
        },
        async |connection| {
            assert_eq!(connection.peer_name(), None, "nothing has been proven yet");
            receive_exactly(&connection, 5).await.unwrap();
            connection.send(b"welcome", &[]);
            // Until the other side is gone: what closes first takes what is under way with it.
            let _ = connection.receive(&mut [0; 1]).await;
            connection.peer_name()
        },
    );
    assert_eq!((near.as_deref(), far.as_deref()), (Some("far"), Some("near")));
}

#[test]
fn an_encrypted_connection_stays_with_its_thread() {
    let authority = TestAuthority::new(CLUSTER);
    let pair = Pair::new(1, &authority, &authority);
    let platform = pair.far.clone();
    let (near, far) = pair.connected(
        async |connection| {
            connection.send(b"hello", &[]);
            receive_exactly(&connection, 7).await.unwrap()
        },
        async move |connection| {
            receive_exactly(&connection, 5).await.unwrap();
            let is_detached = platform.detach(&connection).is_some();
            connection.send(b"welcome", &[]);
            let _ = connection.receive(&mut [0; 1]).await;
            is_detached
        },
    );
    assert_eq!((&near[..], far), (&b"welcome"[..], false));
}

#[test]
fn nothing_leaves_before_the_other_side_has_proven_who_it_is() {
    let authority = TestAuthority::new(CLUSTER);
    let pair = Pair::new(2, &authority, &authority);
    // Listens without TLS, and records what comes.
    let listener = pair.server.platform().listen(&pair.address).unwrap();
    let heard: Rc<RefCell<Vec<u8>>> = Rc::default();
    let hearing = Rc::clone(&heard);
    pair.server.spawn(async move {
        let connection = listener.accept().await.unwrap();
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = connection.receive(&mut bytes).await {
            hearing.borrow_mut().extend_from_slice(&bytes[..count]);
            connection.send(b"SPANDREL NO TLS HERE", &[]);
        }
    });
    let (platform, address) = (pair.near.clone(), pair.address.clone());
    let received = pair.client.block_on(async move {
        let connection = platform.connect(&address).await.unwrap();
        connection.send(b"a secret of the cluster", &[]);
        let received = connection.receive(&mut [0; 100]).await;
        let again = connection.receive(&mut [0; 100]).await;
        assert_eq!(received, again, "an error stays");
        received
    });
    let error = received.expect("it ends").unwrap_err().to_string();
    assert!(error.contains("does not speak TLS"), "{error}");
    let heard = heard.borrow();
    assert!(!heard.is_empty(), "it has been spoken to");
    assert!(!heard.windows(6).any(|window| window == b"secret"));
}

/// What both sides are told when they do not accept each other.
fn refusals(pair: &Pair) -> (String, String) {
    let told = |received: Result<usize, LinkError>| match received {
        Ok(count) => format!("{count} bytes"),
        Err(error) => error.to_string(),
    };
    pair.connected(
        async move |connection: Secure| {
            connection.send(b"hello", &[]);
            told(connection.receive(&mut [0; 100]).await)
        },
        async move |connection: Secure| {
            let first = told(connection.receive(&mut [0; 100]).await);
            connection.send(b"never sent", &[]);
            first
        },
    )
}

#[test]
fn certificates_of_another_authority_are_refused_with_the_reason() {
    let (one, other) = (TestAuthority::new(CLUSTER), TestAuthority::new(CLUSTER));
    // Both trust their own authority alone.
    let server = |address| one.holder("far", &one, &[address]);
    let (near, far) = refusals(&Pair::with(3, server, other.holder("near", &other, &[])));
    assert!(near.contains("is not one of this cluster"), "{near}");
    assert!(far.contains("does not accept this side's certificate"), "{far}");
    // The client would accept the server, which does not accept it.
    let server = |address| one.holder("far", &one, &[address]);
    let (near, far) = refusals(&Pair::with(4, server, other.holder("near", &one, &[])));
    assert!(near.contains("does not accept this side's certificate"), "{near}");
    assert!(far.contains("is not one of this cluster"), "{far}");
}

#[test]
fn a_name_of_another_cluster_is_refused() {
    let authority = TestAuthority::new("two.cluster.test");
    let mut near = authority.holder("near", &authority, &[]);
    near.common_name = CLUSTER.try_into().unwrap();
    let server = |address| authority.holder("far", &authority, &[address]);
    let (near, _) = refusals(&Pair::with(5, server, near));
    assert!(near.contains("another cluster"), "{near}");
}

#[test]
fn who_shows_no_certificate_is_refused() {
    let authority = TestAuthority::new(CLUSTER);
    let server = |address| authority.holder("far", &authority, &[address]);
    let (near, far) = refusals(&Pair::with(6, server, authority.stranger(&authority)));
    assert!(near.contains("no certificate was shown"), "{near}");
    assert!(far.contains("no certificate was shown"), "{far}");
}

#[test]
fn a_side_that_closes_is_heard_to_and_its_last_words_too() {
    let authority = TestAuthority::new(CLUSTER);
    let pair = Pair::new(7, &authority, &authority);
    let (near, far) = pair.connected(
        async |connection| {
            connection.send(b"hello", &[]);
            let words = receive_exactly(&connection, 9).await.unwrap();
            let end = connection.receive(&mut [0; 1]).await;
            (words, end, connection.receive(&mut [0; 1]).await)
        },
        async |connection| {
            receive_exactly(&connection, 5).await.unwrap();
            connection.send(b"last word", &[]);
            connection.close();
            connection.send(b"too late", &[]);
            connection.receive(&mut [0; 1]).await
        },
    );
    assert_eq!(near, (b"last word".to_vec(), Ok(0), Ok(0)));
    assert!(matches!(far, Err(LinkError::Closed(_))), "{far:?}");
}

/// Half of a message of the handshake, in a record that is whole.
const HALF_A_HELLO: &[u8] = &[22, 3, 1, 0, 6, 1, 0, 1, 0, 3, 3];

#[test]
fn a_handshake_that_is_given_up_half_way_harms_nobody() {
    let authority = TestAuthority::new(CLUSTER);
    for sent in [&HALF_A_HELLO[..0], &HALF_A_HELLO[..7], HALF_A_HELLO] {
        let pair = Pair::new(9, &authority, &authority);
        let listener = pair.far.listen(&pair.address).unwrap();
        let (raw, address, far) = (pair.client.platform(), pair.address.clone(), pair.far.clone());
        pair.client.spawn(async move {
            let connection = raw.connect(&address).await.unwrap();
            connection.send(sent, &[]);
            let _ = connection.receive(&mut [0; 100]).await;
        });
        let ended = pair.server.block_on(async move {
            let connection = listener.accept().await.unwrap();
            connection.send(b"never sent", &[]);
            let deadline = far.now() + Duration::from_secs(1);
            let received = spandrel_platform::before(&far, deadline, connection.receive(&mut [0; 100])).await;
            assert_eq!(received, None, "nothing comes of half a message");
            connection.send(b"never sent either", &[]);
            connection.close();
            connection.receive(&mut [0; 100]).await
        });
        assert!(matches!(ended, Ok(Err(LinkError::Closed(_)))), "{ended:?}");
    }
}

#[test]
fn a_handshake_that_is_drawn_out_is_cut_off() {
    let authority = TestAuthority::new(CLUSTER);
    let pair = Pair::new(9, &authority, &authority);
    let listener = pair.far.listen(&pair.address).unwrap();
    let (raw, address) = (pair.client.platform(), pair.address.clone());
    pair.client.spawn(async move {
        let connection = raw.connect(&address).await.unwrap();
        // A hello of 60,000 bytes, a byte to each record.
        connection.send(&[22, 3, 1, 0, 4, 1, 0, 0xEA, 0x60], &[]);
        for _ in 0..60_000 {
            connection.send(&[22, 3, 1, 0, 1, 0], &[]);
        }
        let _ = connection.receive(&mut [0; 100]).await;
    });
    let received = pair.server.block_on(async move {
        let connection = listener.accept().await.unwrap();
        connection.receive(&mut [0; 100]).await
    });
    let error = received.expect("it ends").unwrap_err().to_string();
    assert!(error.contains("too many parts"), "{error}");
}

#[test]
fn what_arrived_before_an_error_is_received_before_it() {
    let authority = TestAuthority::new(CLUSTER);
    for seed in 0..8 {
        let pair = Pair::new(seed, &authority, &authority);
        let (near, far) = pair.connected(
            async |connection: Secure| {
                connection.send(b"hello", &[]);
                receive_exactly(&connection, 7).await.unwrap();
                connection.send(b"last words", &[]);
                // A record that nobody has encrypted.
                let TlsConnection::Secured(secured) = &connection else { unreachable!("it is secured") };
                secured.connection.send(
                    &[23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0],
                    &[],
                );
                connection.receive(&mut [0; 1]).await
            },
            async |connection: Secure| {
                receive_exactly(&connection, 5).await.unwrap();
                connection.send(b"welcome", &[]);
                let words = receive_exactly(&connection, 10).await.unwrap();
                let first = connection.receive(&mut [0; 1]).await;
                assert_eq!(first, connection.receive(&mut [0; 1]).await, "an error stays");
                (words, first)
            },
        );
        assert_eq!(far.0, b"last words", "seed {seed}");
        assert!(far.1.is_err() && near.is_err(), "seed {seed}: {far:?} {near:?}");
    }
}

#[test]
fn what_waits_for_the_handshake_counts_as_queued() {
    let authority = TestAuthority::new(CLUSTER);
    let pair = Pair::new(3, &authority, &authority);
    let (client, far) = (pair.client.platform(), vec![7; 5000]);
    let ((), received) = pair.connected(
        async move |connection: Secure| {
            connection.send(&far, &[]);
            assert!(connection.queued_bytes() >= 5000);
            let has_room = connection.clone();
            let room = client.spawn(async move { has_room.send_room(1000).await.unwrap() });
            assert_eq!(receive_exactly(&connection, 2).await.unwrap(), b"ok");
            connection.send_room(1000).await.unwrap();
            drop(room);
        },
        async |connection: Secure| {
            let received = receive_exactly(&connection, 5000).await.unwrap();
            connection.send(b"ok", &[]);
            let _ = connection.receive(&mut [0; 1]).await;
            received
        },
    );
    assert_eq!(received, vec![7; 5000]);
}

#[test]
fn a_receive_that_is_dropped_loses_nothing() {
    let authority = TestAuthority::new(CLUSTER);
    let pair = Pair::new(8, &authority, &authority);
    let (sent, client, server) = (pattern(100_000, 8), pair.client.platform(), pair.server.platform());
    let expected = sent.clone();
    let ((), received) = pair.connected(
        async move |connection: Secure| {
            for (part, seed) in sent.chunks(7_000).zip(0..) {
                send_in_parts(&client, &connection, part, seed);
                client.sleep(Duration::from_micros(200)).await;
            }
            let _ = connection.receive(&mut [0; 1]).await;
        },
        async move |connection: Secure| {
            let mut all = Vec::new();
            let mut part = vec![0; 3_000];
            while all.len() < 100_000 {
                let deadline = server.now() + Duration::from_micros(70);
                let received =
                    spandrel_platform::before(&server, deadline, connection.receive(&mut part)).await;
                if let Some(received) = received {
                    all.extend_from_slice(&part[..received.unwrap()]);
                }
            }
            all
        },
    );
    assert!(received == expected);
}

#[test]
fn without_tls_only_loopback_is_listened_on_and_connected_to() {
    let world = World::new(9);
    let process = world.process("server");
    let platform = TlsPlatform::new(process.platform(), None);
    let outside = Address::Tcp(SocketAddr::new(process.host().address(0), 7000));
    let error = platform.listen(&outside).err().expect("it is refused").to_string();
    assert!(error.contains("without TLS"), "{error}");
    let error = process.block_on({
        let (platform, outside) = (platform.clone(), outside.clone());
        async move { platform.connect(&outside).await.err().map(|error| error.to_string()) }
    });
    assert!(error.expect("it ends").expect("it is refused").contains("without TLS"));
    for address in ["127.0.0.1:7000", "/run/test.sock"] {
        assert!(platform.listen(&address.parse().unwrap()).is_ok(), "{address}");
    }
    // Where TLS is spoken, nothing over TCP goes without, not even within the machine.
    let authority = TestAuthority::new(CLUSTER);
    let secured = TlsPlatform::new(process.platform(), Some(authority.holder("far", &authority, &[])));
    assert!(secured.listen(&outside).is_err());
    assert!(secured.listen(&"127.0.0.1:7000".parse().unwrap()).is_err());
    assert!(secured.listen(&"/run/other.sock".parse().unwrap()).is_ok());
}
