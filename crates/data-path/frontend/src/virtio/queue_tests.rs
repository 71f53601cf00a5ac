use std::time::Duration;

use spandrel_volume::DeviceErrorKind;
use vm_memory::Bytes as _;

use super::*;
use crate::testing::{MemoryDisk, TestPlatform};
use crate::virtio::testing::{Bench, Driver, Noted, READ, SIZE, TestGuest, WRITE};

impl Bench {
    /// Serves the queue; interrupts are counted from then on.
    fn serve(&self, setup: QueueSetup) -> VirtioQueue<TestPlatform, MemoryDisk, TestGuest> {
        self.guest.interrupts.set(0);
        let (platform, disk, guest) = (self.platform.clone(), self.disk.clone(), self.guest.clone());
        let queue = VirtioQueue::start(platform, disk, guest, setup).unwrap();
        let told = self.guest.interrupts.take();
        assert_eq!(told, 1, "whoever served it before may have ended before the guest was told");
        queue
    }

    /// Lets all happen that can without time passing.
    fn settle(&self) {
        self.platform.settle();
    }

    fn sleep(&self, time: Duration) {
        let platform = self.platform.clone();
        self.platform.run(async move { platform.sleep(time).await });
    }

    fn heads_used(&self) -> Vec<u16> {
        self.driver.used().into_iter().map(|(head, _)| head).collect()
    }
}

#[test]
fn requests_are_answered_in_the_order_in_which_they_end_and_told_of_together() {
    let mut bench = Bench::new(1 << 20);
    bench.disk.delay([30, 10, 20].map(Duration::from_millis).to_vec());
    let _queue = bench.serve(TestGuest::setup());
    let asked = [1_u8, 2, 3].map(|number| bench.driver.ask(WRITE, u64::from(number), &[number; 512], 0));
    bench.guest.kick();
    bench.settle();
    assert_eq!(bench.driver.used(), []);
    bench.sleep(Duration::from_millis(35));
    assert_eq!(bench.heads_used(), [asked[1].head, asked[2].head, asked[0].head]);
    assert!(asked.iter().all(|asked| bench.driver.status(*asked) == 0));
    assert_eq!(bench.guest.interrupts.get(), 3, "each at its own time");
    bench.disk.delay(Vec::new());
    let reads = [1, 2, 3].map(|sector| bench.driver.ask(READ, sector, &[], 512));
    bench.guest.kick();
    bench.settle();
    let told = reads.map(|asked| bench.driver.told(asked));
    assert!((0..3).all(|index| told[index] == [index as u8 + 1; 512]));
    assert_eq!(bench.driver.used()[3..], reads.map(|asked| (asked.head, 513)));
    assert_eq!(bench.guest.interrupts.get(), 4, "all that came together at once");
}

#[test]
fn more_requests_than_the_queue_has_places_go_round() {
    let mut bench = Bench::new(1 << 20);
    let _queue = bench.serve(TestGuest::setup());
    let one = bench.driver.ask(WRITE, 0, &[5; 512], 0);
    for round in 1..=3 * SIZE {
        bench.guest.kick();
        bench.settle();
        let used: u16 = bench.guest.memory.read_obj(GuestAddress(0x4002)).unwrap();
        assert_eq!(used, round);
        bench.driver.make_available(one.head);
    }
}

#[test]
fn what_is_begun_and_ended_is_noted_around_the_answer() {
    let mut bench = Bench::new(1 << 20);
    let _queue = bench.serve(TestGuest::setup());
    let [one, other] = [0, 1].map(|sector| bench.driver.ask(READ, sector, &[], 512).head);
    bench.guest.kick();
    bench.settle();
    let noted = bench.guest.noted.borrow().clone();
    let of = |head: u16, used| [Noted::Begun(head), Noted::Ending(head), Noted::Ended(head, used)];
    for (head, used) in [(one, 1), (other, 2)] {
        let own: Vec<_> = noted.iter().filter(|noted| of(head, used).contains(noted)).copied().collect();
        assert_eq!(own, of(head, used), "{noted:?}");
    }
}

#[test]
fn a_queue_that_stops_ends_what_it_has_taken_and_takes_no_more() {
    let mut bench = Bench::new(1 << 20);
    let queue = bench.serve(TestGuest::setup());
    bench.disk.hold();
    let taken = bench.driver.ask(WRITE, 0, &[1; 512], 0);
    bench.guest.kick();
    bench.settle();
    let stopped = Rc::new(Cell::new(None));
    let result = Rc::clone(&stopped);
    bench.platform.spawn(async move { result.set(Some(queue.stop().await)) });
    let late = bench.driver.ask(WRITE, 1, &[2; 512], 0);
    bench.guest.kick();
    bench.settle();
    assert_eq!(stopped.get(), None, "a request is under way");
    bench.disk.release();
    bench.settle();
    assert_eq!(stopped.get(), Some(1));
    assert_eq!((bench.heads_used(), bench.driver.status(late)), (vec![taken.head], 0xee));
    assert_eq!(bench.guest.interrupts.get(), 1);
    // The next one goes on there.
    let _next = bench.serve(QueueSetup { next_available: 1, ..TestGuest::setup() });
    bench.settle();
    assert_eq!((bench.heads_used(), bench.driver.status(late)), (vec![taken.head, late.head], 0));
}

