//! Folders as written: a path, or empty text for none.
//!
//! For `#[serde(with = "folder")]` alone; it never looks at the disk.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;

/// Writes the path; what is not UTF-8 is replaced, which no path out of `Config::load` needs.
pub(super) fn serialize<S: Serializer>(folder: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    folder
        .as_ref()
        .map_or_else(String::new, |path| path.to_string_lossy().into_owned())
        .serialize(serializer)
}

/// Reads the path; empty text is none.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let written = String::deserialize(deserializer)?;
    Ok((!written.is_empty()).then(|| PathBuf::from(written)))
}
