//! Latencies of a client, as results keep them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

/// The latencies in microseconds that a result has as a text; none if it has none, or something else.
pub(crate) fn latencies_us(text: Option<&str>) -> Option<Histogram<u64>> {
    let bytes = BASE64.decode(text?).ok()?;
    Deserializer::new().deserialize(&mut &bytes[..]).ok()
}

/// Those of two directions together.
pub(crate) fn both(one: Option<&Histogram<u64>>, other: Option<&Histogram<u64>>) -> Option<Histogram<u64>> {
    let mut sum = one.or(other)?.clone();
    if let (Some(_), Some(other)) = (one, other) {
        sum.add(other).ok()?;
    }
    Some(sum)
}
