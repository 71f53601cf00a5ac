use super::*;

fn area(used: u32, dirty: u32) -> CacheUse {
    CacheUse { blocks_total: 1000, blocks_free: 1000 - used, blocks_dirty: dirty, blocks_copied: 0 }
}

#[test]
fn the_fuller_the_area_the_more_writes_go_past_it() {
    for (used, expected) in [(0, 0), (800, 0), (850, 250), (900, 500), (999, 995), (1000, 1000)] {
        let policy = CachePolicy::default();
        let past = (0..1000).filter(|_| !policy.takes_write(1, area(used, used))).count();
        assert_eq!(past, expected, "{used} per mille in use");
    }
}

#[test]
fn long_writes_and_other_modes_go_past_the_area() {
    let policy = CachePolicy::default();
    assert!(policy.takes_write(64, area(0, 0)) && !policy.takes_write(65, area(0, 0)));
    for (mode, takes) in [(CacheMode::ReadWrite, true), (CacheMode::ReadOnly, false), (CacheMode::Off, false)]
    {
        policy.set_mode(mode);
        assert_eq!(policy.takes_write(1, area(0, 0)), takes, "{mode:?}");
    }
    policy.set_mode(CacheMode::WriteOnly);
    policy.set_draining(true);
    assert!(!policy.takes_write(1, area(0, 0)), "it is being emptied");
}

#[test]
fn the_area_is_emptied_the_harder_the_fuller_it_is() {
    let policy = CachePolicy::default();
    for (dirty, batches) in [(0, 0), (249, 0), (250, 1), (399, 1), (400, 2), (1000, 6)] {
        assert_eq!(policy.destages(area(dirty, dirty)), batches, "{dirty} per mille");
    }
    policy.set_mode(CacheMode::ReadOnly);
    assert_eq!((policy.destages(area(1, 1)), policy.destages(area(0, 0))), (2, 0), "writes are to leave it");
}
