//! The served folder on disk: looked over by metadata alone.
//!
//! Owns: the walk, and the rules which entries are files to serve. Never opens a file (`reading` does) and never
//! follows a link to a folder, so it cannot loop. Runs on blocking threads; the task asks, the file_index decides.

use super::file_index::{FileIndex, Scope, SeenFile, Survey};
use super::path::{FilePath, is_hidden};
use super::skip::SkipReason;
use crate::source::file_identity::FileIdentity;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, FileType, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the folder is and what of it is served.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    /// `DIR`, absolute.
    pub(super) base: PathBuf,
    /// `DIR/resources`.
    pub(super) root: PathBuf,
    /// Whether hidden names are served.
    pub(super) hidden: bool,
    /// Whether the folders in it are passed over.
    pub(super) flat: bool,
    /// Largest file in bytes.
    pub(super) file_bytes_max: u64,
    /// Files in all.
    pub(super) files_max: usize,
    /// Whether the source was stopped.
    pub(super) cancelled: Arc<AtomicBool>,
}

/// Where the folder really is.
#[derive(Debug)]
pub(super) enum Place {
    /// Here, free of links.
    Here(PathBuf),
    /// Nowhere yet.
    Absent,
    /// It is a link to somewhere outside `DIR`.
    Outside,
    /// It could not be looked at.
    Unseen,
}

/// A look, and what did not become part of it.
pub(super) struct Look {
    /// What was seen.
    pub(super) survey: Survey,
    /// Names that are not UTF-8, below the folder.
    pub(super) not_utf8: Vec<PathBuf>,
    /// Files beyond `files_max`, and the first of them.
    pub(super) beyond: Option<(usize, FilePath)>,
}

impl Folder {
    /// Finds the folder.
    pub(super) fn place(&self) -> Place {
        match (fs::canonicalize(&self.root), fs::canonicalize(&self.base)) {
            (Ok(root), Ok(base)) if root.starts_with(&base) => Place::Here(root),
            (Ok(_), Ok(_)) => Place::Outside,
            (Err(error), _) | (_, Err(error)) if is_absent(&error) => Place::Absent,
            _ => Place::Unseen,
        }
    }

    /// Looks at what is in scope.
    pub(super) fn look(&self, scope: Scope, file_index: &FileIndex) -> Look {
        let mut walk = Walk {
            folder: self,
            file_index,
            real_root: PathBuf::new(),
            room: self.files_max.saturating_sub(file_index.len()),
            look: Look {
                survey: Survey {
                    scope: scope.clone(),
                    files: BTreeMap::new(),
                    skipped: BTreeMap::new(),
                    unseen: Vec::new(),
                },
                not_utf8: Vec::new(),
                beyond: None,
            },
        };
        match self.place() {
            Place::Here(root) => {
                walk.real_root = root;
                walk.start(scope);
            }
            Place::Absent => {}
            Place::Outside => walk.skip(FilePath::root(), SkipReason::LeavesFolder),
            Place::Unseen => walk.look.survey.unseen.push(FilePath::root()),
        }
        walk.look
    }
}

/// Whether the error says that there is nothing.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

struct Walk<'a> {
    folder: &'a Folder,
    file_index: &'a FileIndex,
    real_root: PathBuf,
    room: usize,
    look: Look,
}

