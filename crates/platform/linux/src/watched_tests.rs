use std::time::Duration;

use futures_util::FutureExt;
use rustix::event::{EventfdFlags, eventfd};
use spandrel_platform::Platform;

use crate::test_support::run;

#[test]
fn each_write_wakes_once_though_nothing_is_read() {
    run(|platform| async move {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let write = || rustix::io::write(&eventfd, &1_u64.to_ne_bytes()).unwrap();
        let watched = platform.watch(eventfd.try_clone().unwrap()).unwrap();
        for _ in 0..5 {
            assert!(watched.written().now_or_never().is_none());
            write();
            write();
            watched.written().await;
            platform.sleep(Duration::from_millis(1)).await;
        }
        drop(watched);
        write();
        let again = platform.watch(eventfd.try_clone().unwrap()).unwrap();
        again.written().await;
    });
}
