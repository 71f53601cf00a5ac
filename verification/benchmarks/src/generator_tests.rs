use super::*;

const FIO: &str = r#"fio says something {"jobs": [{"usr_cpu": 10.0, "sys_cpu": 15.0,
    "read": {"iops": 50000.0, "lat_ns": {"percentile": {"50.000000": 40000, "99.000000": 90000}}},
    "write": {"iops": 0.0}}]}"#;

#[test]
fn what_fio_says_is_read() {
    let measured = measured_by_fio(FIO, 0, 4).expect("it is whole");
    assert_eq!(measured, Measured { iops: 50_000.0, p50_us: 40.0, p99_us: 90.0, cpu_us: 20.0 });
    assert_eq!(measured_by_fio(FIO, 100, 4), None, "nothing was written");
    assert_eq!(measured_by_fio("{}", 0, 4), None);
}

fn pair(rate: Rate, own: Measured, counted: u64) -> Pair {
    let fio = Measured { iops: 1000.0, p50_us: 100.0, p99_us: 200.0, cpu_us: 5.0 };
    Pair { write_percent: 0, rate, fio, own, counted, served: 1000 }
}

fn held(pairs: &[Pair]) -> Vec<Option<bool>> {
    judge(pairs).iter().map(|verdict| verdict.holds).collect()
}

#[test]
fn a_part_is_judged_by_rate_latency_cost_and_counts() {
    let part = Rate::Part { percent: 30, iops_of_client: 300 };
    let like = Measured { iops: 1009.0, p50_us: 91.0, p99_us: 219.0, cpu_us: 4.9 };
    assert_eq!(held(&[pair(part, like, 1000)]), [Some(true); 5]);
    let unlike = Measured { iops: 1011.0, p50_us: 89.0, p99_us: 221.0, cpu_us: 5.0 };
    assert_eq!(held(&[pair(part, unlike, 1001)]), [Some(false); 5]);
    // The median of three rounds counts, and each count.
    let rounds = [pair(part, like, 1000), pair(part, unlike, 999), pair(part, like, 1000)];
    assert_eq!(held(&rounds), [Some(true), Some(true), Some(true), Some(true), Some(false)]);
}

#[test]
fn of_the_slowest_hundredth_the_rounds_count_that_nothing_disturbed() {
    let part = Rate::Part { percent: 30, iops_of_client: 300 };
    let like = Measured { iops: 1000.0, p50_us: 100.0, p99_us: 205.0, cpu_us: 4.9 };
    let disturbed = Measured { p99_us: 4000.0, ..like };
    let rounds =
        [disturbed, like, disturbed, disturbed, like, disturbed, disturbed].map(|own| pair(part, own, 1000));
    assert_eq!(held(&rounds), [Some(true); 5]);
    let slower =
        rounds.map(|pair| Pair { own: Measured { p99_us: pair.own.p99_us.max(230.0), ..pair.own }, ..pair });
    assert_eq!(held(&slower)[2], Some(false));
}

#[test]
fn without_a_rate_only_cost_and_counts_are_judged() {
    let quicker = Measured { iops: 2000.0, p50_us: 50.0, p99_us: 90.0, cpu_us: 1.0 };
    for rate in [Rate::Saturated, Rate::One] {
        assert_eq!(held(&[pair(rate, quicker, 1000)]), [None, None, None, Some(true), Some(true)]);
    }
    let text = render(&judge(&[pair(Rate::Saturated, quicker, 1000)]));
    assert!(text.contains("read, 32 outstanding") && text.contains("2.000 (2.000 to 2.000)"), "{text}");
}
