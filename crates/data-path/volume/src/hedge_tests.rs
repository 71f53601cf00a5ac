use super::*;

#[test]
fn one_read_of_twenty_may_be_sent_a_second_time_and_a_few_in_a_row() {
    let budget = HedgeBudget::default();
    let take_all = || (0..1000).filter(|_| budget.take()).count();
    assert_eq!(take_all(), 8);
    assert_eq!(take_all(), 0);
    (0..19).for_each(|_| budget.note_read());
    assert_eq!(take_all(), 0);
    budget.note_tick();
    assert_eq!(take_all(), 1);
    (0..100).for_each(|_| budget.note_read());
    assert_eq!(take_all(), 5);
    (0..100_000).for_each(|_| budget.note_read());
    assert_eq!(take_all(), 8, "what was not used is not saved up for ever");
}
