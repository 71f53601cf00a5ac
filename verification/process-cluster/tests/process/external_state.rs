//! A cluster whose state is kept by an etcd of others, which lets in only who proves that it may come.

use spandrel_process_cluster::{
    ExternalEtcd, HistoryClient, LoadOptions, LoadThread, Next, Program, Servers, ServersOptions,
};

const VOLUME_BYTES: u64 = 16 << 20;

#[test]
fn a_cluster_keeps_its_state_in_an_etcd_of_others() {
    let mut etcd = ExternalEtcd::start();
    let options = ServersOptions {
        init_arguments: etcd.init_arguments(),
        drive_prefix: String::new(),
        ..ServersOptions::new(2, true)
    };
    let mut servers = Servers::start(&Program::with_test_faults(), &options);
    servers.create_volume("w", "v", &["--size", "16M", "--copies", "2", "--owner", "n1"]);
    let load = LoadThread::start(servers.nbd_address("n2"), "v", VOLUME_BYTES, 1, LoadOptions::default());
    load.await_answers(500);
    // Who only reads and writes needs no state.
    etcd.kill();
    load.await_answers(1000);
    etcd.start_again();
    servers.await_health("n2");
    servers.kill("n1");
    load.await_answers(1000);
    servers.restart("n1");
    servers.await_health("n2");
    let end = load.end(&["n1", "n2"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");

    // It is put back there from a backup, too.
    servers.create_volume("w", "w", &["--size", "16M", "--copies", "2", "--owner", "n1"]);
    let mut client = HistoryClient::new(servers.nbd_address("n1"), "w", VOLUME_BYTES, 2);
    let writes = |answered| if answered < 500 { Next::GoOn } else { Next::End };
    let file = servers.directory("backup.json");
    let file = file.to_str().expect("a plain name");
    for number in 1..=2 {
        let end = client.load(LoadOptions::default(), writes).expect("a cluster that serves");
        assert!(end.is_faultless(), "{end:?}");
        // What comes behind the backup the drives have.
        if number == 1 {
            servers.must_run("n1", &["cluster", "backup", file]);
        }
    }
    let all = ["n1", "n2", "w"];
    all.iter().for_each(|name| servers.stop(name));
    servers.must_run("n1", &["cluster", "recover", "--from", file, "--yes"]);
    servers.restart_together(&all);
    servers.await_health("n2");
    let violations = client.check().expect("a cluster that serves");
    assert!(violations.is_empty(), "{violations:?}");

    // Through the witness everything can be asked for that a node does.
    servers.must_run("w", &["volume", "move", "v", "--owner", "n1"]);
    servers.delete_volume("w", "v");
    assert!(servers.owner("n1", "v").is_none());

    // Who is removed learns of it, though no server keeps the state.
    servers.must_run("n1", &["witness", "remove", "w", "--yes"]);
    servers.await_end("w");
    let back = servers.run("w", &["witness", "run"]);
    assert!(back.errors.contains("SERVER_REMOVED"), "{back:#?}");
}
