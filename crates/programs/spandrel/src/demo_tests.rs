use super::*;

#[test]
fn the_sweep_has_sixteen_cells_and_is_short() {
    let spec = sweep_arguments().spec().expect("it makes sense");
    assert_eq!(spec.cells().len(), 16);
    assert!(spec.duration().as_secs() < 60);
}
