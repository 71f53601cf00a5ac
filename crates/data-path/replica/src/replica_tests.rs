use std::time::Duration;

use spandrel_drive::FormatOptions;
use spandrel_platform::before;
use spandrel_platform_simulated::{Room, SimulatedDrive, SimulatedDriveConfig, SimulatedPlatform, World};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{BLOCK_BYTES, ClusterId, ConfigurationVersion, NodeId, SlabGeometry};

use super::*;

const SLAB: SlabIndex = SlabIndex(3);

fn volume() -> VolumeId {
    VolumeId::from_random(1, 1)
}

fn copy_address() -> CopyAddress {
    CopyAddress { volume: volume(), slab: SLAB, copy: CopyId::from_random(2, 2) }
}

fn drive_id() -> DriveId {
    DriveId::from_random(3, 3)
}

/// A copy of the next slab, that an owner asks for.
fn copy_to_come(number: u64, epoch: u32) -> (CopyAddress, NewCopy) {
    let slab = SlabIndex(SLAB.0 + 1);
    let copy = CopyAddress { copy: CopyId::from_random(7, number), slab, ..copy_address() };
    (copy, NewCopy { copy, drive: drive_id(), copies: 1, part: 0, epoch: Epoch(epoch) })
}

fn authority(epoch: u32) -> Authority {
    Authority { epoch: Epoch(epoch), configuration: ConfigurationVersion(1) }
}

fn other_drive_id() -> DriveId {
    DriveId::from_random(4, 4)
}

/// A store on a drive that is formatted.
async fn new_store(platform: &SimulatedPlatform, name: &str, id: DriveId) -> DriveStore<SimulatedPlatform> {
    let drive = platform.open_drive(name).await.expect("the drive is free");
    let options = FormatOptions {
        cluster: ClusterId::from_random(9, 9),
        node: NodeId::from_random(8, 8),
        drive: id,
        slab_geometry: SlabGeometry::new(4 << 20).expect("a slab size"),
    };
    DriveStore::format(platform, &drive, options).await.expect("the drive is empty");
    DriveStore::attach(platform, drive, 0).await.expect("it was just formatted").0
}

/// A replica with one copy, under no epoch yet.
async fn new_replica(platform: &SimulatedPlatform) -> Replica<SimulatedPlatform> {
    let replica = Replica::new();
    replica.add_drive(new_store(platform, "drive", drive_id()).await);
    let new = NewCopy { copy: copy_address(), drive: drive_id(), copies: 1, part: 0, epoch: Epoch(1) };
    replica.serve(ReplicaRequest::AddCopy(new), None).await.expect("there is room");
    replica
}

/// Attaches the drive again, as a new process does.
async fn attach_again(platform: &SimulatedPlatform) -> Replica<SimulatedPlatform> {
    let drive = platform.open_drive("drive").await.expect("the drive is free");
    let (store, _) = DriveStore::attach(platform, drive, 0).await.expect("the store recovers");
    let replica = Replica::new();
    replica.add_drive(store);
    replica
}

async fn write(
    platform: &SimulatedPlatform,
    replica: &Replica<SimulatedPlatform>,
    epoch: u32,
    counter: u64,
    byte: u8,
) -> Answer {
    let data = platform.buffers().copy_of(&[byte; BLOCK_BYTES]).freeze();
    let request = ReplicaRequest::Write {
        copy: copy_address(),
        authority: authority(epoch),
        mark: Mark::default(),
        first: 7,
        version: Version::new(Epoch(epoch), counter),
        checksums: vec![BlockChecksum::new(volume(), SLAB).of(7, &data)].into(),
    };
    replica.serve(request, Some(data)).await
}

async fn read_byte(replica: &Replica<SimulatedPlatform>, epoch: u32) -> Result<u8, ReplicaError> {
    let request =
        ReplicaRequest::Read { copy: copy_address(), authority: authority(epoch), first: 7, count: 1 };
    let (_, payload) = replica.serve(request, None).await?;
    Ok(payload.first().map_or(0, |data| data[0]))
}

async fn fence(replica: &Replica<SimulatedPlatform>, epoch: u32) -> Result<Vec<GatheredCopy>, ReplicaError> {
    fence_heeding(replica, epoch, Heeded::All).await
}

