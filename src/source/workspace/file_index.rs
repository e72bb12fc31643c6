//! The known files of a folder, and the decision which of them a scan makes to be read or removed.
//!
//! A file that one scan misses is not gone: writers that delete and create again leave a gap. It is gone if
//! it is missing after a quiet time, or from two scans in a row.

use super::file_path::FilePath;
use super::skip::SkipReason;
use crate::source::file::FileIdentity;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};
use std::path::PathBuf;

/// A file as it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownFile {
    /// The state in which it was read.
    pub(super) identity: FileIdentity,
    /// True if an equal identity proves equal content.
    pub(super) settled: bool,
    /// True if it was registered; false if it could not be read or was refused.
    pub(super) served: bool,
    /// The file that it links to, if it is a link.
    pub(super) target: Option<FilePath>,
}

/// A file as a scan saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenFile {
    /// Its state.
    pub(super) identity: FileIdentity,
    /// The file that it links to, if it is a link.
    pub(super) target: Option<FilePath>,
}

/// The part of the folder that is scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScanScope {
    /// The whole folder.
    All,
    /// These files, and everything below these folders.
    Below(BTreeSet<FilePath>),
}

impl ScanScope {
    /// Returns true if `path` is in scope.
    pub(super) fn covers(&self, path: &FilePath) -> bool {
        match self {
            ScanScope::All => true,
            ScanScope::Below(paths) => paths.iter().any(|dirty| dirty.covers(path)),
        }
    }
}

/// The result of a scan.
#[derive(Debug)]
pub(super) struct FolderScan {
    /// The part that was scanned.
    pub(super) scope: ScanScope,
    /// The files to serve.
    pub(super) files: BTreeMap<FilePath, SeenFile>,
    /// The files that cannot be served.
    pub(super) skipped: BTreeMap<FilePath, SkipReason>,
    /// Paths that could not be looked at, so that the state of everything below them is unknown.
    pub(super) unreadable: Vec<FilePath>,
    /// Paths below the folder with names that are not UTF-8.
    pub(super) not_utf8: Vec<PathBuf>,
    /// The number of files beyond `files_max`, and the first of them.
    pub(super) over_limit: Option<(usize, FilePath)>,
}

impl FolderScan {
    /// Returns a scan that saw nothing.
    pub(super) fn new(scope: ScanScope) -> FolderScan {
        FolderScan {
            scope,
            files: BTreeMap::new(),
            skipped: BTreeMap::new(),
            unreadable: Vec::new(),
            not_utf8: Vec::new(),
            over_limit: None,
        }
    }
}

/// The conclusions that may be drawn from a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScanMode {
    /// Nothing happened for the quiet time, so a missing file is gone.
    pub(super) quiet: bool,
    /// Every file is read, even if its metadata are the same.
    pub(super) thorough: bool,
}

/// The consequences of a scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ScanPlan {
    /// Files to read.
    pub(super) read: BTreeMap<FilePath, SeenFile>,
    /// Files to forget, and to remove from the bus if they are served.
    pub(super) remove: BTreeSet<FilePath>,
    /// Files that were missing and must be looked at again.
    pub(super) recheck: BTreeSet<FilePath>,
}

/// The known files.
#[derive(Debug, Default)]
pub(super) struct FileIndex {
    files: BTreeMap<FilePath, KnownFile>,
    /// Files that the last scan of them missed.
    missing: BTreeSet<FilePath>,
    /// Number of served files.
    served: usize,
}

