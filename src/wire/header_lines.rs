//! Headers that every request to a server carries, such as credentials.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Lines of headers that clones share, so that a token can be replaced while requests are written.
///
/// The lines are not printed, since they are credentials.
#[derive(Clone, Default)]
pub struct HeaderLines(Arc<RwLock<Vec<u8>>>);

impl HeaderLines {
    /// Replaces the headers; names and values must be free of line ends.
    pub fn set<'h>(&self, headers: impl IntoIterator<Item = (&'h str, &'h [u8])>) {
        let mut lines = Vec::new();
        for (name, value) in headers {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = lines;
    }

    /// Appends the lines to a request.
    pub(super) fn write_to(&self, request: &mut Vec<u8>) {
        request.extend_from_slice(&self.0.read().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for HeaderLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Equal if they are the same lines, not if they have the same content.
impl PartialEq for HeaderLines {
    fn eq(&self, other: &HeaderLines) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HeaderLines {}