async fn fence_heeding(
    replica: &Replica<SimulatedPlatform>,
    epoch: u32,
    heeds: Heeded,
) -> Result<Vec<GatheredCopy>, ReplicaError> {
    let request = ReplicaRequest::Fence { volume: volume(), epoch: Epoch(epoch), settles: true, heeds };
    match replica.serve(request, None).await? {
        (ReplicaResponse::Gathered(copies, _), _) => Ok(copies),
        (other, _) => panic!("a fence was answered with {other:?}"),
    }
}

fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(SimulatedPlatform) -> F) {
    run_with_drive(|platform, _| test(platform));
}

/// A test that has power over the drive.
fn run_with_drive<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(SimulatedPlatform, SimulatedDrive) -> F,
) -> T {
    let world = World::new(1);
    let config = SimulatedDriveConfig { size_bytes: 32 << 20, ..SimulatedDriveConfig::default() };
    let drive = world.add_drive("drive", config);
    world.add_drive("other drive", config);
    let process = world.process("node");
    process.block_on(test(process.platform(), drive)).expect("the test ends")
}

#[test]
fn only_the_owner_that_was_fenced_in_is_served() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        assert!(write(&platform, &replica, 5, 1, 1).await.is_err(), "no fence has named epoch 5");
        fence(&replica, 5).await.expect("the first epoch");
        write(&platform, &replica, 5, 1, 1).await.expect("the owner writes");
        assert_eq!(read_byte(&replica, 5).await, Ok(1));

        let copies = fence(&replica, 6).await.expect("a higher epoch");
        assert_eq!(copies[0].listed.len(), 1, "the write above the mark is listed");
        assert_eq!(copies[0].listed[0].version, Version::new(Epoch(5), 1));
        let fenced = ReplicaError::Fenced { epoch: Epoch(6) };
        assert_eq!(write(&platform, &replica, 5, 2, 2).await.map(|_| ()), Err(fenced.clone()));
        assert_eq!(read_byte(&replica, 5).await, Err(fenced.clone()));
        assert_eq!(fence(&replica, 5).await, Err(fenced));
        assert_eq!(read_byte(&replica, 6).await, Ok(1), "the old owner changed nothing");
    });
}

/// Otherwise a take-over would take what a resync has copied there for that write, and its page for newer
/// than it is.
#[test]
fn a_write_that_a_resync_has_replaced_is_not_listed_any_more() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        fence(&replica, 5).await.expect("the first epoch");
        write(&platform, &replica, 5, 7, 1).await.expect("the owner writes");
        let listed = async || fence(&replica, 5).await.expect("the same epoch")[0].listed.len();
        assert_eq!(listed().await, 1);
        let set = |counter| ReplicaRequest::SetPageVersion {
            copy: copy_address(),
            authority: authority(5),
            page: 0,
            version: Version::new(Epoch(5), counter),
            whole: true,
        };
        replica.serve(set(7), None).await.expect("the owner asks");
        assert_eq!(listed().await, 1, "the source has that write too");
        replica.serve(set(6), None).await.expect("the owner asks");
        assert_eq!(listed().await, 0, "the source does not have it");
    });
}

/// Each page of a listed write is judged by itself.
#[test]
fn of_a_write_over_two_pages_what_a_resync_has_replaced_is_not_listed() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        fence(&replica, 5).await.expect("the first epoch");
        let (copy, authority, version) = (copy_address(), authority(5), Version::new(Epoch(5), 7));
        let (first, count) = (PAGE_BLOCKS - 2, 5);
        let trim = ReplicaRequest::Trim { copy, authority, mark: Mark::default(), first, count, version };
        replica.serve(trim, None).await.expect("the owner trims");
        let listed = async || fence(&replica, 5).await.expect("the same epoch").remove(0).listed;
        let part = |first, count| ListedWrite { version, first, count, in_doubt: false };
        assert_eq!(listed().await, [part(PAGE_BLOCKS - 2, 2), part(PAGE_BLOCKS, 3)]);
        let version = Version::new(Epoch(5), 6);
        let set = ReplicaRequest::SetPageVersion { copy, authority, page: 0, version, whole: true };
        replica.serve(set, None).await.expect("the owner asks");
        assert_eq!(listed().await, [part(PAGE_BLOCKS, 3)]);
    });
}

