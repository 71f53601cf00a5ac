use spandrel_platform_simulated::{DriveImage, OpenDrive, Repeat, SimulatedPlatform};

use super::*;
use crate::format::journal::{GroupWriter, Record};
use crate::test_support::machine::{Machine, capacity, open};
use crate::test_support::{drive_config, format_options, small_slabs};

const DRIVE_MIB: u64 = 12;
const SECTOR_BYTES: u64 = 512;

/// The attach in which the root under test was written, and its generation.
const ATTACH: u64 = 3;
const GENERATION: u64 = 9;

/// A ring of groups that a store could have written, and where the next one goes.
struct Ring {
    image: DriveImage,
    layout: Layout,
    next: JournalPosition,
    attach_number: u64,
    root_generation: u64,
    drive: DriveId,
}

/// Where a group stands.
#[derive(Clone, Copy)]
struct Place {
    sector: u32,
    sectors: u32,
}

impl Ring {
    fn new() -> Self {
        let layout = Layout::for_drive(DRIVE_MIB << 20, SECTOR_BYTES as u32, small_slabs()).unwrap();
        let next = JournalPosition {
            sequence: 100,
            sector: 0,
            lap: 0,
            previous_checksum: 77,
            previous_sector: None,
        };
        let image = DriveImage::new(DRIVE_MIB << 20);
        let drive = format_options().drive;
        Self { image, layout, next, attach_number: ATTACH, root_generation: GENERATION, drive }
    }

    /// A root that lets the journal begin where the next group goes.
    fn root(&self) -> Root {
        Root {
            drive: format_options().drive,
            generation: GENERATION,
            attach_number: ATTACH,
            state_revision: 0,
            journal: self.next,
            binding: None,
            volumes: Vec::new(),
            slabs: Vec::new(),
        }
    }

    /// Appends a group of so many sectors; its record says its sequence.
    fn push(&mut self, sectors: u32) -> Place {
        if sectors > self.layout.journal_sectors() - self.next.sector {
            self.next.sector = 0;
            self.next.lap += 1;
        }
        let header = GroupHeader {
            sequence: self.next.sequence,
            previous_checksum: self.next.previous_checksum,
            lap: self.next.lap,
            attach_number: self.attach_number,
            root_generation: self.root_generation,
            confirmed_sequence: self.next.sequence - 1,
        };
        let mut writer = GroupWriter::new(header.lap);
        while writer.length_bytes() + 32 <= sectors as usize * SECTOR_BYTES as usize {
            writer.push(&Record::SlabRemove { slab_slot: header.sequence as u32 });
        }
        let (bytes, checksum) = writer.finish(&header, self.drive);
        let place = Place { sector: self.next.sector, sectors };
        self.image.write(self.offset_of(place.sector), &bytes);
        self.next.sequence += 1;
        self.next.sector += sectors;
        self.next.previous_checksum = checksum;
        self.next.previous_sector = Some(place.sector);
        place
    }

    fn offset_of(&self, sector: u32) -> u64 {
        Layout::offset_of(self.layout.journal_first_block) + u64::from(sector) * SECTOR_BYTES
    }

    fn bytes_of(&self, place: Place) -> std::ops::Range<u64> {
        self.offset_of(place.sector)..self.offset_of(place.sector + place.sectors)
    }

    /// Puts what stood there in `former` back, as if a write had been lost.
    fn lose(&mut self, place: Place, former: &DriveImage) {
        let range = self.bytes_of(place);
        let bytes = former.read_vec(range.start, (range.end - range.start) as usize);
        self.image.write(range.start, &bytes);
    }

    /// Walks along the journal from `root` on.
    fn walk(&self, root: &Root) -> Walk {
        self.walk_with(root, &[])
    }

    /// The same, where some groups cannot be read.
    fn walk_with(&self, root: &Root, unreadable: &[Place]) -> Walk {
        let faults: Vec<(Place, Repeat)> =
            unreadable.iter().map(|place| (*place, Repeat::UntilWritten)).collect();
        self.walk_past(root, &faults)
    }

    /// The same, where reads of some groups fail so often.
    fn walk_past(&self, root: &Root, faults: &[(Place, Repeat)]) -> Walk {
        let machine = Machine::with_image(1, drive_config(DRIVE_MIB), self.image.clone());
        for (place, repeat) in faults {
            machine.drive.fail_reads(self.bytes_of(*place), *repeat);
        }
        let (root, layout) = (root.clone(), self.layout);
        machine.run(move |platform| async move {
            let drive = open(&platform).await;
            walk(&platform, &drive, layout, &root).await
        })
    }
}

