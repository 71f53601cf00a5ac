use super::*;

fn line(session: u64) -> Line<Order> {
    Line { session, word: Order::Stop }
}

#[test]
fn words_come_in_pieces_and_what_is_none_is_left_out() {
    let mut words = Words::default();
    let bytes =
        [b"the rest of one that was broken off\n".to_vec(), line(1).to_bytes(), line(2).to_bytes()].concat();
    let mut heard: Vec<u64> = Vec::new();
    for piece in bytes.chunks(7) {
        heard.extend(words.take_in::<Order>(piece).iter().map(|line| line.session));
    }
    assert_eq!(heard, [1, 2]);
    assert_eq!(words.take_in::<Order>(b"{\"session\":3").len(), 0);
    assert_eq!(words.take_in::<Order>(b",\"word\":\"stop\"}\n")[0].session, 3);
}

#[test]
fn a_word_without_an_end_takes_no_memory_for_ever() {
    let mut words = Words::default();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        words.take_in::<Order>(&piece);
        assert!(words.begun.len() <= WORD_BYTES_MAX + piece.len());
    }
}

#[test]
fn what_was_counted_is_the_same_on_the_other_side() {
    let mut tally = ClientTally::new("vm", true);
    for number in 1..2000_u64 {
        let latency = Duration::from_nanos(number * number * 977);
        tally.done(number.is_multiple_of(3), latency, 4096, Duration::from_millis(number));
    }
    tally.longest_pause = Duration::from_nanos(1_234_567);
    tally.answered = 2100;
    tally.tell(Duration::from_secs(1), "read", Some(4096), "I/O error".to_owned());
    let cost = GuestCost { cpu: Duration::from_nanos(5), wall: Duration::from_secs(1) };
    let said = Line { session: 9, word: Said::Ended(Box::new(Report { tally: tally.clone(), cost })) };
    let heard = Words::default().take_in::<Said>(&said.to_bytes());
    let [Line { session: 9, word: Said::Ended(report) }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(report.cost, cost);
    assert_eq!(format!("{:?}", report.tally.failures), format!("{:?}", tally.failures));
    assert_eq!((report.tally.longest_pause, report.tally.answered), (tally.longest_pause, 2100));
    assert_eq!(report.tally.intervals, tally.intervals);
    for (there, here) in [(&report.tally.read, &tally.read), (&report.tally.write, &tally.write)] {
        assert_eq!((there.count(), there.bytes()), (here.count(), here.bytes()));
        assert_eq!((there.mean_us(), there.max_us()), (here.mean_us(), here.max_us()));
        assert_eq!(there.standard_deviation_us(), here.standard_deviation_us());
        assert_eq!(there.quantile_us(0.999), here.quantile_us(0.999));
        assert_eq!(there.to_text(), here.to_text());
    }
    // Such as others can be added to, however long those took.
    let mut both = report.tally.read.clone();
    let mut long = ClientTally::new("other", false);
    long.done(false, Duration::from_secs(100), 4096, Duration::ZERO);
    both.add(&long.read);
    assert_eq!(both.count(), tally.read.count() + 1);
}

#[test]
fn the_times_of_a_load_are_kept_from_its_start_on() {
    let start = Instant::from_nanoseconds(1_000_000);
    let spec =
        CellSpec { warmup: Duration::from_secs(1), cooldown: Duration::from_secs(2), ..CellSpec::default() };
    let there = Instant::from_nanoseconds(77);
    let times = Plan::of(&LoadTimes::of_cell(&spec, start)).times(there);
    assert_eq!(times.measure_from, there + Duration::from_secs(1));
    assert_eq!(times.measure_until(), there + Duration::from_secs(11));
    assert_eq!(times.stop_at(), there + Duration::from_secs(13));
    let endless = Plan::of(&LoadTimes::open_ended(start, Duration::ZERO)).times(there);
    assert_eq!(endless.stop_at(), Instant::from_nanoseconds(u64::MAX));
}
