use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt as _;
use spandrel_platform::{Address, Connection as _, Instant, Platform as _};
use spandrel_volume::DeviceErrorKind;

use super::*;
use crate::testing::{
    Client, EXPORT, MemoryDisk, MemoryExports, Request, TestConnection, TestPlatform, negotiate,
};
use crate::{FrontendStatistics, NbdConfig, NbdServer};

const SIZE: usize = 1 << 20;

/// Servers of one process, each listening: the disk [`EXPORT`] belongs to the second one, `other` to the first.
#[derive(Clone)]
struct Servers {
    platform: TestPlatform,
    exports: MemoryExports,
    servers: Vec<NbdServer<TestPlatform, MemoryExports>>,
}

impl Servers {
    fn new(count: usize) -> Self {
        let platform = TestPlatform::new();
        let disks = [(EXPORT, MemoryDisk::new(&platform, SIZE)), ("other", MemoryDisk::new(&platform, 4096))];
        let exports = MemoryExports::new(&platform, &disks);
        exports.give_to(EXPORT, 1 % count);
        exports.give_to("other", 0);
        let server = |(number, exchange): (usize, Exchange<TestConnection>)| {
            let config = NbdConfig::default();
            let server =
                NbdServer::one_of_several(platform.clone(), exports.of_thread(number), config, exchange);
            let listener = platform.listen(&address(number)).expect("nobody listens there");
            let (listening, passed_on) = (server.clone(), server.clone());
            platform.spawn(async move { listening.serve(listener).await.expect("it listens") });
            platform.spawn(async move { passed_on.serve_passed_on().await });
            server
        };
        let servers = Exchange::among(count).into_iter().enumerate().map(server).collect();
        Self { platform: platform.clone(), exports, servers }
    }

    async fn connect(&self, number: usize) -> TestConnection {
        self.platform.connect(&address(number)).await.expect("it listens")
    }

    fn statistics(&self, number: usize) -> FrontendStatistics {
        self.servers[number].statistics()
    }

    /// Open connections of each server, and those that it has accepted.
    fn connections(&self) -> Vec<(u64, u64)> {
        let statistics = self.servers.iter().map(NbdServer::statistics);
        statistics.map(|counts| (counts.connections, counts.connections_accepted)).collect()
    }

    fn run<T: 'static>(&self, test: impl AsyncFnOnce(Servers) -> T + 'static) -> T {
        let own = self.clone();
        self.platform.run(async move { test(own).await })
    }
}

fn address(number: usize) -> Address {
    Address::Unix(format!("socket {number}"))
}

/// A client's session, said without waiting for an answer: it asks for all kinds of things before it chooses its disk.
fn script(structured: bool) -> Vec<u8> {
    let mut bytes = negotiate::CLIENT_FLAGS.to_vec();
    bytes.extend(negotiate::option(3, &[]));
    bytes.extend(negotiate::option(6, &negotiate::information(EXPORT, &[1, 2, 3])));
    bytes.extend(negotiate::option(6, &negotiate::information("other", &[1, 2, 3])));
    bytes.extend(negotiate::option(6, &negotiate::information("nothing", &[])));
    bytes.extend(&negotiate::script(EXPORT, structured)[4..]);
    bytes.extend(Request::write(1, 4096, vec![7; 2048]).bytes());
    bytes.extend(Request::new(Request::READ, 2, 4096, 4096).bytes());
    bytes.extend(Request::new(Request::DISCONNECT, 3, 0, 0).bytes());
    bytes
}

/// All that a client hears that says [`script`] to the first of so many servers.
fn heard(servers: usize, structured: bool, fragment: usize) -> Vec<u8> {
    let servers = Servers::new(servers);
    servers.platform.fragment(fragment);
    servers.run(async move |servers| {
        let connection = servers.connect(0).await;
        connection.send(&script(structured), &[]);
        let heard = connection.receive_to_end().await;
        let last = servers.servers.len() - 1;
        assert_eq!(servers.statistics(last).reads, 1, "the server of the disk has read");
        heard
    })
}

#[test]
fn a_client_does_not_notice_which_server_it_has() {
    for structured in [false, true] {
        let alone = heard(1, structured, usize::MAX);
        assert!(alone.len() > 4096 + 500, "it hears all answers");
        for fragment in [1, 7, 64, usize::MAX] {
            assert_eq!(heard(2, structured, fragment), alone, "{fragment} bytes at a time");
        }
    }
}

#[test]
fn all_clients_of_a_disk_come_to_its_server() {
    Servers::new(3).run(async |servers| {
        let mut clients = Vec::new();
        for number in 0..3 {
            clients.push(Client::attach(servers.connect(number).await, EXPORT, true).await);
        }
        assert_eq!(servers.connections(), [(0, 1), (3, 1), (0, 1)]);
        assert_eq!(clients[0].ask(&Request::write(1, 512, vec![9; 512])).await.error, 0);
        assert_eq!(clients[2].ask(&Request::new(Request::READ, 1, 512, 512)).await.data, [9; 512]);
        assert_eq!((servers.statistics(1).writes, servers.statistics(1).reads), (1, 1));
        assert_eq!(servers.exports.opens(), 3, "none was opened where it does not belong");
        // A client that changes its mind changes the server again.
        let connection = servers.connect(2).await;
        negotiate::greeting(&connection).await.expect("a greeting");
        connection.send(&negotiate::CLIENT_FLAGS, &[]);
        for name in [EXPORT, "other", EXPORT] {
            let data = negotiate::information(name, &[]);
            let replies = negotiate::ask(&connection, 6, &data).await.expect("an answer");
            assert_eq!(replies.last().expect("an end").0, negotiate::ACKNOWLEDGED);
        }
        let replies = negotiate::ask(&connection, 7, &negotiate::information("other", &[])).await;
        assert_eq!(replies.expect("an answer").last().expect("an end").0, negotiate::ACKNOWLEDGED);
        assert_eq!(servers.connections(), [(1, 1), (3, 1), (0, 2)]);
    });
}

