use super::*;

fn figures(of: &[(&str, u64)]) -> Figures {
    let mut figures = Figures::default();
    of.iter().for_each(|(load, instructions)| figures.set(load, *instructions));
    figures
}

#[test]
fn what_has_grown_by_more_than_two_percent_is_told() {
    let kept = figures(&[("a", 1000), ("b", 1000), ("c", 1000), ("e", 7)]);
    let compared = kept.compare(&figures(&[("a", 1020), ("b", 1021), ("c", 979), ("d", 5)]));
    let verdicts: Vec<Verdict> = compared.into_iter().map(|(_, verdict)| verdict).collect();
    let expected = [
        Verdict::Same { kept: 1000, now: 1020 },
        Verdict::Grown { kept: 1000, now: 1021 },
        Verdict::Fallen { kept: 1000, now: 979 },
        Verdict::New { now: 5 },
        Verdict::Gone { kept: 7 },
    ];
    assert_eq!(verdicts, expected);
    assert_eq!(
        verdicts.iter().filter(|verdict| verdict.is_same()).count(),
        1,
        "all others ask for something"
    );
}

#[test]
fn figures_are_read_as_they_were_kept() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("figures.json");
    let figures = figures(&[("read", 7), ("write", 9)]);
    figures.save(&path).expect("it can be written");
    assert_eq!(Figures::read(&path), Ok(figures));
    std::fs::write(&path, "[]").expect("it can be written");
    assert!(Figures::read(&path).is_err());
}