impl FileIndex {
    /// Decides about the files in a scan, and remembers those that it missed.
    pub(super) fn plan(&mut self, scan: &FolderScan, mode: ScanMode) -> ScanPlan {
        let mut plan = ScanPlan::default();
        for (path, seen) in &scan.files {
            if mode.thorough || !self.is_current(path, seen) {
                plan.read.insert(path.clone(), seen.clone());
            }
        }
        for path in self.paths_in(&scan.scope) {
            if scan.files.contains_key(path) {
                continue;
            }
            if scan.skipped.contains_key(path) {
                // It is not missing, so there is no gap to wait for.
                plan.remove.insert(path.clone());
            } else if scan.unreadable.iter().any(|folder| folder.covers(path)) {
                // Its state is unknown, so it stays as it is.
                continue;
            } else if mode.quiet || self.missing.contains(path) {
                plan.remove.insert(path.clone());
            } else {
                plan.recheck.insert(path.clone());
            }
        }
        self.missing.retain(|path| !scan.scope.covers(path));
        self.missing.extend(plan.recheck.iter().cloned());
        plan
    }

    /// Returns true if the file as seen is surely the one that was read.
    fn is_current(&self, path: &FilePath, seen: &SeenFile) -> bool {
        match self.files.get(path) {
            Some(known) => known.settled && known.identity == seen.identity && known.target == seen.target,
            None => false,
        }
    }

    fn paths_in(&self, scope: &ScanScope) -> Vec<&FilePath> {
        match scope {
            ScanScope::All => self.files.keys().collect(),
            ScanScope::Below(paths) => paths.iter().flat_map(|path| self.paths_below(path)).collect(),
        }
    }

    /// Returns the known files at and below `path`.
    fn paths_below(&self, path: &FilePath) -> Vec<&FilePath> {
        let mut found = Vec::new();
        if let Some((exact, _)) = self.files.get_key_value(path) {
            found.push(exact);
        }
        // Texts that start with `path/` stand together in the order of the map: `0` is the successor of `/`.
        let from = format!("{}/", path.as_str());
        let to = format!("{}0", path.as_str());
        let range = (Included(from.as_str()), Excluded(to.as_str()));
        found.extend(self.files.range::<str, _>(range).map(|(path, _)| path));
        found
    }

    /// Returns the known links to files at and below any of `paths`.
    pub(super) fn links_to(&self, paths: &BTreeSet<FilePath>) -> Vec<FilePath> {
        let mut links = Vec::new();
        for (path, known) in &self.files {
            if let Some(target) = &known.target
                && paths.iter().any(|path| path.covers(target))
            {
                links.push(path.clone());
            }
        }
        links
    }

    /// Returns a known file.
    pub(super) fn get(&self, path: &FilePath) -> Option<&KnownFile> {
        self.files.get(path)
    }

    /// Returns true if a file is registered.
    pub(super) fn is_served(&self, path: &FilePath) -> bool {
        match self.files.get(path) {
            Some(known) => known.served,
            None => false,
        }
    }

    /// Adds or replaces a known file.
    pub(super) fn keep(&mut self, path: FilePath, known: KnownFile) {
        self.served -= usize::from(self.is_served(&path));
        self.served += usize::from(known.served);
        self.files.insert(path, known);
    }

    /// Forgets a file. Returns true if it was served.
    pub(super) fn forget(&mut self, path: &FilePath) -> bool {
        let was_served = self.is_served(path);
        self.served -= usize::from(was_served);
        self.missing.remove(path);
        self.files.remove(path);
        was_served
    }

    /// Notes that a known file vanished before it could be read. Returns false if the file is not known.
    pub(super) fn miss(&mut self, path: &FilePath) -> bool {
        let is_known = self.files.contains_key(path);
        if is_known {
            self.missing.insert(path.clone());
        }
        is_known
    }

