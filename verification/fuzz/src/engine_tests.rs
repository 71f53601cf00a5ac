use super::*;

fn target(run: fn(&[u8])) -> Target {
    let seeds = || vec![b"Spandrel".to_vec()];
    Target { name: "none", about: "", run, seeds, smoke_runs: 0, memory_bytes_max: 1 << 20 }
}

#[test]
fn a_bug_two_changes_away_from_a_seed_is_found_and_its_input_shown() {
    let buggy = target(|input| assert!(!(input.starts_with(b"S") && input.get(2) == Some(&0xff))));
    let failure = smoke(&buggy, 1, 100_000).expect_err("it is found");
    assert_eq!(failure.input[2], 0xff);
    assert!(failure.origin.starts_with("made-up input"));
}

#[test]
fn equal_seeds_try_the_same_and_others_do_not() {
    let known = vec![Vec::new(), b"Spandrel".to_vec()];
    let inputs = |seed| {
        let random = Random::new(seed);
        (0..100).map(|_| make_up(&known, &random)).collect::<Vec<_>>()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
}

#[test]
fn an_input_that_takes_too_much_memory_fails() {
    let hungry = target(|input| drop(std::hint::black_box(vec![0_u8; input.len() << 20])));
    assert!(try_one(&hungry, Vec::new(), String::new()).is_ok());
    assert!(try_one(&hungry, vec![0; 2], String::new()).is_err());
}
