//! What is known of the folder, and what a new look at it changes.
//!
//! Owns: the known files, the doubts about those that were missing, and the pure decision "known + seen → what to
//! read and what to remove". Never touches files or the bus; the walk sees, the task carries out.
//!
//! A file is not gone because one look missed it: writers that delete and create again leave a gap. It is gone when
//! it is missing after a quiet time, or from two looks in a row.

use super::path::FilePath;
use super::skip::SkipReason;
use crate::source::file_identity::FileIdentity;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};

/// What was last read of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownFile {
    /// Its state when it was read.
    pub(super) identity: FileIdentity,
    /// Whether that state was old enough to be trusted.
    pub(super) settled: bool,
    /// Whether the bus has it from here; else it could not be read or was refused.
    pub(super) served: bool,
    /// The file it links to, when it is a link.
    pub(super) target: Option<FilePath>,
}

/// A file to read, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenFile {
    /// Its state.
    pub(super) identity: FileIdentity,
    /// The file it links to, when it is a link.
    pub(super) target: Option<FilePath>,
}

/// Where a look goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// The whole folder.
    All,
    /// These files, and what is below these folders.
    Below(BTreeSet<FilePath>),
}

impl Scope {
    /// Whether `path` is looked at.
    pub(super) fn covers(&self, path: &FilePath) -> bool {
        match self {
            Scope::All => true,
            Scope::Below(paths) => paths.iter().any(|dirty| dirty.covers(path)),
        }
    }
}

/// What one look saw.
#[derive(Debug)]
pub(super) struct Survey {
    /// Where it went.
    pub(super) scope: Scope,
    /// The files to serve.
    pub(super) files: BTreeMap<FilePath, SeenFile>,
    /// What cannot be served, and why.
    pub(super) skipped: BTreeMap<FilePath, SkipReason>,
    /// What could not be looked at; nothing is known of it and below it.
    pub(super) unseen: Vec<FilePath>,
}

/// How far to trust a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trust {
    /// Nothing happened for the quiet time, so what is missing is gone.
    pub(super) quiet: bool,
    /// Read every file, whatever its metadata say.
    pub(super) thorough: bool,
}

/// What to do after a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Files to read, and to serve as they are then.
    pub(super) read: BTreeMap<FilePath, SeenFile>,
    /// Files to forget, and to remove from the bus if served.
    pub(super) remove: BTreeSet<FilePath>,
    /// Files that were missing, to be looked at again.
    pub(super) doubt: BTreeSet<FilePath>,
}

/// The known files.
#[derive(Debug, Default)]
pub(super) struct FileIndex {
    files: BTreeMap<FilePath, KnownFile>,
    doubted: BTreeSet<FilePath>,
    served: usize,
}

impl FileIndex {
    /// Decides what follows from a look, and keeps the doubts it leaves.
    pub(super) fn plan(&mut self, survey: &Survey, trust: Trust) -> Plan {
        let mut plan = Plan::default();
        for (path, seen) in &survey.files {
            if trust.thorough || self.files.get(path).is_none_or(|known| is_other(known, seen)) {
                plan.read.insert(path.clone(), seen.clone());
            }
        }
        for path in self.in_scope(&survey.scope) {
            let unseen = || survey.unseen.iter().any(|folder| folder.covers(path));
            if survey.files.contains_key(path) {
                continue;
            }
            if survey.skipped.contains_key(path) {
                plan.remove.insert(path.clone());
            } else if unseen() {
                continue;
            } else if trust.quiet || self.doubted.contains(path) {
                plan.remove.insert(path.clone());
            } else {
                plan.doubt.insert(path.clone());
            }
        }
        self.doubted.retain(|path| !survey.scope.covers(path));
        self.doubted.extend(plan.doubt.iter().cloned());
        plan
    }

