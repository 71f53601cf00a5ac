use super::*;

#[test]
fn what_was_told_last_is_not_told_again() {
    let told = ToldOnce::default();
    let texts = ["a", "a", "b", "b", "a"];
    let is_told: Vec<bool> = texts.into_iter().map(|text| told.is_to_be_told(text)).collect();
    assert_eq!(is_told, [true, false, true, false, true]);
    told.forget();
    assert!(told.is_to_be_told("a"));
}
