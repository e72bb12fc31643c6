//! Reading the files of a folder: never a pipe, never outside the folder, never half of a write.
//!
//! Between the scan and the read anything can happen to a path, so the opened file is checked, not the path.
//! It runs on blocking threads.

use super::file_index::SeenFile;
use super::file_path::FilePath;
use super::folder::{Folder, Location};
use super::media_type;
use super::skip::SkipReason;
use crate::source::file::{FileIdentity, StableRead, is_absent, open_regular, read_stable};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use tidings_actors::Body;

/// Files that are read before they are published: enough to keep the bus busy, and the commits of a store
/// few.
const BATCH_FILES: usize = 256;
/// Bytes after which no further file is read before they are published, which bounds the memory of a scan.
const BATCH_BYTES: u64 = 8 << 20;

/// Files as they were seen, with the result of reading each.
pub(super) type ReadBatch = Vec<(FilePath, SeenFile, FileRead)>;

/// The result of reading a file.
#[derive(Debug)]
pub(super) enum FileRead {
    /// Its content, which belongs to one state of the file.
    Contents(Box<FileContents>),
    /// It must not be served.
    Skipped(SkipReason),
    /// It does not exist any more.
    Gone,
    /// It changed while it was read.
    Changing,
    /// The system failed.
    Failed(io::Error),
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct FileContents {
    /// The state in which it was read.
    pub(super) identity: FileIdentity,
    /// True if an equal identity proves equal content.
    pub(super) settled: bool,
    pub(super) media_type: &'static str,
    pub(super) body: Body,
}

impl Folder {
    /// Takes files out of `wanted` and reads them, as many as make a batch. Drops all that
    /// are left if the source was stopped.
    pub(super) fn read_batch(&self, wanted: &mut BTreeMap<FilePath, SeenFile>) -> ReadBatch {
        let mut batch = Vec::new();
        let mut bytes = 0;
        if wanted.is_empty() {
            return batch;
        }
        let location = self.locate();
        while batch.len() < BATCH_FILES && bytes < BATCH_BYTES {
            if self.cancelled.load(Ordering::Relaxed) {
                // An empty batch ends the loop of the task.
                wanted.clear();
            }
            let Some((path, seen)) = wanted.pop_first() else {
                break;
            };
            let read = match &location {
                Location::Found(real_root) => self.read(real_root, &path),
                _ => FileRead::Gone,
            };
            bytes += seen.identity.len;
            batch.push((path, seen, read));
        }
        batch
    }

    /// Reads a file. `real_root` is the path of the folder without links.
    pub(super) fn read(&self, real_root: &Path, path: &FilePath) -> FileRead {
        match self.try_read(real_root, path) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                FileRead::Skipped(SkipReason::NoPermission)
            }
            Err(error) if is_absent(&error) => FileRead::Gone,
            Err(error) => FileRead::Failed(error),
        }
    }

    fn try_read(&self, real_root: &Path, path: &FilePath) -> io::Result<FileRead> {
        let named = path.at(&self.root);
        let Some(file) = open_regular(&named)? else {
            return Ok(FileRead::Skipped(SkipReason::NotAFile));
        };
        if !real_path(&file, &named)?.starts_with(real_root) {
            return Ok(FileRead::Skipped(SkipReason::LeavesFolder));
        }
        Ok(match read_stable(&file, self.file_bytes_max)? {
            StableRead::Content {
                bytes,
                identity,
                settled,
            } => {
                let (media_type, body) = media_type::describe(path.name(), bytes);
                FileRead::Contents(Box::new(FileContents {
                    identity,
                    settled,
                    media_type,
                    body,
                }))
            }
            StableRead::TooLarge { .. } => FileRead::Skipped(SkipReason::TooLarge),
            StableRead::Changing => FileRead::Changing,
        })
    }
}

/// Returns the path of an open file without links.
fn real_path(file: &File, named: &Path) -> io::Result<PathBuf> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // The kernel knows where the open file is; every other way asks for the name again.
        if let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
            return Ok(path);
        }
    }
    let real = fs::canonicalize(named)?;
    if FileIdentity::of(&fs::symlink_metadata(&real)?).file != FileIdentity::of(&file.metadata()?).file {
        return Err(ErrorKind::NotFound.into());
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is served as a whole, with its real path.
    fn folder(base: &Path) -> (Folder, PathBuf) {
        let real_root = base.canonicalize().unwrap();
        let folder = Folder {
            root: real_root.clone(),
            ..Folder::for_test(&real_root)
        };
        (folder, real_root)
    }

    fn skipped(read: &FileRead) -> Option<SkipReason> {
        match read {
            FileRead::Skipped(reason) => Some(*reason),
            _ => None,
        }
    }

    #[test]
    fn read_gives_a_whole_file_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, root) = folder(dir.path());
        let path = FilePath::root().join("a.txt");
        assert!(matches!(folder.read(&root, &path), FileRead::Gone));
        fs::write(root.join("a.txt"), "12345678").unwrap();
        let FileRead::Contents(read) = folder.read(&root, &path) else {
            panic!("not read")
        };
        assert_eq!(read.body.as_text(), Some("12345678"));
        assert!(!read.settled, "it was written just now");
        fs::write(root.join("a.txt"), "123456789").unwrap();
        assert_eq!(skipped(&folder.read(&root, &path)), Some(SkipReason::TooLarge));
    }

    /// As if the path had been exchanged between the scan and the read.
    #[cfg(unix)]
    #[test]
    fn read_through_an_exchanged_path_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let (folder, root) = folder(dir.path());
        fs::write(outside.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), root.join("file")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("dir")).unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        for (path, reason) in [
            (FilePath::root().join("file"), SkipReason::LeavesFolder),
            (
                FilePath::root().join("dir").join("secret"),
                SkipReason::LeavesFolder,
            ),
            (FilePath::root().join("sub"), SkipReason::NotAFile),
        ] {
            assert_eq!(skipped(&folder.read(&root, &path)), Some(reason), "{path:?}");
        }
    }
}
