//! Randomness for identities.

use rustix::rand::GetRandomFlags;

/// Sixty-four random bits.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())
        .expect("the kernel gives eight random bytes");
    u64::from_ne_bytes(bytes)
}