    /// Returns the paths of the known files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &FilePath> {
        self.files.keys()
    }

    /// Returns the number of known files.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns the number of served files.
    pub(super) fn served(&self) -> usize {
        self.served
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, btree_set, vec};
    use proptest::prelude::*;

    const QUIET: ScanMode = ScanMode {
        quiet: true,
        thorough: false,
    };
    const HASTY: ScanMode = ScanMode {
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

    fn scan(scope: ScanScope, files: &[(&str, u64)]) -> FolderScan {
        FolderScan {
            files: files
                .iter()
                .map(|(name, state)| (path(name), seen(*state)))
                .collect(),
            ..FolderScan::new(scope)
        }
    }

    fn below(paths: &[&str]) -> ScanScope {
        ScanScope::Below(paths.iter().map(|text| path(text)).collect())
    }

    fn names(paths: &BTreeSet<FilePath>) -> Vec<&str> {
        paths.iter().map(FilePath::as_str).collect()
    }

    #[test]
    fn scan_reads_new_and_changed_files_only() {
        let mut file_index = file_index(&[("same", 1), ("other", 1)]);
        let scan = scan(ScanScope::All, &[("same", 1), ("other", 2), ("new", 1)]);
        let plan = file_index.plan(&scan, QUIET);
        let read: BTreeSet<_> = plan.read.into_keys().collect();
        assert_eq!(names(&read), ["new", "other"]);
        assert!(plan.remove.is_empty());
    }

    #[test]
    fn unsettled_file_is_read_again() {
        let mut file_index = file_index(&[("a", 1)]);
        let scan = scan(ScanScope::All, &[("a", 1)]);
        let thorough = ScanMode {
            thorough: true,
            ..HASTY
        };
        assert_eq!(file_index.plan(&scan, thorough).read.len(), 1);
        assert_eq!(file_index.plan(&scan, HASTY).read.len(), 0);
        let unsettled = KnownFile {
            settled: false,
            ..known(1)
        };
        file_index.keep(path("a"), unsettled);
        assert_eq!(file_index.plan(&scan, HASTY).read.len(), 1);
    }

    #[test]
    fn missing_file_is_removed_after_two_scans() {
        let mut file_index = file_index(&[("a", 1)]);
        let gone = scan(ScanScope::All, &[]);
        let plan = file_index.plan(&gone, HASTY);
        assert_eq!((names(&plan.recheck), names(&plan.remove)), (vec!["a"], vec![]));
        let plan = file_index.plan(&scan(ScanScope::All, &[("a", 1)]), HASTY);
        assert_eq!(plan, ScanPlan::default());
        let plan = file_index.plan(&gone, HASTY);
        assert_eq!(names(&plan.recheck), ["a"], "it was seen in between");
        let plan = file_index.plan(&gone, HASTY);
        assert_eq!(names(&plan.remove), ["a"]);
    }

    #[test]
    fn removed_folder_removes_files_below_only() {
        let mut file_index = file_index(&[("a/x", 1), ("a/y/z", 1), ("a", 1), ("ab", 1), ("a-b", 1)]);
        let plan = file_index.plan(&scan(below(&["a"]), &[]), QUIET);
        assert_eq!(names(&plan.remove), ["a", "a/x", "a/y/z"]);
    }

    #[test]
    fn unreadable_file_stays_and_skipped_file_goes() {
        let mut file_index = file_index(&[("a/x", 1), ("b", 1)]);
        let mut folder = scan(ScanScope::All, &[]);
        folder.unreadable.push(path("a"));
        folder.skipped.insert(path("b"), SkipReason::TooLarge);
        let plan = file_index.plan(&folder, HASTY);
        assert_eq!((names(&plan.remove), plan.recheck.len()), (vec!["b"], 0));
    }

    #[test]
    fn link_is_found_by_its_target() {
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
        /// Carrying out the plan leaves exactly the files seen in scope, and all others as they were.
        #[test]
        fn plan_makes_the_seen_files_known(
            before in any_files(),
            now in any_files(),
            dirty in btree_set(any_path(), 0..4),
            all in any::<bool>(),
        ) {
            let scope = if all { ScanScope::All } else { ScanScope::Below(dirty) };
            let mut file_index = FileIndex::default();
            for (path, state) in &before {
                file_index.keep(path.clone(), known(*state));
            }
            let files: BTreeMap<_, _> =
                now.iter().filter(|(path, _)| scope.covers(path)).map(|(path, state)| (path.clone(), seen(*state))).collect();
            let scan = FolderScan { files, ..FolderScan::new(scope.clone()) };
            let plan = file_index.plan(&scan, QUIET);
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
