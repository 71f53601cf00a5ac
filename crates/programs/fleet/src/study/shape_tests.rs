use super::*;

#[test]
fn a_ratio_is_judged_by_its_goal() {
    let judged = |ratio, goal| Shape::judge("it", ratio, goal).holds;
    assert!(judged(Some(1.3), Goal::AtLeast(1.3)));
    assert!(!judged(Some(1.299), Goal::AtLeast(1.3)));
    assert!(judged(Some(1.05), Goal::AtMost(1.05)));
    assert!(!judged(Some(1.051), Goal::AtMost(1.05)));
    assert!(judged(Some(1000.0), Goal::Told), "it has no bound");
    for goal in [Goal::AtLeast(0.0), Goal::AtMost(1000.0), Goal::Told] {
        assert!(!judged(None, goal), "what was not measured does not hold");
    }
    for goal in [Goal::AtLeast(0.0), Goal::AtMost(1000.0)] {
        assert!(!judged(Some(f64::NAN), goal));
    }
}

#[test]
fn a_ratio_needs_both_sides() {
    assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
    assert_eq!(ratio(Some(3.0), Some(0.0)), None, "of nothing nothing is a multiple");
    assert_eq!((ratio(None, Some(2.0)), ratio(Some(3.0), None)), (None, None));
}

#[test]
fn a_curve_is_judged_by_its_worst_rise() {
    let slow_rise = rise_max(&[Some(400.0), Some(420.0), Some(440.0), Some(464.0)]);
    assert_eq!(slow_rise, Some(1.16), "many small steps are one large one");
    assert_eq!(rise_max(&[Some(8.0), Some(4.0), Some(1.0)]), Some(0.5));
    assert_eq!(rise_max(&[Some(8.0), Some(4.0), Some(6.0), Some(1.0)]), Some(1.5));
    assert_eq!(rise_max(&[Some(8.0), None, Some(1.0)]), None);
    assert_eq!((rise_max(&[]), rise_max(&[Some(8.0)])), (None, None), "a point is no curve");
}

#[test]
fn each_shape_has_a_line() {
    let text = render(&[
        Shape::judge("reads", Some(1.823), Goal::AtLeast(1.3)),
        Shape::judge("writes", Some(1.2), Goal::AtLeast(1.5)),
        Shape::judge("the curve", None, Goal::AtMost(1.05)),
        Shape::judge("moving", Some(1.4), Goal::Told),
        Shape::judge("moving more", None, Goal::Told),
    ]);
    let expected = "\
HOLDS                1.82 x  (at least 1.30)  reads
DOES NOT HOLD        1.20 x  (at least 1.50)  writes
DOES NOT HOLD  not measured  (at most 1.05)   the curve
TOLD                 1.40 x  (no bound)       moving
NOT MEASURED   not measured  (no bound)       moving more
";
    assert_eq!(text, expected);
}

#[test]
fn rounds_are_judged_by_their_median() {
    let judged = |ratios: &[f64]| {
        let ratios: Vec<Option<f64>> = ratios.iter().copied().map(Some).collect();
        Shape::judge_rounds("it", &ratios, Goal::AtMost(1.03))
    };
    let shape = judged(&[1.01, 1.5, 0.9, 1.02, 1.03]);
    let spread = shape.spread.unwrap();
    assert_eq!((shape.ratio, spread.min, spread.max, shape.holds), (Some(1.02), 0.9, 1.5, true));
    assert_eq!(shape.ratio_text(), "1.02 x (0.90 to 1.50)");
    assert!(!judged(&[1.01, 1.5, 1.04]).holds);
    let mut lacking = vec![Some(1.0); 6];
    lacking.push(None);
    for ratios in [&[][..], &lacking] {
        let shape = Shape::judge_rounds("it", ratios, Goal::AtMost(1.03));
        assert_eq!(
            (shape.ratio, shape.spread, shape.holds),
            (None, None, false),
            "a round that lacks is no good one"
        );
    }
}
