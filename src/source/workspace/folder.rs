//! The served folder on disk, scanned by metadata alone.
//!
//! A scan opens no file and follows no link to a folder, so it always ends and never leaves the folder. It
//! runs on blocking threads.

use super::file_index::{FileIndex, FolderScan, ScanScope, SeenFile};
use super::file_path::{FilePath, is_hidden};
use super::skip::SkipReason;
use crate::source::file::{FileIdentity, is_absent};
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A folder of files, and the rules for serving them.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    /// `DIR`, absolute.
    pub(super) base: PathBuf,
    /// The folder within `DIR`, such as `DIR/resources`.
    pub(super) root: PathBuf,
    /// Serves hidden names too.
    pub(super) hidden: bool,
    /// Ignores the folders in it.
    pub(super) flat: bool,
    /// Largest file in bytes.
    pub(super) file_bytes_max: u64,
    /// Most files.
    pub(super) files_max: usize,
    /// Set when the source stops, which ends a scan early.
    pub(super) cancelled: Arc<AtomicBool>,
}

/// The location of a folder on disk.
#[derive(Debug)]
pub(super) enum Location {
    /// Its path without links.
    Found(PathBuf),
    /// It does not exist.
    Absent,
    /// It is a link to somewhere outside `DIR`.
    Outside,
    /// It could not be looked at.
    Unreadable,
}

impl Folder {
    /// Finds the folder.
    pub(super) fn locate(&self) -> Location {
        match (fs::canonicalize(&self.root), fs::canonicalize(&self.base)) {
            (Ok(root), Ok(base)) if root.starts_with(&base) => Location::Found(root),
            (Ok(_), Ok(_)) => Location::Outside,
            (Err(error), _) | (_, Err(error)) if is_absent(&error) => Location::Absent,
            _ => Location::Unreadable,
        }
    }

    /// Scans the part in scope.
    pub(super) fn scan(&self, scope: ScanScope, file_index: &FileIndex) -> FolderScan {
        let mut walk = Walk {
            folder: self,
            file_index,
            real_root: PathBuf::new(),
            room: self.files_max.saturating_sub(file_index.len()),
            scan: FolderScan::new(scope.clone()),
        };
        match self.locate() {
            Location::Found(root) => {
                walk.real_root = root;
                walk.start(scope);
            }
            Location::Absent => {}
            Location::Outside => walk.skip(FilePath::root(), SkipReason::LeavesFolder),
            Location::Unreadable => walk.scan.unreadable.push(FilePath::root()),
        }
        walk.scan
    }

    /// Returns the folder `resources` of `base`, with small limits.
    #[cfg(test)]
    pub(super) fn for_test(base: &Path) -> Folder {
        Folder {
            base: base.to_owned(),
            root: base.join("resources"),
            hidden: false,
            flat: false,
            file_bytes_max: 8,
            files_max: 2,
            cancelled: Arc::default(),
        }
    }
}

/// A scan in progress.
struct Walk<'a> {
    folder: &'a Folder,
    file_index: &'a FileIndex,
    /// The path of the folder without links.
    real_root: PathBuf,
    /// Number of further files that may be served.
    room: usize,
    scan: FolderScan,
}

