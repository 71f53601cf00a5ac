//! Sizes as people write them: binary units, `4k`, `1G`, `512 MiB`.

/// The bytes that `text` names: a whole number with an optional unit (K, M, G, T, P, also as
/// KiB, KB, k and so on; all are powers of 1024, as DISKSPD and QEMU have it). `None` if it is
/// no such text or does not fit 64 bits.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim_start().to_ascii_lowercase();
    let prefix = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match prefix {
        "" if unit != "ib" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// `bytes` with the largest unit that keeps it at one or more, three significant digits at
/// least: `1 GiB`, `1.5 GiB`, `4095 B`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let exponent = (bytes.ilog2() / 10) as usize;
    let value = bytes as f64 / (1u64 << (10 * exponent)) as f64;
    let text = if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} {}", UNITS[exponent - 1])
}

#[cfg(test)]
#[path = "size_tests.rs"]
mod tests;
