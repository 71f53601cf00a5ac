use std::rc::Rc;

use spandrel_platform_simulated::{DriveImage, Random, SimulatedDriveConfig};

use crate::test_support::explorer::{Budget, crash_images, explore};
use crate::test_support::machine::{Machine, attach};
use crate::test_support::observation::{check_ownership, observe};
use crate::test_support::oracle::Oracle;
use crate::test_support::script::{Runner, Step};
use crate::test_support::{drive_config, factor, key, volume};

/// Recovers what a crash has left and judges it.
fn recover(seed: u64, config: SimulatedDriveConfig, image: DriveImage, oracle: &Oracle) -> (Machine, Oracle) {
    let machine = Machine::with_image(seed, config, image);
    let (store, report) = machine.attach().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.unproven, [], "a mere crash leaves nothing unproven");
    assert_eq!(report.structures_damaged, 0, "a mere crash damages nothing");
    check_ownership(&store);
    let observation = machine.run(|_| async move { observe(&store).await });
    (machine, oracle.settle(&observation))
}

/// Runs `steps` on a new store and hands every image of every moment to `look`.
fn crash_everywhere(
    seed: u64,
    config: SimulatedDriveConfig,
    budget: Budget,
    steps: Vec<Step>,
    mut look: impl FnMut(DriveImage, &Oracle),
) {
    let (machine, store) = Machine::attached(seed, config);
    let runner = Runner::new(machine.platform(), store, machine.drive.clone(), Oracle::default());
    let oracle = Rc::clone(&runner.oracle);
    let random = Random::new(seed);
    let body = {
        let runner = runner.clone();
        async move { runner.run(&steps).await }
    };
    let answers = {
        let oracle = Rc::clone(&oracle);
        move || oracle.borrow().fact_count() as u64
    };
    explore(&machine, body, answers, |_| {
        for image in crash_images(&machine.drive, budget, &random) {
            look(image, &oracle.borrow());
        }
    });
    assert_eq!(runner.failure(), None);
}

/// Crashes a recovery at each of its moments, `depth` times within each other.
fn crash_recovery(
    seed: u64,
    config: SimulatedDriveConfig,
    budget: Budget,
    image: DriveImage,
    oracle: &Oracle,
    depth: usize,
) -> usize {
    let random = Random::new(seed);
    let machine = Machine::with_image(seed, config, image);
    let platform = machine.platform();
    let body = async move { drop(attach(platform).await.unwrap()) };
    let mut recoveries = 0;
    explore(
        &machine,
        body,
        || 0,
        |_| {
            for image in crash_images(&machine.drive, budget, &random) {
                recoveries += 1;
                let seed = random.next_u64();
                if depth > 1 && random.chance(100) {
                    recoveries += crash_recovery(seed, config, budget, image, oracle, depth - 1);
                } else {
                    recover(seed, config, image, oracle);
                }
            }
        },
    );
    recoveries
}

fn basic_script() -> Vec<Step> {
    let (a, b, c) = (key(1, 0), key(1, 1), key(2, 0));
    vec![
        Step::Add(a),
        Step::Add(b),
        Step::Add(c),
        Step::Join,
        Step::Write(a, 0, 1),
        Step::Join,
        Step::Write(a, 0, 1),
        Step::Join,
        Step::Write(a, 510, 4),
        Step::Write(b, 0, 1),
        Step::Write(c, 7, 2),
        Step::Join,
        Step::Trim(a, 511, 2),
        Step::Write(a, 0, 3),
        Step::Join,
        Step::Mark(volume(1), 1),
        Step::Fence(volume(1)),
        Step::Write(a, 1, 1),
        Step::Write(a, 2, 1),
        Step::Write(a, 600, 1),
        Step::Write(b, 2, 1),
        Step::Join,
        Step::SetPage(b, 1, true),
        Step::Heal(a, 0),
        Step::Checkpoint,
        Step::Write(a, 1, 1),
        Step::Write(a, 3, 2),
        Step::Write(c, 100, 8),
        Step::Join,
        Step::Remove(b),
        Step::Write(c, 100, 8),
        Step::Join,
        Step::Add(b),
        Step::Write(b, 100, 1),
        Step::Write(a, 100, 1),
        Step::Checkpoint,
        Step::Join,
        Step::Trim(c, 0, 1024),
        Step::Join,
    ]
}

/// Drives with and without a cache that needs flushes, in sectors of both sizes.
fn all_kinds_of_drives() -> impl Iterator<Item = SimulatedDriveConfig> {
    [(512, true), (4096, true), (512, false), (4096, false)].into_iter().map(
        |(sector_bytes, volatile_cache)| SimulatedDriveConfig {
            sector_bytes,
            volatile_cache,
            ..drive_config(24)
        },
    )
}

#[test]
fn every_crash_of_a_scripted_workload_is_survived() {
    let mut recoveries = 0;
    for (seed, config) in (1..).zip(all_kinds_of_drives()) {
        let budget = Budget::LARGE.times(factor());
        crash_everywhere(seed, config, budget, basic_script(), |image, oracle| {
            recover(seed, config, image, oracle);
            recoveries += 1;
        });
    }
    assert!(recoveries > 3000, "only {recoveries} crashes");
}

#[test]
fn every_crash_of_a_recovery_is_survived() {
    let random = Random::new(5);
    let mut recoveries = 0;
    for (seed, config) in (1..).zip(all_kinds_of_drives()) {
        let budget = Budget::SMALL.times(factor());
        crash_everywhere(seed, config, budget, basic_script(), |image, oracle| {
            if random.chance(30) {
                recoveries += crash_recovery(random.next_u64(), config, budget, image, oracle, 2);
            }
        });
    }
    assert!(recoveries > 1000, "only {recoveries} crashes");
}
