//! What tells, without reading it, that a file is still the one that was read.
//!
//! Owns: [`FileIdentity`], taken from metadata, and the rule when it can be trusted: a file that changed just before it
//! was read may change again within the same tick of the file system's clock. Compared by the inventory.

use std::fs::Metadata;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time after a change during which the same identity proves nothing. The coarsest clock in use ticks every 2 s.
const SUSPECT: Duration = Duration::from_secs(2);

/// A file and its state, as far as metadata tells. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::source) struct FileIdentity {
    /// When the content was last written, as far as the writer admits.
    pub(in crate::source) modified: i128,
    /// When the file last changed at all; writers cannot set this one back.
    pub(in crate::source) changed: i128,
    /// Bytes.
    pub(in crate::source) len: u64,
    /// Device and inode; zero where there is no such thing.
    pub(in crate::source) file: (u64, u64),
}

impl FileIdentity {
    /// The identity in this metadata.
    #[cfg(unix)]
    pub(in crate::source) fn of(metadata: &Metadata) -> FileIdentity {
        use std::os::unix::fs::MetadataExt;
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        FileIdentity {
            modified: nanos(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanos(metadata.ctime(), metadata.ctime_nsec()),
            len: metadata.len(),
            file: (metadata.dev(), metadata.ino()),
        }
    }

    /// The identity in this metadata.
    #[cfg(not(unix))]
    pub(in crate::source) fn of(metadata: &Metadata) -> FileIdentity {
        let modified = metadata.modified().map_or(0, nanos_of);
        FileIdentity {
            modified,
            changed: modified,
            len: metadata.len(),
            file: (0, 0),
        }
    }

    /// Whether a read that began at `now` can be trusted for as long as the identity stays.
    pub(in crate::source) fn is_settled(&self, now: SystemTime) -> bool {
        self.changed + SUSPECT.as_nanos() as i128 <= nanos_of(now)
    }
}

fn nanos_of(time: SystemTime) -> i128 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settles_two_seconds_after_the_last_change() {
        let second = 1_000_000_000_i128;
        let identity = FileIdentity {
            modified: 900 * second,
            changed: 10 * second,
            len: 1,
            file: (1, 1),
        };
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert!(!identity.is_settled(at(9)));
        assert!(!identity.is_settled(at(11)));
        assert!(identity.is_settled(at(12)));
    }

    #[test]
    fn another_size_or_file_is_another_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let identity = || FileIdentity::of(&std::fs::metadata(&path).unwrap());
        std::fs::write(&path, "1").unwrap();
        let first = identity();
        assert_eq!(first, identity());
        std::fs::write(&path, "12").unwrap();
        assert_ne!(first, identity());
    }
}