#[test]
fn a_write_tells_what_is_complete() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        fence(&replica, 5).await.expect("the first epoch");
        write(&platform, &replica, 5, 1, 1).await.expect("the owner writes");
        write(&platform, &replica, 5, 2, 1).await.expect("the owner writes");
        let mark = Mark { version: Version::new(Epoch(5), 2), exceptions: vec![Version::new(Epoch(5), 1)] };
        let (copy, authority, version) = (copy_address(), authority(5), Version::new(Epoch(5), 3));
        let trim = ReplicaRequest::Trim { copy, authority, mark: mark.clone(), first: 0, count: 1, version };
        replica.serve(trim, None).await.expect("the owner trims");
        let gathered = fence(&replica, 5).await.expect("the same epoch").remove(0);
        let listed: Vec<u64> = gathered.listed.iter().map(|listed| listed.version.counter).collect();
        assert_eq!((listed, gathered.mark), (vec![1, 3], mark));
    });
}

/// A block that is damaged here and is a hole elsewhere becomes one.
#[test]
fn a_damaged_block_is_healed_by_data_or_by_a_hole() {
    for byte in [Some(9), None] {
        run(async move |platform| {
            let replica = new_replica(&platform).await;
            fence(&replica, 1).await.expect("the first epoch");
            let (copy, authority) = (copy_address(), authority(1));
            replica
                .serve(ReplicaRequest::Lose { copy, authority, block: 7 }, None)
                .await
                .expect("it is there");
            let read = ReplicaRequest::Read { copy, authority, first: 7, count: 1 };
            let (ReplicaResponse::Parts(parts), _) = replica.serve(read, None).await.expect("it is served")
            else {
                panic!("a read is answered with parts")
            };
            let [PartDescription::Damaged { token, .. }] = parts[..] else { panic!("{parts:?}") };
            let data = byte.map(|byte| platform.buffers().copy_of(&[byte; BLOCK_BYTES]).freeze());
            let checksum = data.as_ref().map(|data| BlockChecksum::new(volume(), SLAB).of(7, data));
            let heal = |checksum| ReplicaRequest::Heal { copy, authority, block: 7, token, checksum };
            let wrong = if checksum.is_some() { None } else { Some(1) };
            assert_eq!(
                replica.serve(heal(wrong), data.clone()).await.map(|_| ()),
                Err(ReplicaError::DamagedOnArrival),
                "data and checksum come together"
            );
            replica.serve(heal(checksum), data).await.expect("there is room");
            assert_eq!(read_byte(&replica, 1).await, Ok(byte.unwrap_or(0)));
        });
    }
}

#[test]
fn a_digest_is_that_of_the_content_and_none_is_given_of_what_is_not_there() {
    run(|platform| async move {
        let replica = new_replica(&platform).await;
        fence(&replica, 1).await.expect("the first epoch");
        write(&platform, &replica, 1, 1, 5).await.expect("it is written");
        let request =
            ReplicaRequest::Digests { copy: copy_address(), authority: authority(1), first: 6, count: 2 };
        let (response, payload) = replica.serve(request, None).await.expect("the copy is there");
        let digests = vec![None, Some(ContentDigest::of(&[5; BLOCK_BYTES]))];
        assert_eq!((response, payload.len()), (ReplicaResponse::Digests(digests), 0));
        assert_ne!(ContentDigest::of(&[5; BLOCK_BYTES]), ContentDigest::of(&[6; BLOCK_BYTES]));
    });
}

/// The first owner's fence waits for its drives when the next owner's comes.
#[test]
fn a_fence_that_is_overtaken_by_a_higher_one_is_refused() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        let (lower, higher) = futures_util::future::join(fence(&replica, 5), fence(&replica, 6)).await;
        assert_eq!(lower, Err(ReplicaError::Fenced { epoch: Epoch(6) }));
        assert_eq!(higher.map(|copies| copies.len()), Ok(1));
    });
}

