use std::future::poll_fn;
use std::task::Waker;

use super::*;

#[test]
fn each_comes_once_and_the_others_stay_in_order() {
    let context = &mut Context::from_waker(Waker::noop());
    let mut few = Few::new();
    assert_eq!(few.poll_next(context), Poll::Pending, "there are none");
    for (number, mut polls_left) in [(1, 2), (2, 0), (3, 1)] {
        few.push(poll_fn(move |_| {
            assert!(polls_left >= 0, "it has ended");
            polls_left -= 1;
            if polls_left < 0 { Poll::Ready(number) } else { Poll::Pending }
        }));
    }
    assert_eq!(few.poll_next(context), Poll::Ready(2));
    assert_eq!(few.poll_next(context), Poll::Pending);
    assert_eq!(few.poll_next(context), Poll::Ready(1));
    few.push(poll_fn(|_| unreachable!("whoever came before is ready first")));
    assert_eq!(few.poll_next(context), Poll::Ready(3));
}
