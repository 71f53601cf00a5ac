use tokio::io::AsyncReadExt as _;

use super::*;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

/// A connection with a place, and its other end.
fn connection(places: &Arc<Places>) -> (Guarded<tokio::io::DuplexStream>, Proof, tokio::io::DuplexStream) {
    let (near, far) = tokio::io::duplex(64);
    let place = places.take();
    let proof = place.proof();
    (Guarded::new(near, Some(place)), proof, far)
}

#[test]
fn the_oldest_that_has_proven_nothing_is_closed_when_there_are_too_many() {
    run(async {
        let places = Places::new(2, LONG);
        let (mut first, proof, _far1) = connection(&places);
        let (mut second, _, _far2) = connection(&places);
        proof.give();
        let mut byte = [0];
        // It notices its proof when it is asked for something.
        assert!(tokio::time::timeout(Duration::from_millis(1), first.read(&mut byte)).await.is_err());
        assert_eq!(places.taken(), 1);
        let (_third, _, _far3) = connection(&places);
        let (_fourth, _, _far4) = connection(&places);
        let closed = second.read(&mut byte).await.expect_err("it was the oldest");
        assert_eq!(closed.kind(), ErrorKind::TimedOut);
        assert!(
            tokio::time::timeout(Duration::from_millis(1), first.read(&mut byte)).await.is_err(),
            "it stays"
        );
        drop(second);
        assert_eq!(places.taken(), 2);
    });
}

#[test]
fn who_proves_nothing_is_closed_after_a_while_and_who_does_stays() {
    run(async {
        let places = Places::new(8, Duration::from_millis(20));
        let (mut silent, _, _far1) = connection(&places);
        let (mut proven, proof, mut far2) = connection(&places);
        proof.give();
        let mut byte = [0];
        assert!(silent.read(&mut byte).await.is_err());
        tokio::io::AsyncWriteExt::write_all(&mut far2, b"x").await.expect("it is open");
        assert_eq!(proven.read(&mut byte).await.expect("it is open"), 1);
        drop((silent, proven));
        assert_eq!(places.taken(), 0);
    });
}