/// Whoever takes it away has made sure that nothing on it counts, but an owner of old may still be at work.
#[test]
fn a_copy_that_is_made_while_its_drive_is_taken_away_is_not_offered() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        let copy = CopyAddress { copy: CopyId::from_random(7, 7), slab: SlabIndex(4), ..copy_address() };
        let new = NewCopy { copy, drive: drive_id(), copies: 1, part: 0, epoch: Epoch(1) };
        let add = replica.serve(ReplicaRequest::AddCopy(new), None);
        let take_away = async { replica.remove_drive(drive_id()) };
        let (added, ()) = futures_util::future::join(add, take_away).await;
        assert_eq!(added.err(), Some(ReplicaError::NotFound));
        assert!(!replica.has_copy(copy) && replica.copies_of(volume()).is_empty());
    });
}

/// While a copy is moved from one drive of the node to another one, both serve.
#[test]
fn two_drives_of_a_node_can_hold_copies_of_one_slab() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        replica.add_drive(new_store(&platform, "other drive", other_drive_id()).await);
        fence(&replica, 1).await.expect("the first epoch");
        let copy = CopyAddress { copy: CopyId::from_random(7, 7), ..copy_address() };
        let new = NewCopy { copy, drive: other_drive_id(), copies: 1, part: 0, epoch: Epoch(1) };
        replica.serve(ReplicaRequest::AddCopy(new), None).await.expect("there is room");
        write(&platform, &replica, 1, 5, 9).await.expect("the former one takes it");
        assert!(replica.has_copy(copy_address()) && replica.has_copy(copy));
        let gathered = fence(&replica, 2).await.expect("the next epoch");
        let drives: Vec<DriveId> = gathered.iter().map(|copy| copy.drive).collect();
        assert_eq!(drives, [drive_id(), other_drive_id()]);
        let remove = ReplicaRequest::RemoveCopy { copy: copy_address() };
        replica.serve(remove, None).await.expect("the drive works");
        assert_eq!(replica.copies_of(volume()).len(), 1);
        assert!(!replica.has_copy(copy_address()) && replica.has_copy(copy));
    });
}

/// What cannot be removed for lack of room is still there, and is removed later.
#[test]
fn a_copy_on_a_full_drive_stays_until_it_can_be_removed() {
    run_with_drive(async |platform, drive| {
        let replica = new_replica(&platform).await;
        fence(&replica, 1).await.expect("the first epoch");
        let other = CopyAddress { copy: CopyId::from_random(7, 7), ..copy_address() };
        let new = NewCopy { copy: other, drive: drive_id(), copies: 1, part: 0, epoch: Epoch(1) };
        let remove = ReplicaRequest::RemoveCopy { copy: copy_address() };
        drive.set_room(Room::None);
        for request in [remove.clone(), ReplicaRequest::AddCopy(new)] {
            assert_eq!(replica.serve(request, None).await.err(), Some(ReplicaError::NoRoom));
            assert!(replica.has_copy(copy_address()) && !replica.has_copy(other));
        }
        drive.set_room(Room::Enough);
        replica.serve(remove, None).await.expect("the drive works");
        assert!(replica.copies_of(volume()).is_empty());
    });
}

/// The journal goes over into a place of the file that was never written just between the copy and the fence.
#[test]
fn a_copy_whose_drive_has_no_room_for_its_fence_is_not_offered_and_can_be_removed_or_made_again() {
    let mut unfenced = [0, 0];
    for (groups_before, again) in (1..=8).flat_map(|groups| [(groups, false), (groups, true)]) {
        unfenced[usize::from(again)] += run_with_drive(async move |platform, drive| {
            let replica = new_replica(&platform).await;
            for epoch in 1..=groups_before {
                fence(&replica, epoch).await.expect("the next epoch");
            }
            let (copy, new) = copy_to_come(7, groups_before);
            let (slab, add) = (copy.slab, ReplicaRequest::AddCopy(new));
            drive.set_room(Room::OnlyOverwrites);
            let added = replica.serve(add.clone(), None).await;
            let is_stored = replica.drives()[0].find_slab(volume(), slab).is_some();
            assert_eq!(added.is_ok(), replica.has_copy(copy));
            drive.set_room(Room::Enough);
            if added.is_ok() || !is_stored {
                return 0;
            }
            assert_eq!(replica.strays(), [(drive_id(), copy)]);
            if again {
                replica.serve(add, None).await.expect("there is room");
                assert!(replica.has_copy(copy));
            }
            replica.serve(ReplicaRequest::RemoveCopy { copy }, None).await.expect("the drive works");
            assert!(replica.strays().is_empty() && !replica.has_copy(copy));
            assert_eq!(replica.drives()[0].find_slab(volume(), slab), None);
            1
        });
    }
    assert!(
        unfenced[0] > 0 && unfenced == [unfenced[1]; 2],
        "the fence lacks room in some cases: {unfenced:?}"
    );
}