/// What a walk found.
struct Walk {
    sequences: Vec<u64>,
    position: JournalPosition,
    used_sectors: u64,
    behind: Behind,
    /// Where the journal goes on after a gap.
    position_behind: JournalPosition,
}

async fn walk(platform: &SimulatedPlatform, drive: &OpenDrive, layout: Layout, root: &Root) -> Walk {
    let media = capacity(platform, drive, &layout);
    let mut reader = JournalReader::new(platform, &media, layout, root);
    let mut sequences = Vec::new();
    while let Some(group) = reader.next().await.unwrap() {
        let slot = group.header.sequence as u32;
        assert!(group.records.iter().all(|record| *record == Record::SlabRemove { slab_slot: slot }));
        sequences.push(group.header.sequence);
    }
    let (position, used_sectors) = (reader.position(), reader.used_sectors());
    let behind = reader.look_behind().await.unwrap();
    reader.skip(&behind);
    Walk { sequences, position, used_sectors, behind, position_behind: reader.position() }
}

#[test]
fn a_chain_is_read_lap_after_lap() {
    let mut ring = Ring::new();
    let journal_sectors = u64::from(ring.layout.journal_sectors());
    let mut sizes = (1..).map(|number: u32| 1 + number * 37 % 200);
    while ring.next.lap < 6 {
        let root = ring.root();
        let mut used = 0;
        // Never more than the ring holds, whatever is skipped at its end.
        while used < journal_sectors - 500 {
            let sectors = sizes.next().unwrap();
            let left = ring.layout.journal_sectors() - ring.next.sector;
            used += u64::from(sectors) + if left < sectors { u64::from(left) } else { 0 };
            ring.push(sectors);
        }
        let walk = ring.walk(&root);
        assert_eq!(walk.sequences, (root.journal.sequence..ring.next.sequence).collect::<Vec<_>>());
        assert_eq!(walk.position, ring.next);
        assert_eq!(walk.used_sectors, used);
        assert!(!walk.behind.gap, "what older laps have left is no gap");
        assert_eq!(walk.position_behind, ring.next);
    }
}

/// A group that ends with the ring, and one that begins with it.
#[test]
fn a_chain_goes_on_at_the_start_when_the_ring_is_full_to_its_last_sector() {
    let mut ring = Ring::new();
    ring.next.sector = ring.layout.journal_sectors() - 3;
    let root = ring.root();
    ring.push(3);
    assert_eq!(ring.walk(&root).sequences, [100]);
    let place = ring.push(2);
    assert_eq!(place.sector, 0);
    let walk = ring.walk(&root);
    assert_eq!((walk.sequences, walk.used_sectors), (vec![100, 101], 5));
    assert_eq!(walk.position, ring.next);
}

#[test]
fn the_chain_ends_before_a_group_that_is_torn_at_any_sector() {
    for torn in 0..4 {
        let mut ring = Ring::new();
        let root = ring.root();
        ring.push(2);
        let before = (ring.next, ring.image.clone());
        let last = ring.push(4);
        ring.lose(Place { sector: last.sector + torn, sectors: 1 }, &before.1);
        let walk = ring.walk(&root);
        assert_eq!((walk.sequences, walk.position), (vec![100], before.0), "sector {torn}");
        assert!(!walk.behind.gap, "a crash does that");
    }
}

#[test]
fn a_group_that_is_lost_or_damaged_shows_by_those_behind_it() {
    for damage in 0..3 {
        let mut ring = Ring::new();
        let root = ring.root();
        ring.push(2);
        let before = (ring.next, ring.image.clone());
        let missing = ring.push(3);
        ring.push(1);
        let last = ring.push(2);
        match damage {
            0 => ring.lose(missing, &before.1),
            1 => ring.image.flip_bit(ring.offset_of(missing.sector) + 200, 3),
            _ => {
                let elsewhere = ring.image.read_vec(ring.offset_of(missing.sector), 512);
                ring.lose(missing, &before.1);
                ring.image.write(ring.offset_of(missing.sector + 1), &elsewhere);
            }
        }
        let walk = ring.walk(&root);
        assert_eq!((walk.sequences, walk.position), (vec![100], before.0), "damage {damage}");
        assert!(walk.behind.gap);
        assert_eq!(walk.position_behind.sequence, ring.next.sequence);
        assert_eq!(
            walk.position_behind.sector,
            last.sector + last.sectors,
            "what shows it is not overwritten"
        );
    }
}