impl Walk<'_> {
    fn start(&mut self, scope: ScanScope) {
        let paths = match scope {
            ScanScope::All => BTreeSet::from([FilePath::root()]),
            ScanScope::Below(paths) => paths,
        };
        for path in paths {
            // A path through a link to a folder is not served, even if an event names it.
            let parent = path.parent().unwrap_or(FilePath::root());
            match fs::canonicalize(parent.at(&self.folder.root)) {
                Ok(real) if real == parent.at(&self.real_root) => self.visit(path),
                Err(error) if !is_absent(&error) => self.fail(path, &error),
                _ => {}
            }
        }
    }

    /// Visits an entry and everything below it.
    fn visit(&mut self, path: FilePath) {
        // A stack instead of recursion, since nothing limits the depth of a folder.
        let mut waiting = vec![path];
        while let Some(path) = waiting.pop() {
            if self.folder.cancelled.load(Ordering::Relaxed) {
                // An incomplete scan must not look as if the rest were gone.
                self.scan.unreadable.push(FilePath::root());
                return;
            }
            // The folder itself may be a link within `DIR`, as `locate` has checked.
            let metadata = if path.is_root() {
                fs::metadata(&self.folder.root)
            } else {
                fs::symlink_metadata(path.at(&self.folder.root))
            };
            match metadata {
                Ok(metadata) if metadata.is_dir() && self.folder.flat && !path.is_root() => {}
                Ok(metadata) if metadata.is_dir() => self.visit_folder(path, &mut waiting),
                Ok(metadata) if metadata.is_symlink() => self.visit_link(path),
                Ok(metadata) => self.visit_file(path, &metadata, None),
                Err(error) => self.fail(path, &error),
            }
        }
    }

    fn visit_folder(&mut self, folder: FilePath, waiting: &mut Vec<FilePath>) {
        let entries = match fs::read_dir(folder.at(&self.folder.root)) {
            Ok(entries) => entries,
            Err(error) => return self.fail(folder, &error),
        };
        let first = waiting.len();
        for entry in entries {
            let name = match entry {
                Ok(entry) => entry.file_name(),
                Err(error) => return self.fail(folder, &error),
            };
            match name.to_str() {
                Some(name) if !self.folder.hidden && is_hidden(name) => {}
                Some(name) => waiting.push(folder.join(name)),
                None => self.scan.not_utf8.push(Path::new(folder.as_str()).join(name)),
            }
        }
        // In the order of names (the last one is visited first), so that every scan finds the same files
        // beyond the limit.
        waiting[first..].sort_unstable_by(|a, b| b.cmp(a));
    }

    fn visit_link(&mut self, path: FilePath) {
        let real = match fs::canonicalize(path.at(&self.folder.root)) {
            Ok(real) => real,
            // The target exists, perhaps, but may not be read.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return self.fail(path, &error),
            Err(_) => return self.skip(path, SkipReason::DanglingLink),
        };
        let Some(target) = FilePath::below(&self.real_root, &real) else {
            return self.skip(path, SkipReason::LeavesFolder);
        };
        match fs::metadata(&real) {
            Ok(metadata) if metadata.is_dir() => self.skip(path, SkipReason::FolderLink),
            Ok(metadata) => self.visit_file(path, &metadata, Some(target)),
            Err(error) => self.fail(path, &error),
        }
    }

    fn visit_file(&mut self, path: FilePath, metadata: &Metadata, target: Option<FilePath>) {
        if !metadata.is_file() {
            return self.skip(path, SkipReason::NotAFile);
        }
        if metadata.len() > self.folder.file_bytes_max {
            return self.skip(path, SkipReason::TooLarge);
        }
        // A known file has its place, so that a new one never displaces it.
        if self.file_index.get(&path).is_none() && !self.scan.files.contains_key(&path) {
            if self.room == 0 {
                let (count, _) = self.scan.over_limit.get_or_insert((0, path));
                *count += 1;
                return;
            }
            self.room -= 1;
        }
        let identity = FileIdentity::of(metadata);
        self.scan.files.insert(path, SeenFile { identity, target });
    }

    fn skip(&mut self, path: FilePath, reason: SkipReason) {
        self.scan.skipped.insert(path, reason);
    }

    fn fail(&mut self, path: FilePath, error: &io::Error) {
        match error.kind() {
            // A file that may not be read may not be served either, nor anything below a folder.
            ErrorKind::PermissionDenied => self.skip(path, SkipReason::NoPermission),
            _ if is_absent(error) => {}
            _ => {
                tracing::debug!(path = path.as_str(), %error, "could not look at a file");
                self.scan.unreadable.push(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FilePath {
        text.split('/')
            .fold(FilePath::root(), |path, name| path.join(name))
    }

    fn seen(scan: &FolderScan) -> Vec<&str> {
        scan.files.keys().map(FilePath::as_str).collect()
    }

    /// Creates empty files in the folder.
    fn create(folder: &Folder, names: &[&str]) {
        for name in names {
            let path = folder.root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn path_through_a_link_is_not_scanned() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::for_test(dir.path());
        create(&folder, &["real/a"]);
        std::os::unix::fs::symlink("real", folder.root.join("link")).unwrap();
        for (name, found) in [("real/a", 1), ("link/a", 0)] {
            let scope = ScanScope::Below(BTreeSet::from([path(name)]));
            let scan = folder.scan(scope, &FileIndex::default());
            assert_eq!(scan.files.len(), found, "{name}");
        }
    }

    #[test]
    fn files_over_the_limit_are_the_last_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::for_test(dir.path());
        create(&folder, &["d", "a/y", "b", "a/x", "c"]);
        let scan = folder.scan(ScanScope::All, &FileIndex::default());
        assert_eq!(seen(&scan), ["a/x", "a/y"]);
        assert_eq!(scan.over_limit, Some((3, path("b"))));
    }

    #[test]
    fn flat_folder_has_only_its_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder {
            flat: true,
            ..Folder::for_test(dir.path())
        };
        create(&folder, &["a/b/c", "a/d", "e"]);
        assert_eq!(seen(&folder.scan(ScanScope::All, &FileIndex::default())), ["e"]);
    }

    #[test]
    fn cancelled_scan_leaves_the_state_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::for_test(dir.path());
        fs::create_dir_all(&folder.root).unwrap();
        folder.cancelled.store(true, Ordering::Relaxed);
        let scan = folder.scan(ScanScope::All, &FileIndex::default());
        assert_eq!(scan.unreadable, [FilePath::root()]);
    }
}
