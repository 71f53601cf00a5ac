//! Times as people write and read them.

use std::time::Duration;

const WEEK_S: u64 = 7 * 86_400;

/// The time that `text` names: a number with an optional unit (`ms`, `s`, `m`, `h`, `d`, `w`; seconds
/// without one), such as `500ms`, `1.5s`, `2m` or `4w`.
///
/// # Errors
///
/// What `text` should look like.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let seconds_per_unit = match text[digits..].trim_start() {
        "ms" => Some(0.001),
        "" | "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        "d" => Some(86_400.0),
        "w" => Some(604_800.0),
        _ => None,
    };
    let number = text[..digits].parse::<f64>().ok();
    let seconds = number.zip(seconds_per_unit).map(|(number, unit)| number * unit);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{text:?} is no time: write for example 500ms, 10s, 5m, 1h or 2d"))
}

/// `duration` in the unit that people would choose: `500 ms`, `1.5 s`, `2 min`, `1 h 30 min`, `2 d 12 h`, `4 weeks`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 1 {
        return format!("{} ms", duration.as_millis());
    }
    if seconds < 60 {
        let tenths = duration.as_millis() / 100;
        let fraction = if tenths.is_multiple_of(10) { String::new() } else { format!(".{}", tenths % 10) };
        return format!("{seconds}{fraction} s");
    }
    if seconds.is_multiple_of(WEEK_S) {
        let weeks = seconds / WEEK_S;
        return format!("{weeks} week{}", if weeks == 1 { "" } else { "s" });
    }
    let (days, hours, minutes, rest) =
        (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "duration_tests.rs"]
mod tests;
