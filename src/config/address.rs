//! Addresses that may be left out, as written: an IP address and a port, or empty text for none.
//!
//! For `#[serde(with = "address")]` alone; nothing here binds.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::SocketAddr;

/// Writes the address.
pub(super) fn serialize<S: Serializer>(
    address: &Option<SocketAddr>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    address
        .map_or_else(String::new, |address| address.to_string())
        .serialize(serializer)
}

/// Reads the address; empty text is none.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let written = String::deserialize(deserializer)?;
    if written.is_empty() {
        return Ok(None);
    }
    written.parse().map(Some).map_err(serde::de::Error::custom)
}
