//! Notices that files were written or replaced, by the facts that the system keeps of them.
//!
//! A look reads no content. Callers that must not read a half-written file wait until two looks in a row
//! found the same ([`Looks`]). Nothing here keeps a file open, so a file may be replaced by another one.

use std::fs::{self, Metadata};
use std::path::Path;
#[cfg(feature = "service")]
use std::sync::{Arc, Weak};
#[cfg(feature = "service")]
use std::time::Duration;
use std::time::SystemTime;

/// The facts of one file, of which at least one differs after it was written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    /// The file itself and the time of its change, which cannot be set, unlike that of its content.
    #[cfg(unix)]
    file: (u64, u64, i64, i64),
}

impl FileStamp {
    pub(crate) fn of(metadata: &Metadata) -> FileStamp {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        FileStamp {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            #[cfg(unix)]
            file: (
                metadata.dev(),
                metadata.ino(),
                metadata.ctime(),
                metadata.ctime_nsec(),
            ),
        }
    }

    /// Looks at a file; none if there is none. Blocks as long as its disk does.
    pub(crate) fn at(path: &Path) -> Option<FileStamp> {
        Some(FileStamp::of(&fs::metadata(path).ok()?))
    }
}

/// The looks at a group of files that are read together.
#[cfg(feature = "service")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileStamps(Vec<Option<FileStamp>>);

#[cfg(feature = "service")]
impl FileStamps {
    /// Looks at each file. Blocks as long as their disks do.
    pub(crate) fn at<'a>(paths: impl IntoIterator<Item = &'a Path>) -> FileStamps {
        FileStamps(paths.into_iter().map(FileStamp::at).collect())
    }

    /// Returns false while one of them is gone.
    pub(crate) fn are_all_there(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }
}

/// Finds out when files that have changed rest, so that one which is being written is not read, and those
/// that are replaced one after the other are read together.
#[cfg(feature = "service")]
#[derive(Debug, Default)]
pub(crate) struct Looks {
    before: Option<FileStamps>,
}

#[cfg(feature = "service")]
impl Looks {
    /// Notes a look. Returns true if the files are others than those that were `read` last, and were the same
    /// at the look before. A file that is gone is another one.
    pub(crate) fn is_due(&mut self, now: FileStamps, read: &FileStamps) -> bool {
        let is_due = self.before.as_ref() == Some(&now) && now != *read;
        self.before = Some(now);
        is_due
    }
}

/// Calls `look` at each interval, on a thread that may block, until `watched` is dropped.
#[cfg(feature = "service")]
pub(crate) fn watch<T, L>(watched: &Arc<T>, every: Duration, mut look: L)
where
    T: Send + Sync + 'static,
    L: FnMut(&Arc<T>) + Send + 'static,
{
    // Weak, so that the task ends with the part of the service that reads the files.
    let watched: Weak<T> = Arc::downgrade(watched);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            let Some(watched) = watched.upgrade() else {
                return;
            };
            // The files may be on a disk that does not answer.
            let looked = tokio::task::spawn_blocking(move || {
                look(&watched);
                look
            });
            look = match looked.await {
                Ok(look) => look,
                Err(error) => {
                    return tracing::error!(%error, "files are not watched any more; restart the service");
                }
            };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_differs_after_each_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        assert_eq!(FileStamp::at(&path), None);
        fs::write(&path, "1").unwrap();
        let first = FileStamp::at(&path).unwrap();
        assert_eq!(FileStamp::at(&path), Some(first));
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        // Another file in its place, with the same length and time.
        let other = folder.path().join("b");
        fs::write(&other, "2").unwrap();
        let handle = fs::File::options().write(true).open(&other).unwrap();
        handle.set_modified(modified).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_ne!(FileStamp::at(&path), Some(first));
    }

    #[cfg(feature = "service")]
    #[test]
    fn change_is_due_once_it_rests() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let look = || FileStamps::at([path.as_path()]);
        fs::write(&path, "1").unwrap();
        let mut read = look();
        let mut looks = Looks::default();
        assert!(!looks.is_due(look(), &read) && !looks.is_due(look(), &read));
        fs::write(&path, "22").unwrap();
        assert!(!looks.is_due(look(), &read));
        fs::write(&path, "333").unwrap();
        assert!(!looks.is_due(look(), &read), "it changed since the look before");
        assert!(looks.is_due(look(), &read));
        read = look();
        assert!(!looks.is_due(look(), &read));
        fs::remove_file(&path).unwrap();
        assert!(!looks.is_due(look(), &read) && looks.is_due(look(), &read));
        assert!(!look().are_all_there());
    }
}
