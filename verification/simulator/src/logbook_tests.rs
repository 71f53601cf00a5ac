use spandrel_platform_simulated::RunEnd;

use super::*;

#[test]
fn lines_have_the_time_of_their_world() {
    let world = World::swarm(1);
    let ((), lines) = keep(|| {
        tracing::info!("before");
        open(&world);
        assert_eq!(world.run_for(Duration::from_millis(1500)), RunEnd::TimeOver);
        tracing::warn!(drive = 7, "it hangs");
        tracing::debug!("nobody asks");
        close();
        tracing::info!("after");
    });
    let times: Vec<Duration> = lines.iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [Duration::ZERO, Duration::from_millis(1500), Duration::ZERO]);
    assert!(lines[1].1.contains("WARN") && lines[1].1.contains("it hangs drive=7"), "{lines:?}");
}

#[test]
fn text_has_a_line_for_each() {
    let lines =
        [(Duration::from_millis(1500), "one".to_owned()), (Duration::from_secs(70), "two".to_owned())];
    assert_eq!(text(&lines), "    1.500000000 one\n   70.000000000 two\n");
}

#[test]
fn nothing_is_kept_unless_it_is_asked_for() {
    tracing::info!("lost");
    open(&World::swarm(2));
    tracing::info!("lost, too");
    close();
    let (result, lines) = keep(|| 5);
    assert_eq!((result, lines), (5, Vec::new()));
}