impl Walk<'_> {
    fn start(&mut self, scope: Scope) {
        let paths = match scope {
            Scope::All => BTreeSet::from([FilePath::root()]),
            Scope::Below(paths) => paths,
        };
        for path in paths {
            // A link on the way would lead past the rule that only links to files are followed.
            let parent = path.parent().unwrap_or(FilePath::root());
            match fs::canonicalize(parent.at(&self.folder.root)) {
                Ok(real) if real == parent.at(&self.real_root) => self.visit(path),
                Err(error) if !is_absent(&error) => self.fail(path, &error),
                _ => {}
            }
        }
    }

    /// Looks at an entry and all that is below it.
    fn visit(&mut self, path: FilePath) {
        let mut waiting = vec![path];
        while let Some(path) = waiting.pop() {
            if self.folder.cancelled.load(Ordering::Relaxed) {
                self.look.survey.unseen.push(FilePath::root());
                return;
            }
            // The folder itself may be a link within `DIR`; `place` has judged it.
            let metadata = if path.is_root() {
                fs::metadata(&self.folder.root)
            } else {
                fs::symlink_metadata(path.at(&self.folder.root))
            };
            match metadata {
                Ok(metadata) if metadata.is_dir() && self.folder.flat && !path.is_root() => {}
                Ok(metadata) if metadata.is_dir() => self.list(path, &mut waiting),
                Ok(metadata) => self.entry(path, &metadata),
                Err(error) => self.fail(path, &error),
            }
        }
    }

    fn list(&mut self, folder: FilePath, waiting: &mut Vec<FilePath>) {
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
                None => self.look.not_utf8.push(Path::new(folder.as_str()).join(name)),
            }
        }
        // Taken from the end, so in the order of names: which files are beyond the limit must not change by itself.
        waiting[first..].sort_unstable_by(|a, b| b.cmp(a));
    }

    fn entry(&mut self, path: FilePath, metadata: &Metadata) {
        if metadata.is_symlink() {
            self.link(path);
        } else {
            self.file(path, metadata, None);
        }
    }

    fn link(&mut self, path: FilePath) {
        let real = match fs::canonicalize(path.at(&self.folder.root)) {
            Ok(real) => real,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return self.fail(path, &error),
            Err(_) => return self.skip(path, SkipReason::DanglingLink),
        };
        let Some(target) = FilePath::below(&self.real_root, &real) else {
            return self.skip(path, SkipReason::LeavesFolder);
        };
        match fs::metadata(&real) {
            Ok(metadata) if metadata.is_dir() => self.skip(path, SkipReason::FolderLink),
            Ok(metadata) => self.file(path, &metadata, Some(target)),
            Err(error) => self.fail(path, &error),
        }
    }

    fn file(&mut self, path: FilePath, metadata: &Metadata, target: Option<FilePath>) {
        let kind: FileType = metadata.file_type();
        if !kind.is_file() {
            return self.skip(path, SkipReason::NotAFile);
        }
        if metadata.len() > self.folder.file_bytes_max {
            return self.skip(path, SkipReason::TooLarge);
        }
        if self.file_index.get(&path).is_none() && !self.look.survey.files.contains_key(&path) {
            if self.room == 0 {
                let (count, _) = self.look.beyond.get_or_insert((0, path));
                *count += 1;
                return;
            }
            self.room -= 1;
        }
        let identity = FileIdentity::of(metadata);
        self.look.survey.files.insert(path, SeenFile { identity, target });
    }

    fn skip(&mut self, path: FilePath, reason: SkipReason) {
        self.look.survey.skipped.insert(path, reason);
    }

    fn fail(&mut self, path: FilePath, error: &io::Error) {
        match error.kind() {
            // What may not be read may not be served either; what is below is then missing.
            ErrorKind::PermissionDenied => self.skip(path, SkipReason::NoPermission),
            _ if is_absent(error) => {}
            _ => {
                tracing::debug!(path = path.as_str(), %error, "could not look at a file");
                self.look.survey.unseen.push(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(base: &Path) -> Folder {
        Folder {
            base: base.to_owned(),
            root: base.join("resources"),
            hidden: false,
            flat: false,
            file_bytes_max: 8,
            files_max: 2,
            cancelled: Arc::new(AtomicBool::new(false)),
        }
    }

    fn path(text: &str) -> FilePath {
        text.split('/')
            .fold(FilePath::root(), |path, name| path.join(name))
    }

    fn seen(look: &Look) -> Vec<&str> {
        look.survey.files.keys().map(FilePath::as_str).collect()
    }

    #[cfg(unix)]
    #[test]
    fn a_marked_path_through_a_link_is_not_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        fs::create_dir_all(folder.root.join("real")).unwrap();
        fs::write(folder.root.join("real/a"), "").unwrap();
        std::os::unix::fs::symlink("real", folder.root.join("link")).unwrap();
        let scope = |text| Scope::Below(BTreeSet::from([path(text)]));
        let look = |text| folder.look(scope(text), &FileIndex::default());
        assert_eq!(seen(&look("real/a")), ["real/a"]);
        assert!(seen(&look("link/a")).is_empty());
    }

    #[test]
    fn which_files_are_beyond_the_limit_follows_from_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        fs::create_dir_all(folder.root.join("a")).unwrap();
        for name in ["d", "a/y", "b", "a/x", "c"] {
            fs::write(folder.root.join(name), "").unwrap();
        }
        let look = folder.look(Scope::All, &FileIndex::default());
        assert_eq!(seen(&look), ["a/x", "a/y"]);
        assert_eq!(look.beyond, Some((3, path("b"))));
    }

    #[test]
    fn a_flat_folder_is_its_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder {
            flat: true,
            ..folder(dir.path())
        };
        fs::create_dir_all(folder.root.join("a/b")).unwrap();
        for name in ["a/b/c", "a/d", "e"] {
            fs::write(folder.root.join(name), "").unwrap();
        }
        assert_eq!(seen(&folder.look(Scope::All, &FileIndex::default())), ["e"]);
    }

    #[test]
    fn a_cancelled_look_knows_nothing_rather_than_that_nothing_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        fs::create_dir_all(&folder.root).unwrap();
        folder.cancelled.store(true, Ordering::Relaxed);
        let look = folder.look(Scope::All, &FileIndex::default());
        assert_eq!(look.survey.unseen, [FilePath::root()]);
    }
}
