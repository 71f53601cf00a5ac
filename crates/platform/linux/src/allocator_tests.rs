use std::alloc::{GlobalAlloc, Layout};

use super::Allocator;

/// All sizes around the classes of small memory, with each alignment.
fn layouts() -> impl Iterator<Item = Layout> {
    let sizes = (1..130).chain([255, 256, 257, 1023, 1024, 4095, 4096, 4097, 65_536, 3 << 20]);
    sizes.flat_map(|size| (0..13).map(move |shift| Layout::from_size_align(size, 1 << shift).unwrap()))
}

fn check(memory: *mut u8, layout: Layout) {
    assert!(!memory.is_null(), "{layout:?}");
    assert!(memory.addr().is_multiple_of(layout.align()), "{layout:?} at {memory:?}");
}

#[test]
fn memory_has_the_alignment_that_was_asked_for() {
    for layout in layouts() {
        // SAFETY: the layouts have sizes, and what is taken is given back once, with its layout.
        unsafe {
            // Several at once: the first of a page may be aligned better than it has to be.
            let taken: Vec<*mut u8> = (0..9).map(|_| Allocator.alloc(layout)).collect();
            taken.iter().for_each(|memory| check(*memory, layout));
            taken.into_iter().for_each(|memory| Allocator.dealloc(memory, layout));
        }
    }
}

#[test]
fn memory_keeps_its_content_and_alignment_when_it_grows_and_shrinks() {
    for layout in layouts() {
        // SAFETY: as above; what is read was written, within the smaller of the two sizes.
        unsafe {
            let zeroed = Allocator.alloc_zeroed(layout);
            check(zeroed, layout);
            assert_eq!(*zeroed.add(layout.size() - 1), 0, "{layout:?}");
            *zeroed = 7;
            let mut memory = zeroed;
            let mut size = layout.size();
            for next in [layout.size() * 3 + 1, layout.size().div_ceil(2)] {
                memory =
                    Allocator.realloc(memory, Layout::from_size_align(size, layout.align()).unwrap(), next);
                size = next;
                check(memory, Layout::from_size_align(size, layout.align()).unwrap());
                assert_eq!(*memory, 7, "{layout:?}");
            }
            Allocator.dealloc(memory, Layout::from_size_align(size, layout.align()).unwrap());
        }
    }
}
