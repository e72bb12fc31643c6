//! What is to be looked at next.
//!
//! Pure. Owns: the marks that came since the last look, so many of them one by one and then all at once. Filled and
//! emptied by the task; never decides when to look (the debounce does).

use super::inventory::Scope;
use super::path::FilePath;
use super::watch::Mark;
use std::collections::BTreeSet;

/// Marked paths kept one by one. More of them are "everything".
pub(super) const MARKS_MAX: usize = 1_024;

/// The marks.
#[derive(Debug, Default)]
pub(super) struct Marked {
    paths: BTreeSet<FilePath>,
    all: bool,
    shelf: bool,
    register: bool,
}

impl Marked {
    /// Adds a mark.
    pub(super) fn add(&mut self, mark: Mark) {
        match mark {
            Mark::Resource(path) if path.is_root() || self.paths.len() >= MARKS_MAX => self.add_all(),
            Mark::Resource(_) if self.all => {}
            Mark::Resource(path) => drop(self.paths.insert(path)),
            Mark::Shelf => self.shelf = true,
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
    pub(super) fn take_shelf(&mut self) -> bool {
        std::mem::take(&mut self.shelf)
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
        let mut marked = Marked::default();
        marked.add(resource("a"));
        marked.add(Mark::Shelf);
        assert_eq!(
            marked.take_scope(),
            Scope::Below(BTreeSet::from([FilePath::root().join("a")]))
        );
        assert_eq!(marked.take_scope(), Scope::Below(BTreeSet::new()));
        assert!(marked.take_shelf() && !marked.take_shelf() && !marked.take_register());
    }

    #[test]
    fn too_many_marks_and_the_folder_itself_are_everything() {
        let mut marked = Marked::default();
        for n in 0..=MARKS_MAX {
            marked.add(resource(&n.to_string()));
        }
        marked.add(resource("one more"));
        assert_eq!(marked.take_scope(), Scope::All);
        assert_eq!(marked.take_scope(), Scope::Below(BTreeSet::new()));
        marked.add(Mark::Resource(FilePath::root()));
        assert_eq!(marked.take_scope(), Scope::All);
    }
}
