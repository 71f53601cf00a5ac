use spandrel_platform::{Buffer, LinkError};

use super::*;

/// A connection on which as much is queued as a test says.
#[derive(Clone, Default)]
struct TestConnection {
    queued: Rc<Cell<usize>>,
    closed: Rc<Cell<bool>>,
}

impl Connection for TestConnection {
    async fn receive(&self, _into: &mut [u8]) -> Result<usize, LinkError> {
        Ok(0)
    }

    fn send(&self, _head: &[u8], _body: &[Buffer]) {}

    fn queued_bytes(&self) -> usize {
        self.queued.get()
    }

    async fn send_room(&self, _limit: usize) -> Result<(), LinkError> {
        Ok(())
    }

    fn close(&self) {
        self.closed.set(true);
    }

    fn peer(&self) -> String {
        String::new()
    }
}

fn paths(count: u32) -> Paths<TestConnection> {
    let paths = Paths::new(Path::new(0, TestConnection::default()));
    (1..count).for_each(|number| paths.add(Path::new(number, TestConnection::default())));
    paths
}

/// Picks and loads paths, a kibibyte each time; how much each carries.
fn load(paths: &Paths<TestConnection>, kibibytes: u32) -> Vec<u64> {
    for _ in 0..kibibytes {
        paths.pick().expect("one is open").carry(1024);
    }
    paths.all().iter().map(|path| path.carried_bytes() >> 10).collect()
}

#[test]
fn all_paths_carry_and_what_is_sent_together_stays_together() {
    let paths = paths(3);
    assert_eq!(load(&paths, 100), [100, 0, 0]);
    assert_eq!(load(&paths, 3 * 256 - 100), [256, 256, 256]);
}

#[test]
fn a_path_on_which_more_waits_carries_less() {
    let paths = paths(2);
    paths.all()[0].connection.queued.set(1 << 20);
    let carried = load(&paths, 2048);
    assert!(carried[0] <= 1 && carried[1] >= 2047, "{carried:?}");
}

#[test]
fn a_path_that_comes_back_gets_its_share_and_no_more() {
    let paths = paths(2);
    load(&paths, 10_000);
    paths.close(&paths.all()[1]);
    load(&paths, 1000);
    paths.add(Path::new(2, TestConnection::default()));
    let before = paths.all()[0].carried_bytes() >> 10;
    let carried = load(&paths, 2048);
    assert!(carried[1] >= 768 && carried[0] - before >= 768, "{before} {carried:?}");
}

#[test]
fn a_closed_path_is_closed_once_and_carries_nothing() {
    let paths = paths(2);
    let first = paths.pick().expect("one is open");
    assert!(paths.close(&first) && !paths.close(&first));
    assert!(first.connection.closed.get() && !first.is_open());
    assert_eq!(load(&paths, 1000), [1000]);
    paths.close_all();
    assert!(paths.is_empty() && paths.pick().is_none());
}

#[test]
fn only_a_path_that_is_silent_beside_another_one_is_silent() {
    let paths = paths(2);
    let [first, second] = &paths.all()[..] else { panic!("there are two") };
    assert!(paths.silent(2).is_empty(), "both are new");
    (0..10).for_each(|_| assert!(paths.silent(2).is_empty(), "nobody is heard"));
    first.heard().set(true);
    assert!(paths.silent(2).is_empty());
    first.heard().set(true);
    let silent: Vec<u32> = paths.silent(2).iter().map(|path| path.number).collect();
    assert_eq!(silent, [second.number]);
    first.heard().set(true);
    second.heard().set(true);
    assert!(paths.silent(2).is_empty());
}

#[test]
fn a_path_whose_queue_moves_is_not_silent() {
    let paths = paths(2);
    let [first, second] = &paths.all()[..] else { panic!("there are two") };
    let queue = &second.connection.queued;
    second.sends(4 << 20);
    queue.set(4 << 20);
    for _ in 0..10 {
        first.heard().set(true);
        assert!(paths.silent(2).is_empty(), "some of it is taken");
        second.sends(1000);
        queue.set(queue.get() - 1000);
    }
    first.heard().set(true);
    assert!(paths.silent(2).is_empty());
    for looks in 1..=2 {
        first.heard().set(true);
        assert_eq!(paths.silent(2).len(), looks - 1, "nothing is taken");
    }
}

#[test]
fn a_path_that_this_side_does_not_read_is_not_silent() {
    let paths = paths(2);
    let [first, second] = &paths.all()[..] else { panic!("there are two") };
    paths.silent(2);
    let busy = second.busy();
    for _ in 0..10 {
        first.heard().set(true);
        assert!(paths.silent(2).is_empty());
    }
    drop(busy);
    first.heard().set(true);
    assert!(paths.silent(2).is_empty());
    first.heard().set(true);
    assert_eq!(paths.silent(2).len(), 1);
}

#[test]
fn a_path_that_ends_takes_no_other_one_of_its_number_with_it() {
    let paths = paths(1);
    let former = Path::new(7, TestConnection::default());
    paths.add(Rc::clone(&former));
    paths.close(&former);
    paths.add(Path::new(7, TestConnection::default()));
    assert!(!paths.close(&former));
    assert_eq!(paths.all().len(), 2);
}

#[test]
fn no_more_signs_of_life_are_asked_for_than_can_wait() {
    let path = Path::new(0, TestConnection::default());
    assert!(!path.ponged(), "none was asked for");
    assert_eq!((0..1000).filter(|_| path.may_ping()).count(), PINGS_MAX as usize);
    assert!(path.ponged() && path.may_ping() && !path.may_ping());
}
