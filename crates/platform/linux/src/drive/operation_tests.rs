use spandrel_platform::BufferPool;
use spandrel_platform::sync::{OneshotReceiver, oneshot};

use super::*;

fn operation(start: u64, work: Work) -> (Operation, OneshotReceiver<Answer>) {
    let file = tempfile::tempfile().unwrap();
    let (reply, answer) = oneshot();
    (Operation::new(Rc::new(Arc::new(LockedFile::lock(file).unwrap())), start, work, reply), answer)
}

fn answer_of(answer: OneshotReceiver<Answer>) -> Answer {
    futures_util::FutureExt::now_or_never(answer).flatten().expect("the operation has answered")
}

#[test]
fn a_short_write_continues_where_it_stopped() {
    let pool = BufferPool::default();
    let parts: Vec<Buffer> =
        [b"abc".as_slice(), b"", b"defgh", b"i"].iter().map(|bytes| pool.copy_of(bytes).freeze()).collect();
    let (mut operation, answer) = operation(1000, Work::Write(parts));
    let left = |operation: &Operation| operation.parts_left().map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(left(&operation), [b"abc".as_slice(), b"defgh", b"i"]);
    assert_eq!(operation.advance(Ok(2)), Progress::More);
    assert_eq!(
        (left(&operation), operation.position()),
        (vec![b"c".into(), b"defgh".into(), b"i".into()], 1002)
    );
    assert_eq!(operation.advance(Err(Errno::INTR)), Progress::More);
    assert_eq!(operation.advance(Ok(4)), Progress::More);
    assert_eq!(left(&operation), [b"gh".as_slice(), b"i"]);
    assert_eq!(operation.advance(Ok(3)), Progress::Done(Ok(())));
    operation.finish(Ok(()));
    assert!(matches!(answer_of(answer), Ok(None)));
}

#[test]
fn a_read_past_the_files_end_is_an_error_of_the_medium() {
    let pool = BufferPool::default();
    let (mut operation, answer) = operation(4096, Work::Read(pool.take_zeroed(1024)));
    assert_eq!(operation.advance(Ok(512)), Progress::More);
    let end = operation.advance(Ok(0));
    assert_eq!(end, Progress::Done(Err(Failure::EndOfFile)));
    operation.finish(Err(Failure::EndOfFile));
    let error = answer_of(answer).expect_err("the read failed");
    assert_eq!(
        (error.kind, error.operation, error.offset),
        (DriveErrorKind::Medium, DriveOperation::Read, 4096)
    );
}

#[test]
fn a_write_that_moves_nothing_does_not_go_round_for_ever() {
    let pool = BufferPool::default();
    let (mut operation, _answer) = operation(0, Work::Write(vec![pool.take_zeroed(512).freeze()]));
    assert_eq!(operation.advance(Ok(0)), Progress::Done(Err(Failure::NothingWritten)));
}

#[test]
fn system_errors_keep_what_the_code_above_tells_apart() {
    let kind = |error: Errno| {
        let (mut operation, answer) = operation(0, Work::Flush);
        let Progress::Done(result) = operation.advance(Err(error)) else { panic!("{error} is final") };
        operation.finish(result);
        answer_of(answer).expect_err("the operation failed").kind
    };
    assert_eq!(kind(Errno::NOSPC), DriveErrorKind::NoRoom);
    assert_eq!(kind(Errno::NXIO), DriveErrorKind::Unavailable);
    assert_eq!(kind(Errno::NODEV), DriveErrorKind::Unavailable);
    assert_eq!(kind(Errno::IO), DriveErrorKind::Medium);
}
