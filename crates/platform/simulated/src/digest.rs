//! A fast 64-bit digest for traces and derived seeds.
//!
//! It only has to tell two runs apart, so it is neither keyed nor cryptographic. It depends on
//! nothing but its input: the same on every machine.

/// Odd constants without structure, one per lane, so that equal words in different lanes differ.
const LANES: [u64; 4] =
    [0x9d6c_63f1_8b0e_a8d5, 0xc3a5_c85c_97cb_3127, 0xb492_b66f_be98_f273, 0xe703_7ed1_a0b4_28db];

/// Mixes `word` into `hash`.
pub(crate) const fn fold(hash: u64, word: u64) -> u64 {
    multiply(hash.rotate_left(23) ^ word, LANES[0]).wrapping_add(LANES[1])
}

/// The digest of `bytes`.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let [mut first, mut second, mut third, mut fourth] = LANES;
    let (words, rest) = bytes.as_chunks::<8>();
    let (groups, words) = words.as_chunks::<8>();
    // Four independent chains, each with two words at a time and written out, keep the multiplier
    // busy also where the compiler unrolls little: a block costs a fraction of a microsecond.
    for group in groups {
        let [a, b, c, d, e, f, g, h] = group.map(u64::from_le_bytes);
        first = multiply(first ^ a, LANES[1] ^ b).wrapping_add(LANES[2]);
        second = multiply(second ^ c, LANES[2] ^ d).wrapping_add(LANES[3]);
        third = multiply(third ^ e, LANES[3] ^ f).wrapping_add(LANES[0]);
        fourth = multiply(fourth ^ g, LANES[0] ^ h).wrapping_add(LANES[1]);
    }
    let mut hash = bytes.len() as u64;
    for lane in [first, second, third, fourth] {
        hash = fold(hash, lane);
    }
    for word in words {
        hash = fold(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash, u64::from_le_bytes(last))
}

/// The two halves of the product, one over the other: every input bit reaches every output bit.
const fn multiply(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    ((product >> 64) as u64) ^ ((product & u64::MAX as u128) as u64)
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
