use futures_util::FutureExt;
use spandrel_platform::Executor;

use super::*;

type Log = Rc<RefCell<Vec<(u32, u32)>>>;

/// A task that writes down its name and each job that it gets.
fn spawn_worker(executor: &Executor, workers: &Rc<Workers<u32>>, log: &Log, name: u32) {
    let (workers, log) = (Rc::clone(workers), Rc::clone(log));
    executor.spawn(async move {
        let desk = Workers::desk();
        while let Some(job) = workers.next(&desk).await {
            log.borrow_mut().push((name, job));
        }
    });
}

#[test]
fn jobs_go_to_the_task_that_waits_for_the_shortest_time() {
    let executor = Executor::new();
    let (workers, log) = (Rc::new(Workers::new()), Log::default());
    assert_eq!(workers.assign(7), Err(7), "nobody waits");
    spawn_worker(&executor, &workers, &log, 1);
    spawn_worker(&executor, &workers, &log, 2);
    while executor.run_ready() {}
    for job in [10, 11] {
        assert_eq!(workers.assign(job), Ok(()));
        while executor.run_ready() {}
    }
    assert_eq!(workers.assign(12), Ok(()));
    assert_eq!(workers.assign(13), Ok(()));
    assert_eq!(workers.assign(14), Err(14), "both have a job");
    while executor.run_ready() {}
    assert_eq!(log.take(), [(2, 10), (2, 11), (2, 12), (1, 13)]);
    workers.close();
    while executor.run_ready() {}
    assert_eq!(executor.live_tasks(), 0);
}

#[test]
fn a_task_that_is_woken_for_nothing_is_listed_once() {
    let workers = Rc::new(Workers::<u32>::new());
    let desk = Workers::desk();
    let mut next = Box::pin(workers.next(&desk));
    for _ in 0..5 {
        assert!(next.as_mut().now_or_never().is_none());
    }
    assert_eq!(workers.assign(1), Ok(()));
    assert_eq!(workers.assign(2), Err(2));
    assert_eq!(next.now_or_never(), Some(Some(1)));
}

#[test]
fn a_job_given_before_closing_is_done() {
    let executor = Executor::new();
    let (workers, log) = (Rc::new(Workers::new()), Log::default());
    spawn_worker(&executor, &workers, &log, 1);
    while executor.run_ready() {}
    assert_eq!(workers.assign(5), Ok(()));
    workers.close();
    while executor.run_ready() {}
    assert_eq!(log.take(), [(1, 5)]);
    assert_eq!(executor.live_tasks(), 0);
    assert_eq!(workers.next(&Workers::desk()).now_or_never(), Some(None));
}
