use virtio_bindings::bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

use super::*;
use crate::virtio::testing::{Driver, MEMORY_BYTES, SIZE, TestGuest};

const NEXT: u32 = VRING_DESC_F_NEXT;
const TOLD: u32 = VRING_DESC_F_WRITE;
const INDIRECT: u32 = VRING_DESC_F_INDIRECT;

fn walk(guest: &TestGuest, head: u16) -> Result<Chain, BadChain> {
    Chain::at(&*guest.memory, TestGuest::table(), head)
}

#[test]
fn what_stands_in_many_stretches_is_read_and_written_anywhere() {
    let guest = TestGuest::new();
    let mut driver = Driver::new(&guest);
    let said: Vec<u8> = (0..200).collect();
    let asked = driver.ask_in_parts(
        &[&said[..16], &said[16..17], &said[17..17], &said[17..120], &said[120..]],
        &[7, 1, 30],
    );
    let chain = walk(&guest, asked.head).unwrap();
    assert_eq!((chain.readable.bytes(), chain.writable.bytes()), (200, 38));
    for (offset, length) in [(0, 200), (0, 16), (15, 3), (16, 1), (100, 50), (199, 1), (200, 0)] {
        let mut read = vec![0; length];
        chain.readable.read(&*guest.memory, offset as u64, &mut read).unwrap();
        assert_eq!(read, said[offset..offset + length], "{length} from {offset} on");
    }
    let memory = &*guest.memory;
    assert_eq!(chain.readable.read(memory, 199, &mut [0; 2]), Err(NoMemory));
    assert_eq!(chain.writable.write(memory, 30, &[0; 9]), Err(NoMemory));
    chain.writable.write(memory, 0, &[1; 37]).unwrap();
    chain.writable.write(memory, 5, &[2; 10]).unwrap();
    let told = driver.told(asked);
    assert_eq!(told, [&[1; 5][..], &[2; 10], &[1; 22]].concat());
}

#[test]
fn an_indirect_table_stands_for_all_of_a_request() {
    let guest = TestGuest::new();
    let mut driver = Driver::new(&guest);
    let (table, said, told) = (driver.room(64), driver.room(100), driver.room(100));
    let write = |number: u64, descriptor: Descriptor| {
        guest.memory.write_obj(descriptor, GuestAddress(table + number * DESCRIPTOR_BYTES)).unwrap();
    };
    write(0, Descriptor::new(said, 100, NEXT as u16, 2));
    write(2, Descriptor::new(told, 50, TOLD as u16, 0));
    driver.descriptor(9, table, 3 * DESCRIPTOR_BYTES, INDIRECT, 0);
    let chain = walk(&guest, 9).unwrap();
    assert_eq!((chain.readable.bytes(), chain.writable.bytes()), (100, 50));
    // One in another is none.
    write(0, Descriptor::new(table, 32, INDIRECT as u16, 0));
    assert!(walk(&guest, 9).is_err());
}

#[test]
fn what_breaks_the_rules_is_refused_and_ends() {
    let guest = TestGuest::new();
    let driver = Driver::new(&guest);
    let bad = |head| walk(&guest, head).err().map_or("nothing", |bad| bad.0);
    driver.descriptor(0, 0x9000, 16, NEXT, 1);
    driver.descriptor(1, 0x9000, 16, NEXT, 0);
    assert_eq!(bad(0), "the descriptors form a circle");
    driver.descriptor(2, 0x9000, 16, NEXT, SIZE);
    assert_eq!(bad(2), "a descriptor is beyond its table");
    assert_eq!(bad(SIZE), "a descriptor is beyond its table");
    driver.descriptor(3, 0x9000, 16, NEXT | TOLD, 4);
    driver.descriptor(4, 0x9000, 16, 0, 0);
    assert_eq!(bad(3), "the guest says something behind what it wants to be told");
    for bytes in [0, 15, 17, 16 * 257, 16 * 70_000] {
        driver.descriptor(5, 0x9000, bytes, INDIRECT, 0);
        assert_eq!(bad(5), "an indirect table has an impossible size");
    }
    driver.descriptor(6, 0x9000, 32, INDIRECT | NEXT, 7);
    assert_eq!(bad(6), "an indirect table is where none may be");
    driver.descriptor(7, MEMORY_BYTES as u64, 32, INDIRECT, 0);
    assert_eq!(bad(7), "a table is not in the guest's memory");
    driver.descriptor(8, u64::MAX - 3, 64, 0, 0);
    let chain = walk(&guest, 8).unwrap();
    assert_eq!(chain.readable.read(&*guest.memory, 0, &mut [0; 64]), Err(NoMemory));
}
