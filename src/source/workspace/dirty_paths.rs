//! What is to be looked at next.
//!
//! Pure. Owns: the marks that came since the last look, so many of them one by one and then all at once. Filled and
//! emptied by the task; never decides when to look (the debounce does).

use super::file_index::Scope;
use super::path::FilePath;
use super::watch::Mark;
use std::collections::BTreeSet;

/// DirtyPaths paths kept one by one. More of them are "everything".
pub(super) const MARKS_MAX: usize = 1_024;

/// The marks.
#[derive(Debug, Default)]
pub(super) struct DirtyPaths {
    paths: BTreeSet<FilePath>,
    all: bool,
    definitions: bool,
    register: bool,
}

impl DirtyPaths {
    /// Adds a mark.
    pub(super) fn add(&mut self, mark: Mark) {
        match mark {
            Mark::Resource(path) if path.is_root() || self.paths.len() >= MARKS_MAX => self.add_all(),
            Mark::Resource(_) if self.all => {}
            Mark::Resource(path) => drop(self.paths.insert(path)),
            Mark::DefinitionFolders => self.definitions = true,
            Mark::Register => self.register = true,
        }
    }

    /// Marks everything.
    pub(super) fn add_all(&mut self) {
        self.all = true;
        self.paths.clear();
    }

    /// Takes the marks of resources.
    pub(super) fn take_scope(&mut self) -> Scope {
        let paths = std::mem::take(&mut self.paths);
        if std::mem::take(&mut self.all) {
            Scope::All
        } else {
            Scope::Below(paths)
        }
    }

    /// Takes the mark of prompts and tools.
    pub(super) fn take_definitions(&mut self) -> bool {
        std::mem::take(&mut self.definitions)
    }

    /// Takes the mark of `register`.
    pub(super) fn take_register(&mut self) -> bool {
        std::mem::take(&mut self.register)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> Mark {
        Mark::Resource(FilePath::root().join(name))
    }

    #[test]
    fn marks_are_taken_once_and_apart() {
        let mut dirty = DirtyPaths::default();
        dirty.add(resource("a"));
        dirty.add(Mark::DefinitionFolders);
        assert_eq!(
            dirty.take_scope(),
            Scope::Below(BTreeSet::from([FilePath::root().join("a")]))
        );
        assert_eq!(dirty.take_scope(), Scope::Below(BTreeSet::new()));
        assert!(dirty.take_definitions() && !dirty.take_definitions() && !dirty.take_register());
    }

    #[test]
    fn too_many_marks_and_the_folder_itself_are_everything() {
        let mut dirty = DirtyPaths::default();
        for n in 0..=MARKS_MAX {
            dirty.add(resource(&n.to_string()));
        }
        dirty.add(resource("one more"));
        assert_eq!(dirty.take_scope(), Scope::All);
        assert_eq!(dirty.take_scope(), Scope::Below(BTreeSet::new()));
        dirty.add(Mark::Resource(FilePath::root()));
        assert_eq!(dirty.take_scope(), Scope::All);
    }
}