/// Where the write of a group was lost, that of one lap before stands whole.
#[test]
fn a_group_of_an_older_lap_does_not_count() {
    let mut ring = Ring::new();
    let groups = ring.layout.journal_sectors() / 8;
    for _ in 0..groups {
        ring.push(8);
    }
    let root = ring.root();
    let former = ring.image.clone();
    ring.push(8);
    let lost = ring.push(8);
    let expected = ring.push(8);
    assert_eq!((lost.sector, expected.sector, ring.next.lap), (8, 16, 1));
    ring.lose(lost, &former);
    let walk = ring.walk(&root);
    assert_eq!(walk.sequences, [root.journal.sequence]);
    assert!(walk.behind.gap);
    // The same without what came later: a mere crash.
    ring.lose(expected, &former);
    assert!(!ring.walk(&root).behind.gap);
}

#[test]
fn a_group_with_the_right_number_in_another_chain_does_not_count() {
    let mut ring = Ring::new();
    let root = ring.root();
    ring.push(1);
    ring.next.previous_checksum ^= 1;
    ring.push(1);
    let walk = ring.walk(&root);
    assert_eq!(walk.sequences, [100]);
    assert!(walk.behind.gap);
}

/// A recovery writes groups before its root. If it does not come to its end, they mean nothing; the
/// next one must only not take its number.
#[test]
fn groups_of_an_attach_that_did_not_end_do_not_count() {
    let mut ring = Ring::new();
    let root = ring.root();
    ring.push(1);
    let end = ring.next;
    ring.attach_number = ATTACH + 4;
    ring.push(1);
    ring.push(1);
    let walk = ring.walk(&root);
    assert_eq!((walk.sequences, walk.position), (vec![100], end));
    let attempt = Behind { attach_number: ATTACH + 4, root_generation: GENERATION, ..Behind::default() };
    assert_eq!(walk.behind, attempt);
}

#[test]
fn groups_of_a_later_attach_that_name_a_newer_root_show_that_it_is_lost() {
    let mut ring = Ring::new();
    let root = ring.root();
    ring.push(1);
    ring.attach_number = ATTACH + 1;
    ring.root_generation = GENERATION + 1;
    ring.push(1);
    // A recovery goes on with the chain, so its groups are read.
    let walk = ring.walk(&root);
    assert_eq!(walk.sequences, [100, 101]);
    // Had it begun anew behind a gap, they would be seen behind the end.
    let mut ring = Ring::new();
    let root = ring.root();
    ring.push(1);
    ring.attach_number = ATTACH + 1;
    ring.root_generation = GENERATION + 1;
    ring.next.sequence += 5;
    ring.push(1);
    let walk = ring.walk(&root);
    assert_eq!(walk.sequences, [100]);
    assert!(walk.behind.gap);
    assert_eq!((walk.behind.root_generation, walk.behind.attach_number), (GENERATION + 1, ATTACH + 1));
}

#[test]
fn groups_of_another_drive_do_not_count() {
    let mut ring = Ring::new();
    let root = ring.root();
    ring.push(1);
    ring.drive = DriveId::from_bytes([9; 16]);
    ring.push(1);
    ring.push(1);
    let walk = ring.walk(&root);
    assert_eq!(walk.sequences, [100]);
    assert!(!walk.behind.gap);
}

/// The next group may be the one that cannot be read; what lies further behind is old.
#[test]
fn a_sector_that_cannot_be_read_is_a_gap_where_the_chain_goes_on_and_nowhere_else() {
    let mut ring = Ring::new();
    for _ in 0..ring.layout.journal_sectors() / 8 {
        ring.push(8);
    }
    let root = ring.root();
    ring.push(8);
    let place = ring.push(8);
    ring.push(8);
    let walk = ring.walk_with(&root, &[place]);
    assert_eq!(walk.sequences, [root.journal.sequence]);
    assert!(walk.behind.gap);
    let old = Place { sector: 8 * 40, sectors: 8 };
    let walk = ring.walk_with(&root, &[old]);
    assert_eq!(walk.sequences.len(), 3);
    assert!(!walk.behind.gap);
}

