use std::future::poll_fn;
use std::task::Waker;

use super::*;

/// Comes to `number` when it was polled so many times in vain, and must not be polled again then.
fn ready_after(number: u32, mut polls: u32) -> Pin<Box<impl Future<Output = u32>>> {
    let mut has_ended = false;
    Box::pin(poll_fn(move |_| {
        assert!(!has_ended, "it is polled again");
        has_ended = polls == 0;
        polls = polls.saturating_sub(1);
        if has_ended { Poll::Ready(number) } else { Poll::Pending }
    }))
}

#[test]
fn each_comes_once_and_the_others_stay_in_order() {
    let context = &mut Context::from_waker(Waker::noop());
    let mut few = Few::new();
    assert_eq!(few.poll_next(context), Poll::Pending, "there are none");
    for (number, polls) in [(1, 2), (2, 0), (3, 1)] {
        few.push(ready_after(number, polls));
    }
    assert_eq!(few.poll_next(context), Poll::Ready(2));
    assert_eq!(few.poll_next(context), Poll::Pending);
    assert_eq!(few.poll_next(context), Poll::Ready(1));
    few.push(ready_after(4, 0));
    assert_eq!(few.poll_next(context), Poll::Ready(3), "whoever came before is looked at first");
    assert_eq!(few.poll_next(context), Poll::Ready(4));
    assert_eq!(few.poll_next(context), Poll::Pending);
}
