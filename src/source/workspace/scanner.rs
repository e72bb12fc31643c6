//! The blocking half of the folder source: watches and scans the folder, and keeps the books about its files.

use super::definitions::{DefinitionFolders, Definitions};
use super::file_index::{FileIndex, FolderScan, KnownFile, ScanMode, ScanPlan, ScanScope};
use super::file_path::FilePath;
use super::folder::{Folder, Location};
use super::skip::{SkipReason, SkipReports};
use crate::metrics::{self, Limit};
use crate::source::watch::{DirtySet, FileWatcher, is_not_found};
use notify::RecursiveMode;
use std::path::Path;
use std::sync::Arc;

/// A place in the folder where something may have changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// This path below `resources`, or all of them if it is the root.
    Resource(FilePath),
    /// Prompts or tools.
    Definitions,
    /// The executable `register`.
    Register,
}

/// A file that cannot be served.
#[derive(Debug)]
pub(super) struct RefusedFile {
    pub(super) path: FilePath,
    /// The file as it is kept in mind.
    pub(super) known: KnownFile,
    pub(super) reason: SkipReason,
    pub(super) detail: String,
}

/// The scanner.
pub(super) struct Scanner {
    /// The folder `resources`.
    pub(super) folder: Folder,
    /// The files that were read.
    pub(super) file_index: FileIndex,
    /// The files that are skipped.
    pub(super) reports: SkipReports,
    /// Prompts and tools.
    definitions: DefinitionFolders,
    watcher: FileWatcher<Mark>,
    /// Number of files beyond `files_max` in the last full scan.
    pub(super) over_limit: usize,
}

impl Scanner {
    /// Returns a scanner that knows no file yet. Its watcher marks `dirty` when something may have changed.
    pub(super) fn new(folder: Folder, dirty: Arc<DirtySet<Mark>>, watch: bool) -> Scanner {
        let watched = folder.clone();
        let watcher = FileWatcher::new(dirty, watch, move |path: &Path| mark_of(&watched, path));
        Scanner {
            definitions: DefinitionFolders::new(&folder),
            folder,
            file_index: FileIndex::default(),
            reports: SkipReports::default(),
            watcher,
            over_limit: 0,
        }
    }

    /// Scans the resources in scope, and returns the files to read and to remove.
    pub(super) fn scan(&mut self, scope: ScanScope, mode: ScanMode) -> ScanPlan {
        let scope = match scope {
            ScanScope::All => {
                self.watch_all();
                ScanScope::All
            }
            ScanScope::Below(mut paths) => {
                for path in &paths {
                    self.watch_below(path);
                }
                // A link changes with the file that it leads to, which may be a new one.
                paths.extend(self.file_index.links_to(&paths));
                paths.extend(self.reports.dangling_links());
                ScanScope::Below(paths)
            }
        };
        let scan = self.folder.scan(scope, &self.file_index);
        let plan = self.file_index.plan(&scan, mode);
        self.report(&scan);
        plan
    }

    /// Scans and reads prompts and tools.
    pub(super) fn scan_definitions(&mut self, mode: ScanMode) -> Definitions {
        // Again, since a folder may be new. A failure ends with a full scan that can watch everything.
        for folder in self.definitions.folders() {
            if let Err(error) = watch_within(&mut self.watcher, folder, RecursiveMode::NonRecursive) {
                self.watcher.report_failure(&folder.root, &error);
            }
        }
        self.definitions.scan(mode)
    }

    /// Watches `DIR`, in which its parts may appear later, and the parts that exist.
    fn watch_all(&mut self) {
        match self.try_watch_all() {
            Ok(()) => self.watcher.report_success(),
            Err(error) => self.watcher.report_failure(&self.folder.base, &error),
        }
    }

    fn try_watch_all(&mut self) -> notify::Result<()> {
        self.watcher
            .watch(&self.folder.base, RecursiveMode::NonRecursive)?;
        watch_within(&mut self.watcher, &self.folder, RecursiveMode::Recursive)?;
        for folder in self.definitions.folders() {
            watch_within(&mut self.watcher, folder, RecursiveMode::NonRecursive)?;
        }
        Ok(())
    }

    /// Watches a folder that may be new. The watcher does that by itself, but perhaps only after the scan,
    /// and would then miss the changes in between.
    fn watch_below(&mut self, path: &FilePath) {
        let path = path.at(&self.folder.root);
        let Ok(metadata) = std::fs::symlink_metadata(&path) else {
            return;
        };
        if metadata.is_dir()
            && let Err(error) = watch_or_mark(&mut self.watcher, &path, RecursiveMode::Recursive)
        {
            self.watcher.report_failure(&path, &error);
        }
    }

    /// Brings the reports of skipped files up to date with a scan.
    fn report(&mut self, scan: &FolderScan) {
        self.reports.end_where(|reported| {
            let Some(path) = FilePath::below(Path::new(""), reported) else {
                return true;
            };
            // A file to be read ends its report only when that succeeds.
            let goes_on = scan.skipped.contains_key(&path)
                || scan.files.contains_key(&path)
                || scan.not_utf8.iter().any(|other| other == reported)
                || scan.unreadable.iter().any(|unread| unread.covers(&path));
            scan.scope.covers(&path) && !goes_on
        });
        for (path, reason) in &scan.skipped {
            let detail = match reason {
                SkipReason::TooLarge => format!("the limit is {} bytes", self.folder.file_bytes_max),
                _ => String::new(),
            };
            self.reports.skip(Path::new(path.as_str()), *reason, &detail);
        }
        for path in &scan.not_utf8 {
            self.reports.skip(path, SkipReason::NotUtf8, "");
        }
        self.report_over_limit(scan);
    }

