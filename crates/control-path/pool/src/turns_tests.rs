use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn all_rounds(quotas: &[u64], chosen_per_round: usize) -> Vec<Vec<usize>> {
    let salted = quotas.iter().zip(1..).map(|(quota, salt)| (*quota, mix(salt)));
    let mut turns = Turns::new(salted, chosen_per_round);
    let next = || Some(turns.next_round().collect()).filter(|chosen: &Vec<_>| !chosen.is_empty());
    let rounds: Vec<Vec<usize>> = std::iter::from_fn(next).collect();
    assert_eq!(turns.next_round().len(), 0);
    rounds
}

/// Each of `places` gets a quota of at most `rounds`, and all together `rounds × chosen`.
fn quotas() -> impl Strategy<Value = (Vec<u64>, usize)> {
    (1_usize..=3, 1_u64..200)
        .prop_flat_map(|(chosen, rounds)| {
            (prop::collection::vec(0..=rounds, chosen..12), Just(chosen), Just(rounds))
        })
        .prop_map(|(mut quotas, chosen, rounds)| {
            let wanted = rounds * chosen as u64;
            let mut sum: u64 = quotas.iter().sum();
            for quota in &mut quotas {
                let more = (rounds - *quota).min(wanted.saturating_sub(sum));
                let less = (*quota).min(sum.saturating_sub(wanted));
                *quota = *quota + more - less;
                sum = sum + more - less;
            }
            (quotas, chosen)
        })
}

proptest! {
    #[test]
    fn quotas_are_met_with_different_places_in_every_round((quotas, chosen) in quotas()) {
        let rounds = all_rounds(&quotas, chosen);
        prop_assert_eq!(rounds.len() as u64 * chosen as u64, quotas.iter().sum::<u64>());
        let mut times = vec![0; quotas.len()];
        for round in &rounds {
            prop_assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), chosen, "{:?}", round);
            round.iter().for_each(|index| times[*index] += 1);
        }
        prop_assert_eq!(times, quotas);
    }

    /// After any number of rounds each place has had its part of them, give or take two.
    #[test]
    fn every_stretch_is_spread_in_proportion((quotas, chosen) in quotas()) {
        let rounds = all_rounds(&quotas, chosen);
        let mut times = vec![0_u64; quotas.len()];
        for (done, round) in (1_u64..).zip(&rounds) {
            round.iter().for_each(|index| times[*index] += 1);
            for (times, quota) in times.iter().zip(&quotas) {
                let (had, due) = (times * rounds.len() as u64, quota * done);
                prop_assert!(had.abs_diff(due) < 2 * rounds.len() as u64, "{times} of {quota} after {done}");
            }
        }
    }
}

#[test]
fn all_places_meet_each_other() {
    let rounds = all_rounds(&[96; 16], 3);
    let pairs: BTreeSet<(usize, usize)> = rounds
        .iter()
        .flat_map(|round| round.iter().flat_map(|one| round.iter().map(|two| (*one, *two))))
        .filter(|(one, two)| one < two)
        .collect();
    assert_eq!(pairs.len(), 16 * 15 / 2);
}

#[test]
#[should_panic(expected = "two turns in one round")]
fn a_quota_above_the_number_of_rounds_is_a_mistake() {
    Turns::new([(3, 0), (1, 0)], 2);
}
