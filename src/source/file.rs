//! Reading files that other processes may be writing, and telling later whether they changed.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time after a change during which an equal identity proves nothing: the coarsest clock of a file system in
/// use (FAT) ticks every 2 s, and a second change within one tick leaves no trace.
const TICK_MAX: Duration = Duration::from_secs(2);
/// Reads of a file that changes while it is read. After that its writer's next event brings the source back.
const ATTEMPTS_MAX: usize = 4;

/// A file and its state, as far as metadata show them. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    /// The time of the last write, which writers may set as they like.
    pub(super) modified: i128,
    /// The time of the last change of any kind, which writers cannot set back.
    pub(super) changed: i128,
    /// Size in bytes.
    pub(super) len: u64,
    /// Device and inode; zero on systems without them.
    pub(super) file: (u64, u64),
}

impl FileIdentity {
    /// Takes the identity from metadata.
    #[cfg(unix)]
    pub(super) fn of(metadata: &Metadata) -> FileIdentity {
        use std::os::unix::fs::MetadataExt;
        FileIdentity {
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            len: metadata.len(),
            file: (metadata.dev(), metadata.ino()),
        }
    }

    /// Takes the identity from metadata.
    #[cfg(not(unix))]
    pub(super) fn of(metadata: &Metadata) -> FileIdentity {
        let modified = nanoseconds_since_epoch(metadata.modified().unwrap_or(UNIX_EPOCH));
        FileIdentity {
            modified,
            changed: modified,
            len: metadata.len(),
            file: (0, 0),
        }
    }

    /// Returns true if a read that began at `now` is valid for as long as the identity stays the same.
    fn is_settled(&self, now: SystemTime) -> bool {
        self.changed + TICK_MAX.as_nanos() as i128 <= nanoseconds_since_epoch(now)
    }
}

#[cfg(unix)]
fn nanoseconds(seconds: i64, nanoseconds: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

fn nanoseconds_since_epoch(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(_before) => 0,
    }
}

/// Returns true if the error says that there is no such file.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Opens a regular file for reading. Returns `None` for anything else, such as a pipe or a device.
pub(super) fn open_regular(path: &Path) -> io::Result<Option<File>> {
    // Opening a device can have effects, so its kind is checked before, and again after in case it was
    // exchanged.
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    ))]
    {
        use std::os::unix::fs::OpenOptionsExt;
        /// Opens a pipe without waiting for its writer; has no effect on regular files.
        const O_NONBLOCK: i32 = 0o4000;
        options.custom_flags(O_NONBLOCK);
    }
    let file = options.open(path)?;
    let is_file = file.metadata()?.is_file();
    Ok(is_file.then_some(file))
}

/// The result of [`read_stable`].
#[derive(Debug)]
pub(super) enum StableRead {
    /// Content that belongs to one state of the file.
    Content {
        bytes: Vec<u8>,
        /// The state of the file while it was read.
        identity: FileIdentity,
        /// True if an equal identity later means equal content.
        settled: bool,
    },
    /// The file has more bytes than allowed.
    TooLarge { len: u64 },
    /// The file changed during every attempt.
    Changing,
}

/// Reads an open file from its start, again if it changes meanwhile.
pub(super) fn read_stable(mut file: &File, bytes_max: u64) -> io::Result<StableRead> {
    for _ in 0..ATTEMPTS_MAX {
        let begun = SystemTime::now();
        let identity = FileIdentity::of(&file.metadata()?);
        if identity.len > bytes_max {
            return Ok(StableRead::TooLarge { len: identity.len });
        }
        // The size is known, so the buffer never grows, not even for the byte that shows a larger file.
        let mut bytes = Vec::with_capacity(identity.len as usize + 1);
        file.rewind()?;
        // One byte more than expected shows that the file grew.
        file.take(identity.len + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == identity.len && FileIdentity::of(&file.metadata()?) == identity {
            let settled = identity.is_settled(begun);
            return Ok(StableRead::Content {
                bytes,
                identity,
                settled,
            });
        }
    }
    Ok(StableRead::Changing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_settles_two_seconds_after_a_change() {
        let second = 1_000_000_000_i128;
        let identity = FileIdentity {
            modified: 900 * second,
            changed: 10 * second,
            len: 1,
            file: (1, 1),
        };
        for (seconds, settled) in [(9, false), (11, false), (12, true)] {
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(identity.is_settled(now), settled, "{seconds}");
        }
    }

    #[test]
    fn identity_differs_with_the_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "1").unwrap();
        let first = FileIdentity::of(&fs::metadata(&path).unwrap());
        assert_eq!(first, FileIdentity::of(&fs::metadata(&path).unwrap()));
        fs::write(&path, "12").unwrap();
        assert_ne!(first, FileIdentity::of(&fs::metadata(&path).unwrap()));
    }

    #[test]
    fn read_up_to_the_limit_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "12345678").unwrap();
        let file = open_regular(&path).unwrap().unwrap();
        let Ok(StableRead::Content { bytes, settled, .. }) = read_stable(&file, 8) else {
            panic!("not read")
        };
        assert_eq!(bytes, b"12345678");
        assert!(!settled, "it was written just now");
        let beyond = read_stable(&file, 7);
        assert!(
            matches!(beyond, Ok(StableRead::TooLarge { len: 8 })),
            "{beyond:?}"
        );
        assert!(open_regular(folder.path()).unwrap().is_none());
    }
}