    fn report_over_limit(&mut self, scan: &FolderScan) {
        let is_full = scan.scope == ScanScope::All;
        let Some((count, first)) = &scan.over_limit else {
            // A scan of some paths does not show that there is room for all.
            if is_full {
                self.over_limit = 0;
            }
            return;
        };
        let before = self.over_limit;
        self.over_limit = if is_full { *count } else { before.max(*count) };
        // The limit is reported once, and again only after there was room.
        if before == 0 {
            metrics::limit_reached(Limit::Files);
            tracing::warn!(
                first = first.as_str(),
                max = self.folder.files_max,
                "more files than are served; raise workspace.files_max or remove some"
            );
        }
    }

    /// Reports a file that cannot be served and keeps it in mind. Returns true if it was served until now.
    pub(super) fn refuse(&mut self, refused: &RefusedFile) -> bool {
        let path = &refused.path;
        self.reports
            .skip(Path::new(path.as_str()), refused.reason, &refused.detail);
        let was_served = self.file_index.forget(path);
        self.file_index.keep(path.clone(), refused.known.clone());
        was_served
    }

    /// Makes the next scan read a file again, even if its metadata are the same.
    pub(super) fn distrust(&mut self, path: &FilePath) {
        if let Some(known) = self.file_index.get(path) {
            let known = KnownFile {
                settled: false,
                ..known.clone()
            };
            self.file_index.keep(path.clone(), known);
        }
    }
}

/// Watches a folder if it exists. A folder that is a link to outside of `DIR` is not watched.
fn watch_within(watcher: &mut FileWatcher<Mark>, folder: &Folder, mode: RecursiveMode) -> notify::Result<()> {
    match folder.locate() {
        // The watcher follows no links, and the folder may be one within `DIR`; the dot steps through it.
        Location::Found(_) => watch_or_mark(watcher, &folder.root.join("."), mode),
        _ => Ok(()),
    }
}

fn watch_or_mark(watcher: &mut FileWatcher<Mark>, path: &Path, mode: RecursiveMode) -> notify::Result<()> {
    match watcher.watch(path, mode) {
        // Something vanished while the watcher walked the folder. It needs no watch, but the walk ended
        // there.
        Err(error) if is_not_found(&error) => {
            watcher.mark_all();
            Ok(())
        }
        watched => watched,
    }
}

/// Returns the mark for an event at `path`, or `None` if nothing is served from there.
fn mark_of(folder: &Folder, path: &Path) -> Option<Mark> {
    if let Some(below) = FilePath::below(&folder.root, path) {
        let is_served = folder.hidden || !below.is_hidden();
        return is_served.then_some(Mark::Resource(below));
    }
    if folder.root.starts_with(path) {
        // `DIR` itself was moved, removed or created.
        return Some(Mark::Resource(FilePath::root()));
    }
    let below = FilePath::below(&folder.base, path)?;
    if below.is_hidden() {
        return None;
    }
    match below.names().next() {
        Some("prompts" | "tools") => Some(Mark::Definitions),
        Some("register") => Some(Mark::Register),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::watch::PendingChanges;
    use std::fs;
    use std::time::Duration;

    fn resource(name: &str) -> Option<Mark> {
        Some(Mark::Resource(FilePath::root().join(name)))
    }

    #[test]
    fn event_marks_the_part_that_it_concerns() {
        let folder = Folder::for_test(Path::new("/d"));
        let root = Some(Mark::Resource(FilePath::root()));
        for (path, mark) in [
            ("/d/resources/a", resource("a")),
            ("/d/prompts/p.md", Some(Mark::Definitions)),
            ("/d/resources/.git/x", None),
            ("/d", root.clone()),
            ("/d/resources", root),
            ("/d/tools", Some(Mark::Definitions)),
            ("/d/tools/.x.swp", None),
            ("/d/register", Some(Mark::Register)),
            ("/d/other/x", None),
        ] {
            assert_eq!(mark_of(&folder, Path::new(path)), mark, "{path}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn target_of_a_link_is_not_watched() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let folder = Folder::for_test(&base);
        fs::create_dir(&folder.root).unwrap();
        fs::create_dir(base.join("outside")).unwrap();
        std::os::unix::fs::symlink("../outside", folder.root.join("link")).unwrap();
        let dirty = DirtySet::new();
        let quiet = Duration::from_millis(50);
        let mut changes = PendingChanges::new(dirty.clone(), quiet, 20 * quiet);
        let mut scanner = Scanner::new(folder, dirty, true);
        scanner.watch_all();
        // The event of the second file shows that the one of the first would have come.
        fs::write(base.join("outside/a"), "").unwrap();
        fs::write(base.join("resources/sentinel"), "").unwrap();
        let batch = changes.next().await;
        assert!(batch.keys.into_iter().eq(resource("sentinel")));
    }
}