#[test]
fn what_is_not_answered_as_its_node_stops_is_done_by_whoever_goes_on() {
    let mut bench = Bench::new(1 << 20);
    let queue = bench.serve(TestGuest::setup());
    let done = bench.driver.ask(WRITE, 0, &[1; 512], 0);
    bench.guest.kick();
    bench.settle();
    bench.disk.fail(Some(DeviceErrorKind::Stopping));
    let left = bench.driver.ask(WRITE, 1, &[2; 512], 0);
    bench.guest.kick();
    bench.settle();
    assert_eq!((bench.heads_used(), bench.driver.status(left)), (vec![done.head], 0xee));
    drop(queue);
    bench.settle();
    bench.disk.fail(None);
    let setup = QueueSetup { next_available: 2, unanswered: vec![left.head], ..TestGuest::setup() };
    let _next = bench.serve(setup);
    bench.settle();
    assert_eq!((bench.heads_used(), bench.driver.status(left)), (vec![done.head, left.head], 0));
}

#[test]
fn requests_wait_in_the_queue_where_those_before_have_all_the_memory() {
    let mut bench = Bench::new(1 << 20);
    bench.disk = MemoryDisk::new(&bench.platform, 4 << 20);
    let _queue = bench.serve(TestGuest::setup());
    bench.disk.hold();
    let long = bench.driver.ask(READ, 0, &[], 4 << 20);
    for _ in 1..40 {
        bench.driver.make_available(long.head);
    }
    bench.guest.kick();
    bench.settle();
    assert_eq!(bench.disk.waiting(), 32, "as many as have memory for a piece of 1 MiB");
    bench.disk.release();
    bench.settle();
    assert_eq!(bench.driver.used().len(), 40);
}

#[test]
fn a_guest_that_breaks_the_rules_is_left_alone() {
    let mut bench = Bench::new(1 << 20);
    let queue = bench.serve(TestGuest::setup());
    let done = bench.driver.ask(READ, 0, &[], 512);
    bench.guest.kick();
    bench.settle();
    assert_eq!(bench.heads_used(), [done.head]);
    // More is available than the queue has places.
    bench.guest.memory.write_obj(9000_u16, GuestAddress(0x3002)).unwrap();
    bench.guest.kick();
    bench.settle();
    assert_eq!(bench.driver.used().len(), 1);
    let next = bench.platform.run(async move { queue.stop().await });
    assert_eq!(next, 1);
}

#[test]
fn a_request_that_is_none_ends_the_service_of_its_queue() {
    let mut bench = Bench::new(1 << 20);
    let circle = |driver: &Driver| {
        driver.descriptor(60, 0x9000, 16, 1, 61);
        driver.descriptor(61, 0x9000, 16, 1, 60);
        60
    };
    for is_circle in [true, false] {
        let queue = bench.serve(TestGuest::setup());
        bench.driver = Driver::new(&bench.guest);
        let head = match is_circle {
            true => circle(&bench.driver),
            false => bench.driver.ask_in_parts(&[&[0; 16]], &[]).head,
        };
        if is_circle {
            bench.driver.make_available(head);
        }
        bench.driver.ask(READ, 0, &[], 512);
        bench.guest.kick();
        bench.settle();
        assert_eq!((bench.driver.used(), bench.disk.requests()), (vec![], 0));
        bench.platform.run(async move { queue.stop().await });
    }
}

#[test]
fn a_guest_that_takes_back_what_it_said_is_left_alone() {
    let mut bench = Bench::new(1 << 20);
    let queue = bench.serve(TestGuest::setup());
    for sector in 0..3 {
        bench.driver.ask(READ, sector, &[], 512);
    }
    bench.guest.kick();
    bench.settle();
    bench.guest.memory.write_obj(1_u16, GuestAddress(0x3002)).unwrap();
    bench.guest.kick();
    bench.settle();
    assert_eq!(bench.platform.run(async move { queue.stop().await }), 3);
}

#[test]
fn a_guest_that_says_how_far_it_has_come_is_woken_only_behind_that() {
    let mut bench = Bench::new(1 << 20);
    let _queue = bench.serve(QueueSetup { event_index: true, ..TestGuest::setup() });
    // Behind the list of what is available: the guest wants to be woken by the third answer.
    bench.guest.memory.write_obj(2_u16, GuestAddress(0x3000 + 4 + u64::from(SIZE) * 2)).unwrap();
    for answers in 1..=4 {
        bench.driver.ask(READ, 0, &[], 512);
        bench.guest.kick();
        bench.settle();
        assert_eq!(bench.guest.interrupts.get(), usize::from(answers >= 3), "after {answers} answers");
    }
}

#[test]
fn a_queue_beyond_the_guests_memory_is_not_served() {
    let bench = Bench::new(1 << 20);
    let setup = QueueSetup { used: GuestAddress(1 << 40), ..TestGuest::setup() };
    let started = VirtioQueue::start(bench.platform.clone(), bench.disk.clone(), bench.guest.clone(), setup);
    assert!(started.err().unwrap().contains("unusable"));
    let setup = QueueSetup { size: 48, ..TestGuest::setup() };
    assert!(VirtioQueue::start(bench.platform.clone(), bench.disk, bench.guest, setup).is_err());
}