/// Its drive makes it all the same.
#[test]
fn a_copy_whose_owner_went_away_while_it_was_made_can_be_removed_or_made_again() {
    for again in [false, true] {
        run_with_drive(async move |platform, _| {
            let replica = new_replica(&platform).await;
            fence(&replica, 1).await.expect("the first epoch");
            let (copy, new) = copy_to_come(7, 1);
            let deadline = platform.now() + Duration::from_micros(1);
            let add = ReplicaRequest::AddCopy(new);
            assert!(
                before(&platform, deadline, replica.serve(add.clone(), None)).await.is_none(),
                "no drive is so fast"
            );
            assert_eq!(replica.strays(), [], "not yet");
            platform.sleep(Duration::from_secs(1)).await;
            assert_eq!((replica.strays(), replica.has_copy(copy)), (vec![(drive_id(), copy)], false));
            if again {
                replica.serve(add, None).await.expect("there is room");
                assert_eq!((replica.strays(), replica.has_copy(copy)), (vec![], true));
            }
            replica.serve(ReplicaRequest::RemoveCopy { copy }, None).await.expect("the drive works");
            assert_eq!((replica.strays(), replica.has_copy(copy)), (vec![], false));
            assert_eq!(replica.drives()[0].find_slab(volume(), copy.slab), None);
        });
    }
}

/// Whoever takes a growth or a volume back asks for that while a slow drive is still at it.
#[test]
fn a_copy_that_is_on_its_way_is_removed_when_it_has_come() {
    run_with_drive(async |platform, _| {
        let replica = new_replica(&platform).await;
        fence(&replica, 1).await.expect("the first epoch");
        let (copy, new) = copy_to_come(7, 1);
        let deadline = platform.now() + Duration::from_micros(1);
        let added =
            before(&platform, deadline, replica.serve(ReplicaRequest::AddCopy(new.clone()), None)).await;
        assert!(added.is_none(), "no drive is so fast");
        replica.serve(ReplicaRequest::RemoveCopy { copy }, None).await.expect("it is found");
        assert_eq!(replica.drives()[0].slab_count(), 1, "the other one");
        // A removal whose asker went away, and a late owner that asks for the copy again.
        let deadline = platform.now() + Duration::from_micros(1);
        let remove = ReplicaRequest::RemoveCopy { copy: copy_address() };
        assert!(before(&platform, deadline, replica.serve(remove, None)).await.is_none());
        let again = NewCopy { copy: copy_address(), ..new };
        let refused = replica.serve(ReplicaRequest::AddCopy(again), None).await.err();
        assert_eq!(refused, Some(ReplicaError::NotFound), "it is gone");
        assert!(!replica.has_copy(copy_address()) && replica.drives()[0].slab_count() == 0);
    });
}

/// Whoever waits for its turn is not overtaken by what is asked for when the turn before it ends.
#[test]
fn of_copies_that_are_asked_for_at_one_place_the_last_one_stays() {
    run_with_drive(async |platform, _| {
        let replica = Rc::new(new_replica(&platform).await);
        fence(&replica, 1).await.expect("the first epoch");
        let add = |number: u64| {
            let (_, new) = copy_to_come(number, 1);
            let replica = Rc::clone(&replica);
            async move { replica.serve(ReplicaRequest::AddCopy(new), None).await.is_ok() }
        };
        let chained = async {
            assert!(add(0).await, "the first one");
            // In the very moment in which its turn has ended.
            assert!(add(9).await, "the last one");
        };
        let ((), waiting) = futures_util::future::join(chained, join_all((1..4).map(add))).await;
        assert_eq!(waiting, [true; 3]);
        let here = replica.drives()[0].find_slab(volume(), copy_to_come(9, 1).0.slab).expect("one is here");
        assert_eq!(here.copy, CopyId::from_random(7, 9));
        assert!(replica.strays().is_empty() && replica.turns.queues.borrow().is_empty());
    });
}

