//! The blocking half of a collection: watches its file, reads it, and builds its views.

use super::document::{CollectionSpec, DocumentError, Views};
use crate::source::file::{FileIdentity, StableRead, is_absent, open_regular, read_stable};
use crate::source::watch::{DirtySet, FileWatcher, is_not_found};
use notify::RecursiveMode;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Attempts to watch the nearest folder when it is replaced meanwhile.
const WATCH_ATTEMPTS_MAX: usize = 8;

/// A folder, with its device and inode to tell it from another one of the same path.
type WatchedFolder = (PathBuf, (u64, u64));

/// The result of a scan.
#[derive(Debug)]
pub(super) enum FileScan {
    /// The file is in the state that is already known.
    Unchanged,
    /// The file has valid content. The identity is `None` if it cannot tell a later state from this one.
    Document(Views, Option<FileIdentity>),
    /// The file has no valid content.
    Invalid(DocumentError),
    /// The file changed while it was read.
    Changing,
}

/// Scans the file of one collection.
pub(super) struct FileScanner {
    path: PathBuf,
    bytes_max: u64,
    spec: Arc<CollectionSpec>,
    watcher: FileWatcher<()>,
    watched: Option<WatchedFolder>,
    /// True if the file is a link. Then any event in its folder may concern the file that it leads to.
    is_link: Arc<AtomicBool>,
}

impl FileScanner {
    /// Returns a scanner whose watcher marks `dirty` when the file may have changed.
    pub(super) fn new(
        path: PathBuf,
        bytes_max: u64,
        spec: Arc<CollectionSpec>,
        dirty: Arc<DirtySet<()>>,
        watch: bool,
    ) -> FileScanner {
        let is_link = Arc::new(AtomicBool::new(false));
        let file = path.clone();
        let linked = is_link.clone();
        let watcher = FileWatcher::new(dirty, watch, move |changed: &Path| {
            concerns(&file, linked.load(Ordering::Relaxed), changed).then_some(())
        });
        FileScanner {
            path,
            bytes_max,
            spec,
            watcher,
            watched: None,
            is_link,
        }
    }

    /// Reads the file unless it is in the state `known`, and builds its views.
    pub(super) fn scan(&mut self, known: Option<FileIdentity>) -> FileScan {
        // Watched before it is read, so that no change falls between the two.
        self.watch();
        let (bytes, identity) = match self.read(known) {
            Ok(Some(StableRead::Content {
                bytes,
                identity,
                settled,
            })) => (bytes, settled.then_some(identity)),
            Ok(Some(StableRead::TooLarge { len })) => {
                let max = self.bytes_max;
                return FileScan::Invalid(DocumentError::TooLarge { len, max });
            }
            Ok(Some(StableRead::Changing)) => return FileScan::Changing,
            Ok(None) => return FileScan::Unchanged,
            // A missing file is an empty list.
            Err(DocumentError::Unreadable(error)) if is_absent(&error) => (Vec::new(), None),
            Err(error) => return FileScan::Invalid(error),
        };
        match self.spec.build(&bytes) {
            Ok(views) => FileScan::Document(views, identity),
            Err(error) => FileScan::Invalid(error),
        }
    }

    /// Reads the file; returns `None` if it is in the state `known`.
    fn read(&self, known: Option<FileIdentity>) -> Result<Option<StableRead>, DocumentError> {
        // Most rescans find nothing new, which takes one system call to see.
        if known == Some(FileIdentity::of(&fs::metadata(&self.path)?)) {
            return Ok(None);
        }
        let file = open_regular(&self.path)?.ok_or(DocumentError::NotAFile)?;
        Ok(Some(read_stable(&file, self.bytes_max)?))
    }

    /// Watches the file's folder, or the nearest one above that exists, so that both may come, go and come
    /// back.
    fn watch(&mut self) {
        let is_link = match fs::symlink_metadata(&self.path) {
            Ok(metadata) => metadata.is_symlink(),
            Err(_absent) => false,
        };
        self.is_link.store(is_link, Ordering::Relaxed);
        match self.watch_nearest_folder() {
            Ok(()) => self.watcher.report_success(),
            Err(error) => self.watcher.report_failure(&self.path, &error),
        }
    }

    fn watch_nearest_folder(&mut self) -> notify::Result<()> {
        for _ in 0..WATCH_ATTEMPTS_MAX {
            let nearest = nearest_folder(&self.path);
            if nearest == self.watched {
                return Ok(());
            }
            // A new watcher, since the old one may hold a watch of the same path on a folder that was
            // removed.
            self.watcher.reset();
            self.watched = None;
            let Some((folder, id)) = nearest else {
                return Err(notify::Error::path_not_found());
            };
            // The loop then checks that the folder is still the nearest one.
            match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
                Ok(()) => self.watched = Some((folder, id)),
            }
        }
        self.watcher.mark_all();
        Ok(())
    }
}

/// Returns true if a change at `changed` may be a change of `file`.
fn concerns(file: &Path, is_link: bool, changed: &Path) -> bool {
    is_link || file.starts_with(changed)
}

fn nearest_folder(file: &Path) -> Option<WatchedFolder> {
    for folder in file.ancestors().skip(1) {
        if let Ok(metadata) = fs::metadata(folder)
            && metadata.is_dir()
        {
            return Some((folder.to_owned(), FileIdentity::of(&metadata).file));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn scanner(path: PathBuf) -> FileScanner {
        FileScanner::new(
            path,
            8,
            Arc::new(CollectionSpec::for_test()),
            DirtySet::new(),
            false,
        )
    }

    #[test]
    fn scan_without_a_file_is_an_empty_list() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a.json", "absent/a.json"] {
            let scan = scanner(dir.path().join(path)).scan(None);
            assert!(matches!(scan, FileScan::Document(_, None)), "{path}: {scan:?}");
        }
    }

    #[test]
    fn scan_of_an_invalid_file_gives_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(&path, "[]       ").unwrap();
        let scan = scanner(path).scan(None);
        assert!(
            matches!(
                scan,
                FileScan::Invalid(DocumentError::TooLarge { len: 9, max: 8 })
            ),
            "{scan:?}"
        );
        let scan = scanner(dir.path().to_owned()).scan(None);
        assert!(
            matches!(scan, FileScan::Invalid(DocumentError::NotAFile)),
            "{scan:?}"
        );
    }

    #[test]
    fn scan_of_a_known_state_reads_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(&path, "[]").unwrap();
        let known = Some(FileIdentity::of(&fs::metadata(&path).unwrap()));
        let mut scanner = scanner(path.clone());
        assert!(matches!(scanner.scan(known), FileScan::Unchanged));
        // The same size at another time is another state.
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60))
            .unwrap();
        assert!(matches!(scanner.scan(known), FileScan::Document(..)));
    }

    #[test]
    fn event_concerns_the_file_and_its_folders() {
        let file = Path::new("/d/a.json");
        assert!(concerns(file, false, Path::new("/d/a.json")));
        assert!(concerns(file, false, Path::new("/d")));
        assert!(!concerns(file, false, Path::new("/d/a.json.tmp")));
        assert!(concerns(file, true, Path::new("/d/..data")));
    }

    #[test]
    fn nearest_folder_is_the_one_that_exists() {
        let dir = tempfile::tempdir().unwrap();
        let nearest = |path: &str| nearest_folder(&dir.path().join(path)).unwrap().0;
        assert_eq!(nearest("a.json"), dir.path());
        assert_eq!(nearest("x/y/a.json"), dir.path());
        fs::create_dir(dir.path().join("x")).unwrap();
        assert_eq!(nearest("x/y/a.json"), dir.path().join("x"));
    }
}
