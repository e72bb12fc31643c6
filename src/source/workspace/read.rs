//! Reading files with care: never a pipe, never outside the folder, never half of a write.
//!
//! Owns: the only place where the source reads files. Between the look and the read anything can happen to a path,
//! so what was opened is checked, not what was named. Runs on blocking threads; the task asks and publishes.

use super::file_index::SeenFile;
use super::folder::{Folder, Place, is_absent};
use super::media_type;
use super::path::FilePath;
use super::skip::SkipReason;
use crate::source::file_identity::FileIdentity;
use crate::source::open::open;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use tidings_actors::Body;

/// How often a file that changes while it is read is read anew. Its writer's next event brings it back after that.
const ATTEMPTS_MAX: usize = 4;
/// Files read before they are published: enough to keep the bus busy, and a store's commits few.
const PORTION_FILES: usize = 256;
/// Bytes after which no further file is read before they are published.
const PORTION_BYTES: u64 = 8 << 20;

/// Files that were read, as they were seen before.
pub(super) type Portion = Vec<(FilePath, SeenFile, Reading)>;

/// What came of reading a file.
#[derive(Debug)]
pub(super) enum Reading {
    /// Its content, all of one state.
    File(Box<Contents>),
    /// It must not be served.
    Skipped(SkipReason),
    /// There is no such file any more.
    Gone,
    /// It is being written.
    Unsettled,
    /// The system failed.
    Failed(io::Error),
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct Contents {
    /// The state it was read in.
    pub(super) identity: FileIdentity,
    /// Whether that state was old enough to be trusted.
    pub(super) settled: bool,
    /// Its media type.
    pub(super) media_type: &'static str,
    /// Its content.
    pub(super) body: Body,
}

impl Folder {
    /// Reads the next files out of `wanted`, as many as make a portion; at least one when there is one, and none any
    /// more when the source was stopped.
    pub(super) fn read_portion(&self, wanted: &mut BTreeMap<FilePath, SeenFile>) -> Portion {
        let (mut portion, mut bytes) = (Vec::new(), 0);
        if wanted.is_empty() {
            return portion;
        }
        let place = self.place();
        while portion.len() < PORTION_FILES && bytes < PORTION_BYTES {
            if self.cancelled.load(Ordering::Relaxed) {
                wanted.clear();
            }
            let Some((path, seen)) = wanted.pop_first() else {
                break;
            };
            let reading = match &place {
                Place::Here(real_root) => self.read(real_root, &path),
                _ => Reading::Gone,
            };
            bytes += seen.identity.len;
            portion.push((path, seen, reading));
        }
        portion
    }

    /// Reads a file; `real_root` is where the folder really is.
    pub(super) fn read(&self, real_root: &Path, path: &FilePath) -> Reading {
        self.try_read(real_root, path)
            .unwrap_or_else(|error| match error.kind() {
                ErrorKind::PermissionDenied => Reading::Skipped(SkipReason::NoPermission),
                _ if is_absent(&error) => Reading::Gone,
                _ => Reading::Failed(error),
            })
    }

    fn try_read(&self, real_root: &Path, path: &FilePath) -> io::Result<Reading> {
        let full = path.at(&self.root);
        // Opening a device can have effects, so look before; opening a pipe must not wait, whatever was seen.
        if !fs::metadata(&full)?.is_file() {
            return Ok(Reading::Skipped(SkipReason::NotAFile));
        }
        let mut begun = SystemTime::now();
        let mut file = open(&full)?;
        let mut metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Reading::Skipped(SkipReason::NotAFile));
        }
        if !real_path(&file, &full)?.starts_with(real_root) {
            return Ok(Reading::Skipped(SkipReason::LeavesFolder));
        }
        for _ in 0..ATTEMPTS_MAX {
            let before = FileIdentity::of(&metadata);
            if before.len > self.file_bytes_max {
                return Ok(Reading::Skipped(SkipReason::TooLarge));
            }
            let mut bytes = Vec::with_capacity(before.len as usize + 1);
            // One byte more than there should be shows that it grew.
            (&file).take(before.len + 1).read_to_end(&mut bytes)?;
            let ended = SystemTime::now();
            metadata = file.metadata()?;
            if bytes.len() as u64 == before.len && FileIdentity::of(&metadata) == before {
                let (media_type, body) = media_type::describe(path.name(), bytes);
                return Ok(Reading::File(Box::new(Contents {
                    identity: before,
                    settled: before.is_settled(begun),
                    media_type,
                    body,
                })));
            }
            begun = ended;
            file.rewind()?;
        }
        Ok(Reading::Unsettled)
    }
}

/// Where the opened file is, free of links. The kernel knows best; elsewhere the name is resolved again.
fn real_path(file: &File, named: &Path) -> io::Result<PathBuf> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
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
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn folder(base: &Path) -> Folder {
        Folder {
            base: base.to_owned(),
            root: base.to_owned(),
            hidden: false,
            flat: false,
            file_bytes_max: 8,
            files_max: 10,
            cancelled: Arc::new(AtomicBool::new(false)),
        }
    }

    fn skipped(reading: &Reading) -> Option<SkipReason> {
        match reading {
            Reading::Skipped(reason) => Some(*reason),
            _ => None,
        }
    }

    #[test]
    fn reads_a_file_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let folder = folder(&root);
        let path = FilePath::root().join("a.txt");
        assert!(matches!(folder.read(&root, &path), Reading::Gone));
        fs::write(root.join("a.txt"), "12345678").unwrap();
        let Reading::File(read) = folder.read(&root, &path) else {
            panic!("not read")
        };
        assert_eq!(read.body.as_text(), Some("12345678"));
        assert!(!read.settled, "it was written just now");
        fs::write(root.join("a.txt"), "123456789").unwrap();
        assert_eq!(skipped(&folder.read(&root, &path)), Some(SkipReason::TooLarge));
    }

    /// What a race can do between the look and the read: the path names something else by then.
    #[cfg(unix)]
    #[test]
    fn refuses_what_a_path_was_exchanged_for() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (root, outside) = (base.join("in"), base.join("out"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(outside.join("secret"), root.join("file")).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("dir")).unwrap();
        let folder = folder(&root);
        for name in ["file", "dir/secret"] {
            let path = name
                .split('/')
                .fold(FilePath::root(), |path, name| path.join(name));
            assert_eq!(
                skipped(&folder.read(&root, &path)),
                Some(SkipReason::LeavesFolder),
                "{name}"
            );
        }
        fs::create_dir(root.join("sub")).unwrap();
        assert_eq!(
            skipped(&folder.read(&root, &FilePath::root().join("sub"))),
            Some(SkipReason::NotAFile)
        );
    }
}