#[test]
fn an_accepted_epoch_survives_a_crash() {
    let world = World::new(2);
    world
        .add_drive("drive", SimulatedDriveConfig { size_bytes: 32 << 20, ..SimulatedDriveConfig::default() });
    let process = world.process("node");
    let platform = process.platform();
    let fenced = process.block_on(async move {
        let replica = new_replica(&platform).await;
        fence(&replica, 9).await.expect("the first epoch");
    });
    fenced.expect("the world goes on");
    process.host().power_cut();
    process.host().power_on();
    let process = world.start_process("node");
    let platform = process.platform();
    let checked = process.block_on(async move {
        let replica = attach_again(&platform).await;
        assert_eq!(replica.accepted_epoch(volume()), Epoch(9));
        assert_eq!(fence(&replica, 8).await, Err(ReplicaError::Fenced { epoch: Epoch(9) }));
    });
    checked.expect("the world goes on");
}

#[test]
fn another_incarnation_of_a_copy_is_not_found() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        fence(&replica, 1).await.expect("the first epoch");
        let copy = CopyAddress { copy: CopyId::from_random(7, 7), ..copy_address() };
        let request = ReplicaRequest::Read { copy, authority: authority(1), first: 0, count: 1 };
        assert_eq!(replica.serve(request, None).await.map(|_| ()), Err(ReplicaError::NotFound));
        assert!(replica.has_copy(copy_address()) && !replica.has_copy(copy));
    });
}

/// An owner of old may still ask for a copy that was replaced since.
#[test]
fn an_owner_of_old_replaces_no_copy() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        fence(&replica, 5).await.expect("the first epoch");
        write(&platform, &replica, 5, 1, 1).await.expect("the owner writes");
        let copy = CopyAddress { copy: CopyId::from_random(7, 7), ..copy_address() };
        let add = |epoch: u32| {
            let new = NewCopy { copy, drive: drive_id(), copies: 1, part: 0, epoch: Epoch(epoch) };
            replica.serve(ReplicaRequest::AddCopy(new), None)
        };
        assert_eq!(add(4).await.map(|_| ()), Err(ReplicaError::Fenced { epoch: Epoch(5) }));
        assert_eq!(read_byte(&replica, 5).await, Ok(1));
        add(5).await.expect("the present owner may");
        assert!(replica.has_copy(copy) && !replica.has_copy(copy_address()));
    });
}

#[test]
fn what_a_resync_brings_has_no_version_and_is_not_listed() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        fence(&replica, 1).await.expect("the first epoch");
        let data = platform.buffers().copy_of(&[9; BLOCK_BYTES]).freeze();
        let (copy, authority) = (copy_address(), authority(1));
        let fill = ReplicaRequest::Write {
            copy,
            authority,
            mark: Mark::default(),
            first: 7,
            version: Version::ZERO,
            checksums: vec![BlockChecksum::new(volume(), SLAB).of(7, &data)].into(),
        };
        replica.serve(fill, Some(data)).await.expect("there is room");
        assert_eq!(read_byte(&replica, 1).await, Ok(9));
        let clear = ReplicaRequest::Trim {
            copy,
            authority,
            mark: Mark::default(),
            first: 7,
            count: 1,
            version: Version::ZERO,
        };
        replica.serve(clear, None).await.expect("it is there");
        assert_eq!(read_byte(&replica, 1).await, Ok(0));
        replica.serve(ReplicaRequest::Lose { copy, authority, block: 8 }, None).await.expect("it is there");
        let read = ReplicaRequest::Read { copy, authority, first: 8, count: 1 };
        let (parts, _) = replica.serve(read, None).await.expect("it is served");
        let ReplicaResponse::Parts(parts) = parts else { panic!("{parts:?}") };
        assert!(matches!(parts[..], [PartDescription::Damaged { block: 8, .. }]));
        assert_eq!(fence(&replica, 2).await.expect("a higher epoch")[0].listed, []);
    });
}

