use spandrel_volume::DeviceErrorKind;

use super::*;
use crate::virtio::GuestSide as _;
use crate::virtio::testing::{Bench, DISCARD, FLUSH, READ, SERIAL, TestGuest, WRITE, ZEROES, header, range};

const DISK_BYTES: usize = 8 << 20;

impl Bench {
    /// Does a request that was laid out, without a queue.
    fn perform(&self, head: u16) -> Result<(), Failure> {
        let chain = Chain::at(&*self.guest.memory, TestGuest::table(), head).unwrap();
        let request = Request::new(chain).unwrap();
        let (platform, disk, memory) = (self.platform.clone(), self.disk.clone(), self.guest.memory());
        let serial = TestGuest::setup().serial;
        self.platform.run(async move { request.perform(&platform, &disk, &*memory, &serial).await })
    }

    fn refusal(&mut self, kind: u32, sector: u64, says: &[u8], told_bytes: u64) -> (Status, &'static str) {
        let asked = self.driver.ask(kind, sector, says, told_bytes);
        match self.perform(asked.head) {
            Err(Failure::Refused(status, reason)) => (status, reason),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_was_written_is_read_in_pieces_of_any_length() {
    let mut bench = Bench::new(DISK_BYTES);
    // Longer than a piece, and no multiple of one.
    let data: Vec<u8> =
        (0..(2 << 20) + 4096 + 512_u32).map(|index| (index * 7 + index / 999) as u8).collect();
    let header = header(WRITE, 3);
    let asked = bench.driver.ask_in_parts(&[&header[..5], &header[5..], &data[..1000], &data[1000..]], &[1]);
    bench.perform(asked.head).unwrap();
    let asked = bench.driver.ask(READ, 3, &[], data.len() as u64);
    bench.perform(asked.head).unwrap();
    assert!(bench.driver.told(asked) == data);
    assert_eq!(bench.disk.requests(), 6, "three pieces each");
}

#[test]
fn stretches_are_discarded_and_made_zeros() {
    let mut bench = Bench::new(DISK_BYTES);
    bench.disk.fill(&[9; 64 << 10]);
    let ranges = [range(0, 8, 0), range(8, 0, 0), range(32, 16, 0)].concat();
    let asked = bench.driver.ask(DISCARD, 0, &ranges, 0);
    bench.perform(asked.head).unwrap();
    let ranges = [range(16, 3, 1), range(20, 1, 0)].concat();
    let asked = bench.driver.ask(ZEROES, 0, &ranges, 0);
    bench.perform(asked.head).unwrap();
    let asked = bench.driver.ask(READ, 0, &[], 64 << 10);
    bench.perform(asked.head).unwrap();
    let told = bench.driver.told(asked);
    let zeros: Vec<usize> = (0..128).filter(|sector| told[sector * 512..][..512] == [0; 512]).collect();
    let expected: Vec<usize> = (0..8).chain(16..19).chain(20..21).chain(32..48).collect();
    assert_eq!(zeros, expected);
}

#[test]
fn a_guest_learns_who_its_disk_is_and_flushes_what_needs_no_flush() {
    let mut bench = Bench::new(DISK_BYTES);
    let asked = bench.driver.ask(SERIAL, 0, &[], 20);
    bench.perform(asked.head).unwrap();
    assert_eq!(bench.driver.told(asked), b"a disk with a name\0\0");
    let asked = bench.driver.ask(SERIAL, 0, &[], 6);
    bench.perform(asked.head).unwrap();
    assert_eq!(bench.driver.told(asked), b"a disk");
    let asked = bench.driver.ask(FLUSH, 0, &[], 0);
    bench.perform(asked.head).unwrap();
}

#[test]
fn what_cannot_be_done_never_reaches_the_disk() {
    let mut bench = Bench::new(DISK_BYTES);
    let sectors = DISK_BYTES as u64 / 512;
    let beyond = (Status::Failed, "it is beyond the end of the disk");
    assert_eq!(bench.refusal(READ, sectors, &[], 512), beyond);
    assert_eq!(bench.refusal(READ, sectors - 1, &[], 1024), beyond);
    assert_eq!(bench.refusal(WRITE, u64::MAX / 512, &[0; 512], 0), beyond);
    assert_eq!(bench.refusal(WRITE, u64::MAX, &[0; 512], 0), beyond);
    let odd = (Status::Failed, "it is no multiple of the disk's blocks");
    assert_eq!(bench.refusal(READ, 0, &[], 511), odd);
    assert_eq!(bench.refusal(WRITE, 0, &[0; 513], 0), odd);
    assert_eq!(bench.refusal(77, 0, &[], 0).0, Status::Unsupported);
    let count = (Status::Failed, "it names no stretches, or too many");
    assert_eq!(bench.refusal(DISCARD, 0, &[], 0), count);
    assert_eq!(bench.refusal(DISCARD, 0, &[0; 15], 0), count);
    assert_eq!(bench.refusal(ZEROES, 0, &[0; 33 * 16], 0), count);
    // One that cannot be done among those that could: none is.
    let ranges = [range(0, 8, 0), range(sectors, 8, 0)].concat();
    assert_eq!(bench.refusal(DISCARD, 0, &ranges, 0), beyond);
    bench.disk.change_limits(|limits| limits.read_only = true);
    let read_only = (Status::Failed, "the disk is read-only");
    assert_eq!(bench.refusal(WRITE, 0, &[0; 512], 0), read_only);
    assert_eq!(bench.refusal(ZEROES, 0, &range(0, 8, 0), 0), read_only);
    assert_eq!(bench.disk.requests(), 0);
}

#[test]
fn a_request_without_a_header_or_room_for_its_outcome_is_none() {
    let mut bench = Bench::new(DISK_BYTES);
    let asked = bench.driver.ask_in_parts(&[&[0; 15]], &[1]);
    assert!(matches!(bench.perform(asked.head), Err(Failure::Refused(Status::Failed, _))));
    let asked = bench.driver.ask_in_parts(&[&[0; 16]], &[]);
    let chain = Chain::at(&*bench.guest.memory, TestGuest::table(), asked.head).unwrap();
    assert!(Request::new(chain).is_none());
}

#[test]
fn a_disk_that_fails_is_told_of_and_one_whose_node_stops_is_not() {
    let mut bench = Bench::new(DISK_BYTES);
    let status = |bench: &mut Bench, kind| {
        bench.disk.fail(Some(kind));
        let asked = bench.driver.ask(WRITE, 0, &[1; 512], 0);
        bench.perform(asked.head).unwrap_err().status()
    };
    assert_eq!(status(&mut bench, DeviceErrorKind::Failed), Some(Status::Failed));
    assert_eq!(status(&mut bench, DeviceErrorKind::NoRoom), Some(Status::Failed));
    assert_eq!(status(&mut bench, DeviceErrorKind::Stopping), None);
}
