use super::*;

fn verdict(code: Code, message: &str) -> Verdict {
    Failure::from(EtcdError::GRpcStatus(Status::new(code, message))).verdict
}

#[test]
fn what_etcd_refuses_is_refused_and_what_it_leaves_open_is_unknown() {
    use StoreErrorKind::{Compacted, Invalid, LeaseGone};
    let oldest = Revision::ZERO;
    for (code, message, expected) in [
        (Code::Unavailable, "etcdserver: no leader", Verdict::NotDone),
        (Code::ResourceExhausted, "etcdserver: too many requests", Verdict::NotDone),
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Verdict::NotDone),
        (Code::NotFound, "etcdserver: requested lease not found", Verdict::Refused(LeaseGone)),
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
            Verdict::Refused(Compacted { oldest }),
        ),
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
            Verdict::Refused(Invalid),
        ),
        (Code::InvalidArgument, "etcdserver: request is too large", Verdict::Refused(Invalid)),
        // A leader that is gone may have passed it on before.
        (Code::Unavailable, "etcdserver: leader changed", Verdict::Unknown),
        (Code::Unavailable, "etcdserver: request timed out", Verdict::Unknown),
        (Code::Unavailable, "error reading a body from connection", Verdict::Unknown),
        // The transport says so as well, of a connection that asks too much.
        (Code::ResourceExhausted, "h2 protocol error", Verdict::Unknown),
        (Code::InvalidArgument, "not etcd's word", Verdict::Unknown),
        (Code::Unknown, "", Verdict::Unknown),
    ] {
        assert_eq!(verdict(code, message), expected, "{code:?} {message}");
    }
}

#[test]
fn a_caller_is_told_what_follows_for_it() {
    let kind = |verdict, silence| Failure { verdict, detail: String::new() }.into_error(silence).kind;
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