#[test]
fn a_connection_that_cannot_leave_ends() {
    let servers = Servers::new(2);
    servers.platform.keep_connections();
    servers.run(async |servers| {
        let connection = servers.connect(0).await;
        negotiate::greeting(&connection).await.expect("a greeting");
        connection.send(&negotiate::script(EXPORT, false), &[]);
        assert_eq!(connection.receive_to_end().await, b"");
        assert_eq!(servers.statistics(0).negotiations_refused, 1);
        assert_eq!(servers.exports.opens(), 0, "others share the disk at its own server");
    });
}

#[test]
fn a_client_of_whose_disk_the_server_is_unknown_is_refused_and_may_ask_again() {
    Servers::new(2).run(async |servers| {
        servers.exports.fail_open(Some(DeviceErrorKind::Failed));
        let connection = servers.connect(0).await;
        negotiate::greeting(&connection).await.expect("a greeting");
        connection.send(&negotiate::CLIENT_FLAGS, &[]);
        let go = negotiate::information(EXPORT, &[]);
        for option in [6, 7] {
            let replies = negotiate::ask(&connection, option, &go).await.expect("an answer");
            assert_eq!(replies, [(negotiate::UNKNOWN, b"planted failure".to_vec())]);
        }
        assert_eq!((servers.statistics(0).exports_refused, servers.exports.opens()), (2, 0));
        servers.exports.fail_open(None);
        let replies = negotiate::ask(&connection, 7, &go).await.expect("an answer");
        assert_eq!(replies.last().expect("an end").0, negotiate::ACKNOWLEDGED);
        assert_eq!(servers.connections(), [(0, 1), (1, 0)]);
        // An older way to choose a disk knows no answer but to close.
        servers.exports.fail_open(Some(DeviceErrorKind::Failed));
        let connection = servers.connect(0).await;
        negotiate::greeting(&connection).await.expect("a greeting");
        connection.send(&negotiate::CLIENT_FLAGS, &[]);
        connection.send(&negotiate::option(1, EXPORT.as_bytes()), &[]);
        assert_eq!(connection.receive_to_end().await, b"");
    });
}

#[test]
fn a_server_that_has_stopped_takes_nobody() {
    Servers::new(2).run(async |servers| {
        servers.servers[1].stop().await;
        let connection = servers.connect(0).await;
        negotiate::greeting(&connection).await.expect("a greeting");
        connection.send(&negotiate::script(EXPORT, false), &[]);
        assert_eq!(connection.receive_to_end().await, b"");
        assert_eq!(servers.connections(), [(0, 1), (0, 0)]);
        // Others are served as before.
        let client = Client::attach(servers.connect(0).await, "other", false).await;
        assert_eq!(client.ask(&Request::new(Request::READ, 1, 0, 512)).await.error, 0);
    });
}

#[test]
fn a_client_has_no_more_time_with_two_servers_than_with_one() {
    Servers::new(2).run(async |servers| {
        let timeout = NbdConfig::default().negotiation_timeout;
        let began = servers.platform.now();
        let connection = servers.connect(0).await;
        negotiate::greeting(&connection).await.expect("a greeting");
        servers.platform.sleep(timeout / 2).await;
        connection.send(&negotiate::CLIENT_FLAGS, &[]);
        let replies = negotiate::ask(&connection, 6, &negotiate::information(EXPORT, &[])).await;
        assert_eq!(replies.expect("an answer").last().expect("an end").0, negotiate::ACKNOWLEDGED);
        assert_eq!(servers.connections(), [(0, 1), (1, 0)]);
        connection.receive_to_end().await;
        assert_eq!(servers.platform.now().since(began), timeout);
        assert_eq!(servers.statistics(1).negotiations_refused, 1);
    });
}

#[test]
fn the_time_to_find_the_server_is_not_the_clients() {
    Servers::new(2).run(async |servers| {
        let timeout = NbdConfig::default().negotiation_timeout;
        servers.exports.delay_open(timeout * 2);
        let client = Client::attach(servers.connect(0).await, EXPORT, true).await;
        servers.exports.delay_open(Duration::ZERO);
        assert_eq!(client.ask(&Request::new(Request::READ, 1, 0, 512)).await.error, 0);
    });
}

#[test]
fn few_wait_for_a_server_that_takes_none() {
    let exchanges = Exchange::<Rc<()>>::among(2);
    let connection = Rc::new(());
    let send = || {
        let progress = Progress::begin(Instant::from_nanoseconds(1), &NbdConfig::default());
        exchanges[0]
            .send(1, Passage { connection: Rc::clone(&connection), progress, unanswered: Vec::new() });
    };
    (0..WAITING_MAX + 5).for_each(|_| send());
    assert_eq!(Rc::strong_count(&connection), 1 + WAITING_MAX);
    drop(exchanges[1].next().now_or_never().flatten().expect("some wait"));
    (0..3).for_each(|_| send());
    assert_eq!(Rc::strong_count(&connection), 1 + WAITING_MAX, "one has made room");
    exchanges[1].close();
    send();
    assert_eq!(Rc::strong_count(&connection), 1);
}
