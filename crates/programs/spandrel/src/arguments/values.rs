//! From text to sizes, times and addresses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use spandrel_shared::SlabGeometry;
use spandrel_shared::duration::parse_duration;
use spandrel_shared::size::parse_size;

use crate::admin::api::NewSize;
use crate::server::PORT_DEFAULT;

/// A time in whole seconds; 0 if it never is.
pub(super) fn parse_period(text: &str) -> Result<u32, String> {
    if ["off", "never", "0"].contains(&text.trim()) { Ok(0) } else { parse_seconds(text) }
}

/// A time in whole seconds.
pub(super) fn parse_seconds(text: &str) -> Result<u32, String> {
    let duration = parse_duration(text)?;
    if duration < Duration::from_secs(1) {
        return Err(format!("{text:?} is too short: write 1s or more"));
    }
    u32::try_from(duration.as_secs()).map_err(|_| format!("{text:?} is too long"))
}

/// The size of slabs.
pub(super) fn parse_slab_size(text: &str) -> Result<SlabGeometry, String> {
    let slabs = SlabGeometry::new(parse_size_argument(text)?);
    slabs.ok_or_else(|| format!("{text:?} is no power of two from 4M to 256M"))
}

/// Where a server listens: an address, with or without a port.
pub(super) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse().ok();
    let without =
        text.trim_matches(['[', ']']).parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, PORT_DEFAULT));
    with_port
        .or(without)
        .ok_or_else(|| format!("{text:?} is no address: write for example 192.0.2.7 or 192.0.2.7:7440"))
}

/// A member of an etcd that others keep.
pub(super) fn parse_state(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("etcd://").unwrap_or_default();
    let is_name = |host: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        !host.is_empty() && host.bytes().all(is_part)
    };
    let is_named = |(host, port): (&str, &str)| is_name(host) && port.parse::<u16>().is_ok();
    match address.parse::<SocketAddr>().is_ok() || address.rsplit_once(':').is_some_and(is_named) {
        true => Ok(address.to_owned()),
        false => Err(format!("{text:?} is no etcd: write for example etcd://10.0.0.5:2379")),
    }
}

/// A size in bytes.
pub(super) fn parse_size_argument(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{text:?} is no size: write for example 64M, 1G or 1536M"))
}

/// A size, which may be none at all.
pub(super) fn parse_memory(text: &str) -> Result<u64, String> {
    if matches!(text, "0" | "off") { Ok(0) } else { parse_size_argument(text) }
}

/// A size, or with `+` what comes to it.
pub(super) fn parse_new_size(text: &str) -> Result<NewSize, String> {
    if text.starts_with('-') {
        return Err("a volume never becomes smaller: write a size that it is to have, or +SIZE".to_owned());
    }
    match text.strip_prefix('+') {
        Some(more) => parse_size_argument(more).map(NewSize::AddBytes),
        None => parse_size_argument(text).map(NewSize::SizeBytes),
    }
}
