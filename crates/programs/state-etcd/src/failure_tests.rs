use super::*;

fn verdict(code: Code, message: &str) -> (Verdict, bool) {
    let failure = Failure::from(EtcdError::GRpcStatus(Status::new(code, message)));
    (failure.verdict, failure.is_of_the_member)
}

#[test]
fn what_etcd_refuses_is_refused_and_what_it_leaves_open_is_unknown() {
    use StoreErrorKind::{Invalid, LeaseGone};
    for (code, message, expected, is_of_the_member) in [
        (Code::Unavailable, "etcdserver: no leader", Verdict::NotDone, true),
        (Code::ResourceExhausted, "etcdserver: too many requests", Verdict::NotDone, false),
        (Code::NotFound, "etcdserver: requested lease not found", Verdict::Refused(LeaseGone), false),
        (Code::NotFound, "etcdserver: member not found", Verdict::Refused(Invalid), false),
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
            Verdict::Refused(Invalid),
            false,
        ),
        (Code::InvalidArgument, "etcdserver: request is too large", Verdict::Refused(Invalid), false),
        // The change that filled the database was made.
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Verdict::Unknown, false),
        // A leader that is gone may have passed it on before.
        (Code::Unavailable, "etcdserver: leader changed", Verdict::Unknown, true),
        (Code::Unavailable, "etcdserver: request timed out", Verdict::Unknown, true),
        (Code::Unavailable, "error reading a body from connection", Verdict::Unknown, true),
        // The transport says so as well, of a connection that asks too much.
        (Code::ResourceExhausted, "h2 protocol error", Verdict::Unknown, true),
        (Code::InvalidArgument, "not etcd's word", Verdict::Unknown, true),
        (Code::Unknown, "", Verdict::Unknown, true),
    ] {
        assert_eq!(verdict(code, message), (expected, is_of_the_member), "{code:?} {message}");
    }
}

#[test]
fn what_was_done_before_is_done() {
    let refused = |message: &str| Err::<u8, _>(EtcdError::GRpcStatus(Status::new(Code::OutOfRange, message)));
    assert!(done_before(Ok(7), COMPACTED).is_ok());
    assert!(
        done_before(refused("etcdserver: mvcc: required revision has been compacted"), COMPACTED).is_ok()
    );
    assert!(
        done_before(refused("etcdserver: mvcc: required revision is a future revision"), COMPACTED).is_err()
    );
    assert!(done_before(refused("mvcc: required revision has been compacted"), COMPACTED).is_err());
}

#[test]
fn a_caller_is_told_what_follows_for_it() {
    let kind = |verdict, silence| {
        Failure { verdict, is_of_the_member: false, detail: String::new() }.into_error(silence).kind
    };
    use StoreErrorKind::{LeaseGone, Unavailable, Unknown};
    for (verdict, of_change, of_read) in [
        (Verdict::Refused(LeaseGone), LeaseGone, LeaseGone),
        (Verdict::NotDone, Unavailable, Unavailable),
        (Verdict::Unknown, Unknown, Unavailable),
    ] {
        assert_eq!((kind(verdict, Unknown), kind(verdict, Unavailable)), (of_change, of_read));
    }
    assert_eq!(Failure::silence().verdict, Verdict::Unknown);
}
