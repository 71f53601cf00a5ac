//! Changes bytes as an input chooses.

use crate::choices::Choices;

/// The most that one edit adds, in bytes.
const ADDED_BYTES_MAX: usize = 256;

/// Changes `bytes` once: a byte, a number of 2, 4 or 8 bytes in either order, a stretch that goes, comes
/// twice or is new.
pub fn edit(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let kind = choices.byte() % 12;
    let at = choices.index(bytes.len() + 1);
    match kind {
        0 => set(bytes, at, &[choices.byte()]),
        1 => flip(bytes, at, choices.byte()),
        2 => set(bytes, at, &(choices.number() as u16).to_le_bytes()),
        3 => set(bytes, at, &(choices.number() as u16).to_be_bytes()),
        4 => set(bytes, at, &(choices.number() as u32).to_le_bytes()),
        5 => set(bytes, at, &(choices.number() as u32).to_be_bytes()),
        6 => set(bytes, at, &choices.number().to_le_bytes()),
        7 => set(bytes, at, &choices.number().to_be_bytes()),
        8 => bytes.truncate(at),
        9 => {
            let end = (at + 1 + usize::from(choices.byte())).min(bytes.len());
            bytes.drain(at.min(end)..end);
        }
        10 => {
            let end = (at + 1 + usize::from(choices.byte())).min(bytes.len());
            let again = bytes[at.min(end)..end].to_vec();
            bytes.splice(at..at, again);
        }
        _ => {
            let count = usize::from(choices.byte()).min(ADDED_BYTES_MAX);
            let new = choices.bytes(count).to_vec();
            bytes.splice(at..at, new);
        }
    }
}

/// Changes `bytes` up to three times, without changing their number.
pub fn edit_in_place(bytes: &mut [u8], choices: &mut Choices<'_>) {
    for _ in 0..1 + choices.byte() % 3 {
        let kind = choices.byte() % 5;
        let at = choices.index(bytes.len());
        match kind {
            0 => set(bytes, at, &[choices.byte()]),
            1 => flip(bytes, at, choices.byte()),
            2 => set(bytes, at, &(choices.number() as u16).to_le_bytes()),
            3 => set(bytes, at, &(choices.number() as u32).to_le_bytes()),
            _ => set(bytes, at, &choices.number().to_le_bytes()),
        }
    }
}

/// Writes `new` over what stands at `at`, as far as there is something.
fn set(bytes: &mut [u8], at: usize, new: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(new) {
        *byte = *new;
    }
}

fn flip(bytes: &mut [u8], at: usize, bit: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << (bit % 8);
    }
}