/// A group of the full length that just fits is never put at the ring's start.
#[test]
fn the_next_group_stands_here_or_at_the_start_if_the_longest_one_finds_no_room_here() {
    let here = |sector| Some((sector, 5, 0));
    let cases = [
        // Sectors of 512 bytes: 2048 of them, and a group has 256 at most.
        (512, 0, [here(0), None]),
        (512, 1000, [here(1000), None]),
        (512, 1792, [here(1792), None]),
        (512, 1793, [here(1793), Some((0, 6, 255))]),
        (512, 2047, [here(2047), Some((0, 6, 1))]),
        (512, 2048, [None, Some((0, 6, 0))]),
        // Sectors of 4096 bytes: 256 of them, and a group has 32 at most.
        (4096, 224, [here(224), None]),
        (4096, 225, [here(225), Some((0, 6, 31))]),
        (4096, 256, [None, Some((0, 6, 0))]),
    ];
    let ring = Ring::new();
    let (layout, root) = (ring.layout, ring.root());
    Machine::with_image(1, drive_config(DRIVE_MIB), ring.image).run(move |platform| async move {
        let media = capacity(&platform, &open(&platform).await, &layout);
        for (sector_bytes, sector, places) in cases {
            let mut reader = JournalReader::new(&platform, &media, Layout { sector_bytes, ..layout }, &root);
            reader.position = JournalPosition { sector, lap: 5, ..root.journal };
            assert_eq!(reader.next_places(), places, "sector {sector} of {sector_bytes} bytes");
        }
    });
}

/// Where the ring is full to its last sector the lap goes on, as it does behind a group.
#[test]
fn the_journal_goes_on_behind_a_gap_also_over_the_end_of_the_ring() {
    let cases = [
        (100, 20, (120, 5)),
        (2000, 48, (2048, 5)),
        (2000, 49, (1, 6)),
        (2000, 256, (208, 6)),
        (2048, 256, (256, 6)),
    ];
    let ring = Ring::new();
    let (layout, root) = (ring.layout, ring.root());
    Machine::with_image(1, drive_config(DRIVE_MIB), ring.image).run(move |platform| async move {
        let media = capacity(&platform, &open(&platform).await, &layout);
        for (from, sectors, (sector, lap)) in cases {
            for (shown, sequence) in [(0, 100), (99, 100), (100, 101), (107, 108)] {
                let mut reader = JournalReader::new(&platform, &media, layout, &root);
                reader.position = JournalPosition { sector: from, lap: 5, ..root.journal };
                reader.used_sectors = 300;
                reader.skip(&Behind { sectors, sequence: shown, ..Behind::default() });
                let expected = JournalPosition { sequence, sector, lap, ..root.journal };
                assert_eq!(reader.position(), expected, "{sectors} sectors from {from} on");
                assert_eq!(reader.used_sectors(), 300 + u64::from(sectors));
            }
        }
    });
}

/// It may be as long as a group can be. What stands behind it is read all the same.
#[test]
fn the_journal_goes_on_behind_all_that_a_group_which_cannot_be_read_may_take() {
    for behind in [0, 1] {
        let mut ring = Ring::new();
        let root = ring.root();
        ring.push(8);
        let end = ring.next;
        let place = ring.push(8);
        (0..behind).for_each(|_| _ = ring.push(8));
        let walk = ring.walk_with(&root, &[place]);
        assert_eq!((walk.sequences, walk.position), (vec![100], end));
        assert!(walk.behind.gap);
        assert_eq!(walk.position_behind.sector, end.sector + (GROUP_BYTES_MAX / 512) as u32);
        assert_eq!(walk.position_behind.sequence, end.sequence + 2 * behind, "the last that was read");
    }
}

/// The head of a group says whether it is the next one.
#[test]
fn a_group_that_can_be_read_in_part_is_a_gap_if_it_is_the_next_one() {
    let mut ring = Ring::new();
    for _ in 0..ring.layout.journal_sectors() / 24 {
        ring.push(24);
    }
    let root = ring.root();
    ring.push(24);
    let end = ring.next;
    let tail = Place { sector: end.sector + 16, sectors: 8 };
    let walk = ring.walk_with(&root, &[tail]);
    assert_eq!((walk.sequences.len(), walk.position), (1, end));
    assert!(!walk.behind.gap, "that is left of an older lap");
    assert_eq!(ring.push(24).sector, end.sector);
    let walk = ring.walk_with(&root, &[tail]);
    assert_eq!((walk.sequences.len(), walk.position), (1, end));
    assert!(walk.behind.gap);
}

/// Otherwise its journal would be taken for an empty one.
#[test]
fn a_drive_that_answers_no_read_is_no_gap_but_a_failure() {
    let mut ring = Ring::new();
    let (layout, root) = (ring.layout, ring.root());
    ring.push(8);
    let machine = Machine::with_image(1, drive_config(DRIVE_MIB), ring.image);
    let dying = machine.drive.clone();
    machine.run(move |platform| async move {
        let media = capacity(&platform, &open(&platform).await, &layout);
        dying.die();
        let mut reader = JournalReader::new(&platform, &media, layout, &root);
        assert!(reader.next().await.is_err());
        assert!(reader.look_behind().await.is_err());
    });
}

