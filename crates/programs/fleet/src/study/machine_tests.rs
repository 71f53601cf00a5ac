use super::*;

#[test]
fn the_line_of_all_cores_counts() {
    let text = "cpu  100 1 50 800 40 5 4 10 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
    let before = MachineReading::parse(text);
    assert_eq!(before, Some(MachineReading { busy: 170, idle: 840 }));
    let after = MachineReading::parse("cpu  130 1 50 860 50 5 4 10 9 0\n");
    let busy = MachineUse::between(before, after).busy_percent;
    assert_eq!(busy, Some(30.0), "30 of 100; what guests took is a part of user's");
}

#[test]
fn what_the_kernel_does_not_say_is_not_made_up() {
    for text in ["", "cpu0 1 2 3 4 5\n", "cpu  1 2 3\n", "cpu  many\n"] {
        assert_eq!(MachineReading::parse(text), None, "{text:?}");
    }
    let reading = MachineReading::parse("cpu  1 1 1 1 1 1 1 1\n");
    assert_eq!(MachineUse::between(None, reading).busy_percent, None);
    assert_eq!(MachineUse::between(reading, reading).busy_percent, None, "no time has passed");
    let later = MachineReading::parse("cpu  2 1 1 2 1 1 1 1\n");
    assert_eq!(MachineUse::between(later, reading).busy_percent, None, "it goes backwards");
}

#[test]
fn this_machine_says_it() {
    assert!(MachineReading::take().is_some());
    assert!(MachineUse::between(None, None).cores > 0);
}
