use super::*;

#[test]
fn one_thing_that_failed_spoils_it() {
    let mut verdict = Verdict::default();
    assert!(!verdict.is_good(), "nothing was shown");
    verdict.add(true, "one");
    assert!(verdict.is_good());
    verdict.add(false, "two");
    verdict.add(true, "three");
    assert!(!verdict.is_good());
    let text = verdict.render(Duration::from_secs(7));
    assert!(text.contains("ok      one\nFAILED  two\nok      three\n"), "{text}");
    assert!(text.contains("NOT everything held. It took 7 s"), "{text}");
}
