//! The path of a file below the served folder.

use std::borrow::Borrow;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A path below the served folder: names in UTF-8, joined by `/`, without `.` and `..`. The empty path is the
/// folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FilePath(Arc<str>);

impl FilePath {
    /// Returns the path of the folder itself.
    pub(super) fn root() -> FilePath {
        FilePath(Arc::from(""))
    }

    /// Returns the part of `path` below `root`, up to the first name that is not UTF-8; or `None` if `path`
    /// is not below `root`.
    pub(super) fn below(root: &Path, path: &Path) -> Option<FilePath> {
        let mut found = FilePath::root();
        for part in path.strip_prefix(root).ok()?.components() {
            let Component::Normal(name) = part else {
                return None;
            };
            // No file below has a URI, but an event there may concern the folder above.
            let Some(name) = name.to_str() else { break };
            found = found.join(name);
        }
        Some(found)
    }

    /// Returns the path of the entry `name` in this folder.
    pub(super) fn join(&self, name: &str) -> FilePath {
        if self.is_root() {
            return FilePath(Arc::from(name));
        }
        FilePath(Arc::from(format!("{}/{name}", self.0)))
    }

    /// Returns the folder of this entry, or `None` for the served folder.
    pub(super) fn parent(&self) -> Option<FilePath> {
        if self.is_root() {
            return None;
        }
        match self.0.rsplit_once('/') {
            Some((parent, _)) => Some(FilePath(Arc::from(parent))),
            None => Some(FilePath::root()),
        }
    }

    /// Returns true for the served folder.
    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the last name.
    pub(super) fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the names, outermost first.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// Returns true if `other` is this path or below it.
    pub(super) fn covers(&self, other: &FilePath) -> bool {
        match other.0.strip_prefix(&*self.0) {
            Some(rest) => self.is_root() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }

    /// Returns true if any of the names is hidden.
    pub(super) fn is_hidden(&self) -> bool {
        self.names().any(is_hidden)
    }

    /// Returns the path on disk, with the served folder at `root`.
    pub(super) fn at(&self, root: &Path) -> PathBuf {
        let mut path = root.to_owned();
        path.extend(self.names());
        path
    }

    /// Returns the text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for FilePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Returns true if a name starts with a dot, or is one that editors give to files beside the one being
/// edited.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name.ends_with('~') || name.ends_with(".swp")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FilePath {
        FilePath::below(Path::new("/r"), &Path::new("/r").join(text)).unwrap()
    }

    #[test]
    fn path_is_relative_to_the_folder() {
        assert_eq!(path("a/b.md").as_str(), "a/b.md");
        assert!(path("").is_root());
        assert_eq!(FilePath::below(Path::new("/r"), Path::new("/other/a")), None);
        assert_eq!(FilePath::below(Path::new("/r"), Path::new("/r/../a")), None);
        assert_eq!(path("a/b").at(Path::new("/x")), Path::new("/x/a/b"));
        assert_eq!(path("a/b").name(), "b");
        assert_eq!(path("a/b").parent(), Some(path("a")));
        assert_eq!(path("a").parent(), Some(FilePath::root()));
        assert_eq!(FilePath::root().parent(), None);
    }

    #[cfg(unix)]
    #[test]
    fn path_ends_before_a_name_not_in_utf8() {
        use std::os::unix::ffi::OsStrExt;
        let odd = std::ffi::OsStr::from_bytes(b"\xff");
        let below = FilePath::below(Path::new("/r"), &Path::new("/r/a").join(odd).join("c"));
        assert_eq!(below, Some(path("a")));
    }

    #[test]
    fn path_covers_itself_and_paths_below() {
        assert!(path("a").covers(&path("a")));
        assert!(path("a").covers(&path("a/b")));
        assert!(!path("a").covers(&path("ab")));
        assert!(!path("a/b").covers(&path("a")));
        assert!(FilePath::root().covers(&path("a/b")));
    }

    #[test]
    fn path_with_a_hidden_name_is_hidden() {
        for hidden in [".git/config", "a/.env", "a.md~", ".a.swp", "b.swp"] {
            assert!(path(hidden).is_hidden(), "{hidden}");
        }
        for shown in ["a.md", "a/b.c", "swp", "~a"] {
            assert!(!path(shown).is_hidden(), "{shown}");
        }
    }
}