/// Two owners ask for a copy of their own at the same place, and the later one's stands.
#[test]
fn copies_at_one_place_are_made_one_after_the_other() {
    run(async |platform| {
        let replica = new_replica(&platform).await;
        fence(&replica, 1).await.expect("the first epoch");
        let copy = |number| CopyAddress {
            copy: CopyId::from_random(number, number),
            slab: SlabIndex(4),
            ..copy_address()
        };
        let add = |number, epoch| {
            let new =
                NewCopy { copy: copy(number), drive: drive_id(), copies: 1, part: 0, epoch: Epoch(epoch) };
            replica.serve(ReplicaRequest::AddCopy(new), None)
        };
        let remove = |number| replica.serve(ReplicaRequest::RemoveCopy { copy: copy(number) }, None);
        let (former, later) = futures_util::future::join(add(7, 1), add(8, 1)).await;
        assert!(former.is_ok() && later.is_ok(), "{former:?} {later:?}");
        assert!(replica.has_copy(copy(8)) && !replica.has_copy(copy(7)));
        // What is removed is what stood there when it was asked for.
        let (added, removed) = futures_util::future::join(add(9, 1), remove(8)).await;
        assert_eq!((added.is_ok(), removed.err()), (true, Some(ReplicaError::NotFound)));
        assert!(replica.has_copy(copy(9)));
        // Whoever waits for its turn may be of old when it has it.
        let fenced = async { fence(&replica, 2).await.map(|_| ()) };
        let (added, fenced, late) = futures_util::future::join3(add(10, 1), fenced, add(11, 1)).await;
        assert!(added.is_ok() && fenced.is_ok(), "{added:?} {fenced:?}");
        assert_eq!(late.err(), Some(ReplicaError::Fenced { epoch: Epoch(2) }));
        assert!(replica.has_copy(copy(10)) && !replica.has_copy(copy(11)));
        assert_eq!(replica.copies_of(volume()).len(), 2);
    });
}

/// The owner counts on what was told before the drive went away.
#[test]
fn a_drive_that_comes_back_without_all_that_it_had_serves_nobody_before_it_has_told() {
    run(|platform| async move {
        let replica = new_replica(&platform).await;
        fence(&replica, 1).await.expect("nobody else was accepted");
        write(&platform, &replica, 1, 1, b'a').await.expect("there is room");
        let store = replica.drives().remove(0);
        replica.remove_drive(drive_id());
        replica.add_drive(store.clone());
        write(&platform, &replica, 1, 2, b'b').await.expect("it has all that it had");

        let doubt = ReplicaRequest::Doubt {
            volume: volume(),
            drive: drive_id(),
            authority: authority(1),
            proven: Version::ZERO,
        };
        replica.serve(doubt, None).await.expect("there is room");
        assert_eq!(read_byte(&replica, 1).await, Ok(b'b'), "whoever has it doubted knows it");
        replica.remove_drive(drive_id());
        replica.add_drive(store);
        assert_eq!(write(&platform, &replica, 1, 3, b'c').await.unwrap_err(), ReplicaError::Untold);
        assert_eq!(read_byte(&replica, 1).await, Err(ReplicaError::Untold));

        let another = Heeded::Copies(vec![CopyId::from_random(6, 6)]);
        fence_heeding(&replica, 1, another).await.expect("it is for another copy");
        assert_eq!(read_byte(&replica, 1).await, Err(ReplicaError::Untold), "nobody has heeded what it told");
        let own = Heeded::Copies(vec![copy_address().copy]);
        let copies = fence_heeding(&replica, 1, own).await.expect("the owner asks what the copy holds");
        assert_eq!(copies[0].proven, Some(Version::ZERO));
        write(&platform, &replica, 1, 3, b'c').await.expect("it has told");
        assert_eq!(read_byte(&replica, 1).await, Ok(b'c'));
    });
}
