use std::cell::RefCell;
use std::rc::Rc;

use crate::{Executor, Workers};

type Log = Rc<RefCell<Vec<(u32, u32)>>>;

/// A task that writes down its name and each job that it gets.
fn start_worker(executor: &Executor, workers: &Rc<Workers<u32>>, log: &Log, name: u32) {
    let (workers, log) = (Rc::clone(workers), Rc::clone(log));
    executor.spawn(async move {
        while let Some(job) = workers.next().await {
            log.borrow_mut().push((name, job));
        }
    });
}

fn settle(executor: &Executor) {
    while executor.run_ready() {}
}

#[test]
fn the_task_that_waits_for_the_shortest_time_is_woken_first() {
    let executor = Executor::new();
    let (workers, log) = (Rc::new(Workers::new(8)), Log::default());
    start_worker(&executor, &workers, &log, 1);
    start_worker(&executor, &workers, &log, 2);
    settle(&executor);
    for job in [10, 11] {
        assert!(!workers.give(job));
        settle(&executor);
    }
    assert!(!workers.give(12));
    assert!(!workers.give(13));
    assert!(workers.give(14), "both have one to do");
    start_worker(&executor, &workers, &log, 3);
    settle(&executor);
    let done = log.take();
    assert_eq!(done[..2], [(2, 10), (2, 11)]);
    assert!(done.iter().map(|(_, job)| *job).eq(10..=14), "{done:?}");
    workers.close();
    settle(&executor);
    assert_eq!(executor.live_tasks(), 0);
}

/// A task that ends its job in the same turn in which another one is woken takes the older job, and not one that was given later.
#[test]
fn jobs_are_begun_in_order_whoever_does_them() {
    let executor = Executor::new();
    let (workers, log) = (Rc::new(Workers::new(8)), Log::default());
    for name in 0..3 {
        start_worker(&executor, &workers, &log, name);
    }
    settle(&executor);
    for first in (0..90).step_by(9) {
        let given: Vec<bool> = (first..first + 9).map(|job| workers.give(job)).collect();
        assert_eq!(given.iter().filter(|starts| **starts).count(), 6);
        executor.run_ready();
    }
    settle(&executor);
    assert!(log.borrow().iter().map(|(_, job)| *job).eq(0..90), "{log:?}");
}

#[test]
fn a_task_that_is_woken_in_vain_is_listed_once() {
    let executor = Executor::new();
    let (workers, log) = (Rc::new(Workers::new(8)), Log::default());
    let kept: Rc<RefCell<Option<std::task::Waker>>> = Rc::default();
    let (theirs, jobs, done) = (Rc::clone(&kept), Rc::clone(&workers), Rc::clone(&log));
    executor.spawn(async move {
        let own = std::future::poll_fn(|context| std::task::Poll::Ready(context.waker().clone())).await;
        theirs.replace(Some(own));
        while let Some(job) = jobs.next().await {
            done.borrow_mut().push((1, job));
        }
    });
    settle(&executor);
    for _ in 0..5 {
        kept.borrow().as_ref().expect("the task has run").wake_by_ref();
        settle(&executor);
    }
    assert!(!workers.give(1));
    assert!(workers.give(2), "nobody else waits");
    settle(&executor);
    assert_eq!(log.take(), [(1, 1), (1, 2)]);
}

#[test]
fn a_job_given_before_closing_is_done() {
    let executor = Executor::new();
    let (workers, log) = (Rc::new(Workers::new(8)), Log::default());
    start_worker(&executor, &workers, &log, 1);
    settle(&executor);
    assert!(!workers.give(5));
    workers.close();
    settle(&executor);
    assert_eq!(log.take(), [(1, 5)]);
    assert_eq!(executor.live_tasks(), 0);
}

#[test]
fn only_so_many_tasks_wait() {
    let executor = Executor::new();
    let (workers, log) = (Rc::new(Workers::new(2)), Log::default());
    for name in 0..5 {
        assert!(workers.give(name));
        start_worker(&executor, &workers, &log, name);
    }
    settle(&executor);
    assert_eq!(log.borrow().len(), 5);
    assert_eq!(executor.live_tasks(), 2);
}