    fn in_scope<'a>(&'a self, scope: &'a Scope) -> Box<dyn Iterator<Item = &'a FilePath> + 'a> {
        match scope {
            Scope::All => Box::new(self.files.keys()),
            Scope::Below(paths) => Box::new(paths.iter().flat_map(|path| self.below(path))),
        }
    }

    /// The known files at and below `path`.
    fn below<'a>(&'a self, path: &FilePath) -> impl Iterator<Item = &'a FilePath> + use<'a> {
        let exact = self.files.get_key_value(path).map(|(path, _)| path);
        // Texts that start with `path/` stand together: `0` follows `/`.
        let (from, to) = (format!("{}/", path.as_str()), format!("{}0", path.as_str()));
        let below = self
            .files
            .range::<str, _>((Included(from.as_str()), Excluded(to.as_str())));
        exact.into_iter().chain(below.map(|(path, _)| path))
    }

    /// The known links to the files at and below one of `paths`.
    pub(super) fn links_to(&self, paths: &BTreeSet<FilePath>) -> Vec<FilePath> {
        let links = self.files.iter().filter(|(_, known)| {
            let target = known.target.as_ref();
            target.is_some_and(|target| paths.iter().any(|path| path.covers(target)))
        });
        links.map(|(path, _)| path.clone()).collect()
    }

    /// What is known of a file.
    pub(super) fn get(&self, path: &FilePath) -> Option<&KnownFile> {
        self.files.get(path)
    }

    /// Keeps what was read of a file.
    pub(super) fn keep(&mut self, path: FilePath, known: KnownFile) {
        self.served += usize::from(known.served);
        let before = self.files.insert(path, known);
        self.served -= usize::from(before.is_some_and(|known| known.served));
    }

    /// Forgets a file; answers whether it was served.
    pub(super) fn forget(&mut self, path: &FilePath) -> bool {
        self.doubted.remove(path);
        let served = self.files.remove(path).is_some_and(|known| known.served);
        self.served -= usize::from(served);
        served
    }

    /// Doubts a file that vanished while it was read.
    pub(super) fn doubt(&mut self, path: FilePath) {
        self.doubted.insert(path);
    }

    /// The known files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &FilePath> {
        self.files.keys()
    }

    /// KnownFile files.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Served files.
    pub(super) fn served(&self) -> usize {
        self.served
    }
}

