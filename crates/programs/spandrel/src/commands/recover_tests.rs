use spandrel_cluster::store::Revision;

use super::*;

fn backup() -> StateBackup {
    let text = r#"{"format":1,"cluster":"00000000000000000000000000000001","name":"demo","generation":2,"revision":10,
        "taken_unix_ms":60000,"checksum":0,"entries":{}}"#;
    serde_json::from_str(text).expect("it is one, but for its checksum")
}

#[test]
fn what_may_be_lost_is_told_first() {
    let older = describe(&backup(), StateStamp::new(2, Revision(30)), 360_000).expect("it can be read");
    assert!(older.contains("revision 10 of generation 2, which was read 5 min ago"), "{older}");
    assert!(
        older.contains("have seen revision 30 of generation 2: what has changed since is lost"),
        "{older}"
    );
    let newest = describe(&backup(), StateStamp::new(1, Revision(30)), 360_000).expect("it can be read");
    assert!(newest.contains("have seen nothing newer; those of others may have"), "{newest}");
    for line in older.lines().skip(3) {
        assert!(line.len() <= 115, "{line}");
    }
}
