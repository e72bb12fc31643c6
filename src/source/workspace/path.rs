//! The path of a file below the served folder, as text.
//!
//! Owns: [`FilePath`], the key of everything the source keeps, and which names count as hidden. Never touches the
//! file system. Made by the walk from directory entries and by the watcher from events.

use std::borrow::Borrow;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A path below the served folder: names in UTF-8 with `/` between them, neither `.` nor `..` among them.
/// The empty one is the folder itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FilePath(Arc<str>);

impl FilePath {
    /// The folder itself.
    pub(super) fn root() -> FilePath {
        FilePath(Arc::from(""))
    }

    /// What `path` is below `root`, cut before the first name that is not UTF-8; none when it is not below.
    pub(super) fn below(root: &Path, path: &Path) -> Option<FilePath> {
        let mut found = FilePath::root();
        for part in path.strip_prefix(root).ok()?.components() {
            let Component::Normal(name) = part else {
                return None;
            };
            let Some(name) = name.to_str() else { break };
            found = found.join(name);
        }
        Some(found)
    }

    /// The entry `name` of this folder.
    pub(super) fn join(&self, name: &str) -> FilePath {
        if self.is_root() {
            return FilePath(Arc::from(name));
        }
        FilePath(Arc::from(format!("{}/{name}", self.0)))
    }

    /// The folder it is in; none for the served folder itself.
    pub(super) fn parent(&self) -> Option<FilePath> {
        if self.is_root() {
            return None;
        }
        let parent = self.0.rsplit_once('/').map_or("", |(parent, _)| parent);
        Some(FilePath(Arc::from(parent)))
    }

    /// Whether it is the served folder itself.
    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Its last name.
    pub(super) fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Its names, from the served folder down.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// Whether `other` is this path or below it.
    pub(super) fn covers(&self, other: &FilePath) -> bool {
        let rest = other.0.strip_prefix(&*self.0);
        rest.is_some_and(|rest| self.is_root() || rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether one of its names is hidden.
    pub(super) fn is_hidden(&self) -> bool {
        self.names().any(is_hidden)
    }

    /// Where it is when the served folder is at `root`.
    pub(super) fn at(&self, root: &Path) -> PathBuf {
        let mut path = root.to_owned();
        path.extend(self.names());
        path
    }

    /// Its text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for FilePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Whether a name is hidden: it starts with a dot, or is what editors leave beside the file being edited.
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
    fn is_what_lies_below_the_folder() {
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
    fn stops_before_a_name_that_is_not_utf8() {
        use std::os::unix::ffi::OsStrExt;
        let odd = std::ffi::OsStr::from_bytes(b"\xff");
        let below = FilePath::below(Path::new("/r"), &Path::new("/r/a").join(odd).join("c"));
        assert_eq!(below, Some(path("a")));
    }

    #[test]
    fn covers_itself_and_what_is_below_but_no_namesake() {
        assert!(path("a").covers(&path("a")));
        assert!(path("a").covers(&path("a/b")));
        assert!(!path("a").covers(&path("ab")));
        assert!(!path("a/b").covers(&path("a")));
        assert!(FilePath::root().covers(&path("a/b")));
    }

    #[test]
    fn hidden_is_any_dot_name_and_what_editors_leave() {
        for hidden in [".git/config", "a/.env", "a.md~", ".a.swp", "b.swp"] {
            assert!(path(hidden).is_hidden(), "{hidden}");
        }
        for shown in ["a.md", "a/b.c", "swp", "~a"] {
            assert!(!path(shown).is_hidden(), "{shown}");
        }
    }
}