fn is_other(known: &KnownFile, seen: &SeenFile) -> bool {
    !known.settled || known.identity != seen.identity || known.target != seen.target
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, btree_set, vec};
    use proptest::prelude::*;

    const QUIET: Trust = Trust {
        quiet: true,
        thorough: false,
    };
    const HASTY: Trust = Trust {
        quiet: false,
        thorough: false,
    };

    fn path(text: &str) -> FilePath {
        text.split('/')
            .fold(FilePath::root(), |path, name| path.join(name))
    }

    fn seen(state: u64) -> SeenFile {
        let identity = FileIdentity {
            modified: 0,
            changed: 0,
            len: state,
            file: (0, 0),
        };
        SeenFile {
            identity,
            target: None,
        }
    }

    fn known(state: u64) -> KnownFile {
        KnownFile {
            identity: seen(state).identity,
            settled: true,
            served: true,
            target: None,
        }
    }

    fn file_index(files: &[(&str, u64)]) -> FileIndex {
        let mut file_index = FileIndex::default();
        for (name, state) in files {
            file_index.keep(path(name), known(*state));
        }
        file_index
    }

    fn survey(scope: Scope, files: &[(&str, u64)]) -> Survey {
        Survey {
            scope,
            files: files
                .iter()
                .map(|(name, state)| (path(name), seen(*state)))
                .collect(),
            skipped: BTreeMap::new(),
            unseen: Vec::new(),
        }
    }

    fn below(paths: &[&str]) -> Scope {
        Scope::Below(paths.iter().map(|text| path(text)).collect())
    }

    fn names(paths: &BTreeSet<FilePath>) -> Vec<&str> {
        paths.iter().map(FilePath::as_str).collect()
    }

    #[test]
    fn reads_what_is_new_or_another_and_nothing_else() {
        let mut file_index = file_index(&[("same", 1), ("other", 1)]);
        let survey = survey(Scope::All, &[("same", 1), ("other", 2), ("new", 1)]);
        let plan = file_index.plan(&survey, QUIET);
        let read: BTreeSet<_> = plan.read.into_keys().collect();
        assert_eq!(names(&read), ["new", "other"]);
        assert!(plan.remove.is_empty());
    }

    #[test]
    fn a_fresh_state_is_read_again_and_a_thorough_look_reads_all() {
        let mut file_index = file_index(&[("a", 1)]);
        let survey = survey(Scope::All, &[("a", 1)]);
        let thorough = Trust {
            thorough: true,
            ..HASTY
        };
        assert_eq!(file_index.plan(&survey, thorough).read.len(), 1);
        assert_eq!(file_index.plan(&survey, HASTY).read.len(), 0);
        let unsettled = KnownFile {
            settled: false,
            ..known(1)
        };
        file_index.keep(path("a"), unsettled);
        assert_eq!(file_index.plan(&survey, HASTY).read.len(), 1);
    }

    #[test]
    fn what_is_missing_is_doubted_once_before_it_is_gone() {
        let mut file_index = file_index(&[("a", 1)]);
        let gone = survey(Scope::All, &[]);
        let plan = file_index.plan(&gone, HASTY);
        assert_eq!((names(&plan.doubt), names(&plan.remove)), (vec!["a"], vec![]));
        let plan = file_index.plan(&survey(Scope::All, &[("a", 1)]), HASTY);
        assert_eq!(plan, Plan::default());
        let plan = file_index.plan(&gone, HASTY);
        assert_eq!(names(&plan.doubt), ["a"], "the doubt ended when it was seen");
        let plan = file_index.plan(&gone, HASTY);
        assert_eq!(names(&plan.remove), ["a"]);
    }

    #[test]
    fn a_folder_that_goes_takes_what_is_below_and_no_namesake() {
        let mut file_index = file_index(&[("a/x", 1), ("a/y/z", 1), ("a", 1), ("ab", 1), ("a-b", 1)]);
        let plan = file_index.plan(&survey(below(&["a"]), &[]), QUIET);
        assert_eq!(names(&plan.remove), ["a", "a/x", "a/y/z"]);
    }

    #[test]
    fn what_cannot_be_seen_stays_and_what_is_skipped_goes() {
        let mut file_index = file_index(&[("a/x", 1), ("b", 1)]);
        let mut look = survey(Scope::All, &[]);
        look.unseen.push(path("a"));
        look.skipped.insert(path("b"), SkipReason::TooLarge);
        let plan = file_index.plan(&look, HASTY);
        assert_eq!((names(&plan.remove), plan.doubt.len()), (vec!["b"], 0));
    }

    #[test]
    fn a_link_is_found_by_what_it_links_to() {
        let mut file_index = file_index(&[("a", 1)]);
        let link = KnownFile {
            target: Some(path("d/real")),
            ..known(1)
        };
        file_index.keep(path("link"), link);
        let dirty = |text| BTreeSet::from([path(text)]);
        assert_eq!(file_index.links_to(&dirty("d")), [path("link")]);
        assert_eq!(file_index.links_to(&dirty("d/real")), [path("link")]);
        assert!(file_index.links_to(&dirty("d/rea")).is_empty());
    }

    fn any_path() -> impl Strategy<Value = FilePath> {
        vec(proptest::sample::select(vec!["a", "b", "a0", "a-"]), 1..4)
            .prop_map(|names| path(&names.join("/")))
    }

    fn any_files() -> impl Strategy<Value = BTreeMap<FilePath, u64>> {
        btree_map(any_path(), 0_u64..3, 0..12)
    }

    proptest! {
        /// Carrying out the plan leaves exactly what was seen in scope, and everything else as it was.
        #[test]
        fn carrying_out_the_plan_makes_known_what_was_seen(
            before in any_files(),
            now in any_files(),
            dirty in btree_set(any_path(), 0..4),
            all in any::<bool>(),
        ) {
            let scope = if all { Scope::All } else { Scope::Below(dirty) };
            let mut file_index = FileIndex::default();
            for (path, state) in &before {
                file_index.keep(path.clone(), known(*state));
            }
            let files: BTreeMap<_, _> =
                now.iter().filter(|(path, _)| scope.covers(path)).map(|(path, state)| (path.clone(), seen(*state))).collect();
            let survey = Survey { scope: scope.clone(), files, skipped: BTreeMap::new(), unseen: Vec::new() };
            let plan = file_index.plan(&survey, QUIET);
            for (path, seen) in &plan.read {
                prop_assert!(before.get(path) != Some(&seen.identity.len), "{path:?} was read in vain");
                file_index.keep(path.clone(), known(seen.identity.len));
            }
            for path in &plan.remove {
                prop_assert!(file_index.forget(path), "{path:?} was never known");
            }
            let mut expected: BTreeMap<_, _> = before.into_iter().filter(|(path, _)| !scope.covers(path)).collect();
            expected.extend(now.into_iter().filter(|(path, _)| scope.covers(path)));
            let known: BTreeMap<_, _> =
                file_index.files.iter().map(|(path, known)| (path.clone(), known.identity.len)).collect();
            prop_assert_eq!(file_index.served(), known.len());
            prop_assert_eq!(known, expected);
        }
    }
}
