use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Barrier};

use spandrel_platform::{Connection, Platform};
use tempfile::tempdir;

use super::*;
use crate::test_support::{any_port, receive_exactly, run, socket_in};
use crate::{LinuxPlatform, Runtime, RuntimeConfig};

fn listen(platform: &LinuxPlatform, address: &Address) -> Result<LinuxListener, LinkError> {
    platform.listen(address)
}

#[test]
fn port_zero_becomes_a_real_port() {
    run(|platform| async move {
        let first = listen(&platform, &any_port()).unwrap();
        let second = listen(&platform, &any_port()).unwrap();
        let (Address::Tcp(one), Address::Tcp(other)) = (first.address(), second.address()) else {
            panic!("TCP was asked for")
        };
        assert!(one.port() != 0 && other.port() != 0 && one != other);
        let client = platform.connect(&first.address()).await.unwrap();
        let server = first.accept().await.unwrap();
        assert!(server.peer().starts_with("127.0.0.1:"));
        client.send(b"x", &[]);
        assert_eq!(receive_exactly(&server, 1).await, b"x");
    });
}

#[test]
fn a_port_that_is_taken_is_said_to_be() {
    run(|platform| async move {
        let first = listen(&platform, &any_port()).unwrap();
        let address = first.address();
        assert!(matches!(listen(&platform, &address), Err(LinkError::AddressInUse(_))));
        drop(first);
        assert!(listen(&platform, &address).is_ok());
    });
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let directory = tempdir().unwrap();
    let address = socket_in(directory.path());
    let path = directory.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a plain listener leaves its file behind");
    run(|platform| async move {
        let listener = listen(&platform, &address).unwrap();
        let Err(LinkError::AddressInUse(detail)) = listen(&platform, &address) else {
            panic!("took a live listener's place")
        };
        assert!(detail.contains("another process listens there"), "{detail}");
        let connecting = platform.connect(&address);
        let client = connecting.await.unwrap();
        // The probe of the second listener came first, and has left again.
        let _probe = listener.accept().await.unwrap();
        let server = listener.accept().await.unwrap();
        client.send(b"served", &[]);
        assert_eq!(receive_exactly(&server, 6).await, b"served");
        assert!(server.peer().contains(&std::process::id().to_string()));
        drop(listener);
        assert!(!path.exists(), "the file goes with the listener");
        assert!(listen(&platform, &address).is_ok());
    });
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("socket");
    std::fs::write(&path, "precious").unwrap();
    let address = socket_in(directory.path());
    run(move |platform| async move {
        let Err(LinkError::AddressInUse(detail)) = listen(&platform, &address) else { panic!("replaced it") };
        assert!(detail.contains("no socket"), "{detail}");
    });
    assert_eq!(std::fs::read_to_string(path).unwrap(), "precious");
}

#[test]
fn a_socket_that_replaced_ours_is_not_removed() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("socket");
    let address = socket_in(directory.path());
    run(move |platform| async move {
        let listener = listen(&platform, &address).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(UnixStream::connect(&path).is_ok());
    });
}

#[test]
fn a_path_too_long_is_explained() {
    run(|platform| async move {
        let longest = format!("/{}", "x".repeat(106));
        let Err(LinkError::Other(detail)) = listen(&platform, &Address::Unix(format!("{longest}y"))) else {
            panic!("took a path of 108 bytes")
        };
        assert!(
            detail.contains("108 bytes") && detail.contains("107") && detail.contains("shorter"),
            "{detail}"
        );
        let refused = platform.connect(&Address::Unix(longest)).await.err();
        assert!(matches!(refused, Some(LinkError::Refused(_))), "107 bytes are fine: {refused:?}");
    });
}

#[test]
fn a_missing_directory_is_explained() {
    run(|platform| async move {
        let address = Address::Unix("/nonexistent-directory/socket".to_string());
        let Err(LinkError::Other(detail)) = listen(&platform, &address) else { panic!("listens nowhere") };
        assert!(detail.contains("directory does not exist"), "{detail}");
    });
}

#[test]
fn of_many_starters_on_a_stale_path_one_listens() {
    const STARTERS: usize = 8;
    let directory = tempdir().unwrap();
    for _ in 0..20 {
        drop(UnixListener::bind(directory.path().join("socket")).unwrap());
        let address = socket_in(directory.path());
        let barriers = Arc::new((Barrier::new(STARTERS), Barrier::new(STARTERS)));
        let starters: Vec<_> = (0..STARTERS)
            .map(|_| {
                let (address, barriers) = (address.clone(), Arc::clone(&barriers));
                std::thread::spawn(move || {
                    let runtime = Runtime::new(RuntimeConfig::default()).unwrap();
                    barriers.0.wait();
                    let listener = runtime.platform().listen(&address);
                    barriers.1.wait();
                    match listener {
                        Ok(_) => true,
                        Err(LinkError::AddressInUse(_)) => false,
                        Err(error) => panic!("{error}"),
                    }
                })
            })
            .collect();
        let winners = starters.into_iter().map(|starter| starter.join().unwrap());
        assert_eq!(winners.filter(|listens| *listens).count(), 1);
    }
}

#[test]
fn a_crowd_is_accepted_over_several_turns() {
    const CROWD: usize = 3 * ACCEPTS_PER_TURN;
    run(|platform| async move {
        let listener = listen(&platform, &any_port()).unwrap();
        let Address::Tcp(address) = listener.address() else { panic!("TCP was asked for") };
        let crowd: Vec<_> = (0..CROWD).map(|_| TcpStream::connect(address).unwrap()).collect();
        let first_turn = platform.statistics().turns;
        let mut servers = Vec::new();
        while servers.len() < CROWD {
            servers.push(listener.accept().await.unwrap());
        }
        assert!(platform.statistics().turns - first_turn >= 2);
        drop(crowd);
    });
}
