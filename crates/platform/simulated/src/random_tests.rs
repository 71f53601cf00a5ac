use super::*;

#[test]
fn the_seed_determines_the_stream_on_every_machine() {
    let random = Random::new(1);
    let drawn: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
    assert_eq!(drawn, [0xb3f2_af6d_0fc7_10c5, 0x853b_5596_4736_4cea, 0x92f8_9756_082a_4514]);
}

#[test]
fn streams_differ_by_seed_label_and_number() {
    let first = |random: Random| random.next_u64();
    let base = first(Random::stream(1, "a", 0));
    assert_eq!(base, first(Random::stream(1, "a", 0)));
    assert_ne!(base, first(Random::stream(2, "a", 0)));
    assert_ne!(base, first(Random::stream(1, "b", 0)));
    assert_ne!(base, first(Random::stream(1, "a", 1)));
}

#[test]
fn draws_stay_in_their_range_and_reach_its_ends() {
    let random = Random::new(7);
    let drawn: Vec<u64> = (0..1000).map(|_| random.between(3, 6)).collect();
    assert!(drawn.iter().all(|value| (3..=6).contains(value)));
    assert!((3..=6).all(|value| drawn.contains(&value)));
    assert_eq!(random.between(9, 2), 9);
    assert_eq!(random.below(0), 0);
}

#[test]
fn chance_is_about_what_it_says() {
    let random = Random::new(3);
    let hits = (0..10_000).filter(|_| random.chance(250)).count();
    assert!((2200..2800).contains(&hits), "{hits} of 10000");
    assert!(!(0..1000).any(|_| random.chance(0)));
    assert!((0..1000).all(|_| random.chance(1000)));
}