/// There a stretch that is read at once can be a single block.
#[test]
fn a_bad_sector_at_the_end_of_the_ring_is_a_gap_and_no_failure_of_the_drive() {
    let mut ring = Ring::new();
    ring.next.sector = ring.layout.journal_sectors() - 8;
    let root = ring.root();
    let unreadable = ring.push(8);
    let behind = ring.push(8);
    assert_eq!(behind.sector, 0);
    let walk = ring.walk_with(&root, &[unreadable]);
    assert_eq!((walk.sequences, walk.position), (Vec::new(), root.journal));
    assert!(walk.behind.gap);
}

/// The stretch is read, then block by block, and both fail.
#[test]
fn a_journal_that_cannot_be_read_for_a_moment_is_read_again() {
    let mut ring = Ring::new();
    ring.next.sector = ring.layout.journal_sectors() - 8;
    let root = ring.root();
    let group = ring.push(8);
    let walk = ring.walk_past(&root, &[(group, Repeat::Once), (group, Repeat::Once)]);
    assert_eq!((walk.sequences, walk.behind.gap), (vec![root.journal.sequence], false));
}

/// Whether the journal goes on from `root`, where some of its sectors cannot be read.
fn is_continued(ring: &Ring, root: &Root, unreadable: &[Place]) -> Option<bool> {
    let machine = Machine::with_image(1, drive_config(DRIVE_MIB), ring.image.clone());
    for place in unreadable {
        machine.drive.fail_reads(ring.bytes_of(*place), Repeat::Always);
    }
    let (root, layout) = (root.clone(), ring.layout);
    machine.run(move |platform| async move {
        let media = capacity(&platform, &open(&platform).await, &layout);
        JournalReader::new(&platform, &media, layout, &root).is_continued().await.unwrap()
    })
}

/// The group before the root's position says whether the area is the right one. Nobody needs it for anything else: where it
/// has rotted, the next one says it, and where too little can be read nothing is given up.
#[test]
fn an_area_is_of_another_time_only_if_neither_the_group_before_nor_the_next_one_is_there() {
    let mut ring = Ring::new();
    ring.push(24);
    let before = ring.push(24);
    let root = ring.root();
    let alone = ring.image.clone();
    let next = ring.push(24);
    let with_next = std::mem::replace(&mut ring.image, alone.clone());
    let mut other = Ring::new();
    other.next.previous_checksum = 78;
    other.push(24);
    other.push(24);
    let head_of = |place: Place| Place { sectors: 8, ..place };
    let tail_of = |place: Place| Place { sector: place.sector + 16, sectors: 8 };
    let rotted = |image: &DriveImage, places: &[Place]| {
        let mut image = image.clone();
        for place in places {
            image.flip_bit(ring.bytes_of(*place).end - 600, 3);
        }
        image
    };
    let is = |image: DriveImage, root: &Root, unreadable: &[Place]| {
        is_continued(&Ring { image, ..Ring::new() }, root, unreadable)
    };
    for image in [&alone, &with_next] {
        assert_eq!(is(image.clone(), &root, &[]), Some(true), "it is there");
        assert_eq!(is(image.clone(), &root, &[next]), Some(true), "the next one is not asked");
    }
    assert_eq!(is(other.image.clone(), &root, &[]), Some(false), "another one is there");
    assert_eq!(is(DriveImage::new(DRIVE_MIB << 20), &root, &[]), Some(false));

    for part in [head_of(before), tail_of(before)] {
        assert_eq!(is(alone.clone(), &root, &[part]), None, "it may be there");
        assert_eq!(is(with_next.clone(), &root, &[part]), Some(true), "the next one says so");
        assert_eq!(is(rotted(&with_next, &[next]), &root, &[part]), None);
    }
    assert_eq!(is(rotted(&alone, &[before]), &root, &[]), Some(false));
    assert_eq!(is(rotted(&with_next, &[before]), &root, &[]), Some(true), "the next one says so");
    assert_eq!(is(rotted(&with_next, &[before, next]), &root, &[]), Some(false));
    for part in [head_of(next), tail_of(next)] {
        assert_eq!(is(rotted(&with_next, &[before]), &root, &[part]), None, "the next one may be there");
    }
    let mut elsewhere = root;
    elsewhere.journal.previous_checksum ^= 1;
    assert_eq!(
        is(rotted(&with_next, &[before]), &elsewhere, &[]),
        Some(false),
        "the next one is of another chain"
    );
}
