use super::*;
use crate::Random;

#[test]
fn agrees_with_a_plain_array_through_writes_clones_and_flips() {
    const SIZE: u64 = 700 * 1000;
    let random = Random::new(11);
    let mut image = DriveImage::new(SIZE);
    let mut oracle = vec![0_u8; SIZE as usize];
    let mut kept: Vec<(DriveImage, Vec<u8>)> = Vec::new();
    for round in 0..600 {
        let offset = random.below(SIZE);
        let length = random.below((SIZE - offset).min(20_000) + 1) as usize;
        let bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        image.write(offset, &bytes);
        oracle[offset as usize..offset as usize + length].copy_from_slice(&bytes);
        let flipped = random.below(SIZE);
        image.flip_bit(flipped, 3);
        oracle[flipped as usize] ^= 8;
        if round % 100 == 0 {
            kept.push((image.clone(), oracle.clone()));
        }
    }
    kept.push((image, oracle));
    for (image, oracle) in &kept {
        assert!(image.read_vec(0, oracle.len()) == *oracle);
        let mut rebuilt = DriveImage::new(SIZE);
        rebuilt.write(0, oracle);
        assert_eq!(*image, rebuilt);
        assert_eq!(image.digest(), rebuilt.digest());
    }
    assert_ne!(kept[0].0, kept[1].0);
    assert_ne!(kept[0].0.digest(), kept[1].0.digest());
}

#[test]
fn finds_the_first_difference() {
    let mut left = DriveImage::new(64 << 20);
    left.write(5 << 20, &[1; 9000]);
    let mut right = left.clone();
    assert_eq!(left.first_difference(&right), None);
    right.write(40 << 20, &[9]);
    assert_eq!(left.first_difference(&right), Some(40 << 20));
    right.write((5 << 20) + 8191, &[2]);
    assert_eq!(left.first_difference(&right), Some((5 << 20) + 8191));
    assert_eq!(right.first_difference(&left), Some((5 << 20) + 8191));
}

#[test]
fn sizes_that_differ_are_a_difference_even_at_another_depth() {
    let (small, large) = (DriveImage::new(4096), DriveImage::new(64 << 20));
    assert_eq!(small.first_difference(&large), Some(4096));
    let mut other = small.clone();
    other.write(17, &[1]);
    assert_eq!(large.first_difference(&other), Some(17));
}

#[test]
fn zeros_equal_what_was_never_written() {
    let untouched = DriveImage::new(1 << 20);
    let mut zeroed = untouched.clone();
    zeroed.write(4096, &[0; 4096]);
    assert_eq!(untouched, zeroed);
    assert_eq!(untouched.digest(), zeroed.digest());
    assert_eq!((untouched.allocated_bytes(), zeroed.allocated_bytes()), (0, 4096));
    assert!(zeroed.has_hole(4096, 4097) && !zeroed.has_hole(4096, 4096));
}

#[test]
fn a_very_large_drive_costs_only_what_is_written() {
    let mut image = DriveImage::new(16 << 40);
    image.write((16 << 40) - 3, b"end");
    assert_eq!(image.read_vec((16 << 40) - 5, 5), b"\0\0end");
    assert_eq!(image.allocated_bytes(), 4096);
}

#[test]
#[should_panic(expected = "of an image of")]
fn a_write_beyond_the_end_is_a_bug() {
    DriveImage::new(4096).write(4095, &[0; 2]);
}
