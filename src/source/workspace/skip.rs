//! Why a file is not served, and who has been told.
//!
//! Owns: the reasons, and the report that names each skipped file once per episode: from when it is first skipped
//! for a reason until it is served, gone, or skipped for another one. Filled by the task; read by its statistics.

use super::path::FilePath;
use crate::metrics::{self, Limit, Source};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Reports kept at once. Files skipped beyond are not named, only counted when they are met.
const REPORTS_MAX: usize = 10_000;

/// Why a file below the folder is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// Larger than `workspace.file_bytes_max`.
    TooLarge,
    /// A link to somewhere outside the folder.
    LeavesFolder,
    /// A link to a folder; only links to files are followed.
    FolderLink,
    /// A link to nothing.
    DanglingLink,
    /// Neither file nor folder: a pipe, a socket, a device.
    NotAFile,
    /// A name that is not UTF-8.
    NotUtf8,
    /// A path so long that its URI is too long.
    PathTooLong,
    /// The system does not let the service read it.
    NoPermission,
    /// The system failed while it was read; it is tried again.
    Unreadable,
    /// The bus refused it, because of one of its own limits.
    Refused,
}

impl SkipReason {
    /// What the person who runs the service can do about it.
    fn remedy(self) -> &'static str {
        match self {
            SkipReason::TooLarge => "raise workspace.file_bytes_max or shorten it",
            SkipReason::LeavesFolder => "put a copy into the folder instead of a link",
            SkipReason::FolderLink => "move the folder here, or link its files one by one",
            SkipReason::DanglingLink => "remove the link or create its target",
            SkipReason::NotAFile => "only files can be served",
            SkipReason::NotUtf8 => "rename it",
            SkipReason::PathTooLong => "shorten the names",
            SkipReason::NoPermission => "let the service read it",
            SkipReason::Unreadable => "it is tried again",
            SkipReason::Refused => "raise the limit of the bus that is named",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SkipReason::TooLarge => "larger than workspace.file_bytes_max",
            SkipReason::LeavesFolder => "a link that leaves the folder",
            SkipReason::FolderLink => "a link to a folder",
            SkipReason::DanglingLink => "a link to nothing",
            SkipReason::NotAFile => "not a file",
            SkipReason::NotUtf8 => "a name that is not UTF-8",
            SkipReason::PathTooLong => "a path too long for a URI",
            SkipReason::NoPermission => "no permission to read it",
            SkipReason::Unreadable => "reading it failed",
            SkipReason::Refused => "refused by the bus",
        })
    }
}

/// The files skipped now, by path below the folder.
#[derive(Debug, Default)]
pub(super) struct Reports {
    skipped: BTreeMap<PathBuf, SkipReason>,
}

impl Reports {
    /// Reports a skipped file, unless it was reported for the same reason; answers whether it did.
    pub(super) fn skip(&mut self, path: &Path, reason: SkipReason, detail: &str) -> bool {
        if self.skipped.get(path) == Some(&reason) {
            return false;
        }
        if self.skipped.len() >= REPORTS_MAX && !self.skipped.contains_key(path) {
            return false;
        }
        self.skipped.insert(path.to_owned(), reason);
        match reason {
            SkipReason::TooLarge => metrics::limit_reached(Limit::FileBytes),
            SkipReason::Unreadable | SkipReason::NoPermission | SkipReason::Refused => {
                metrics::source_failed(Source::Workspace);
            }
            _ => {}
        }
        let (path, remedy) = (path.display(), reason.remedy());
        match reason {
            // Editors use them as locks.
            SkipReason::DanglingLink => tracing::debug!(%path, %reason, remedy, "file skipped"),
            _ => tracing::warn!(%path, %reason, detail, remedy, "file skipped"),
        }
        true
    }

    /// Ends the episode of a file.
    pub(super) fn end(&mut self, path: &Path) {
        if self.skipped.remove(path).is_some() {
            tracing::info!(path = %path.display(), "file no longer skipped");
        }
    }

    /// Ends the episodes of those files for which `over` holds.
    pub(super) fn end_where(&mut self, over: impl Fn(&Path) -> bool) {
        self.skipped.retain(|path, _| !over(path));
    }

    /// The links to nothing; their targets may appear at any time.
    pub(super) fn dangling(&self) -> impl Iterator<Item = FilePath> {
        let dangling = self
            .skipped
            .iter()
            .filter(|(_, reason)| **reason == SkipReason::DanglingLink);
        dangling.filter_map(|(path, _)| FilePath::below(Path::new(""), path))
    }

    /// How many are skipped, by reason.
    pub(super) fn counts(&self) -> BTreeMap<SkipReason, usize> {
        let mut counts = BTreeMap::new();
        for reason in self.skipped.values() {
            *counts.entry(*reason).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_once_per_episode() {
        let mut reports = Reports::default();
        let path = Path::new("a");
        assert!(reports.skip(path, SkipReason::TooLarge, ""));
        assert!(!reports.skip(path, SkipReason::TooLarge, ""));
        assert!(reports.skip(path, SkipReason::NoPermission, ""));
        reports.end(path);
        assert!(reports.skip(path, SkipReason::NoPermission, ""));
        reports.end_where(|other| other == path);
        assert!(reports.counts().is_empty());
        assert!(reports.skip(path, SkipReason::NoPermission, ""));
    }

    #[test]
    fn keeps_a_bounded_number_of_reports() {
        let mut reports = Reports::default();
        for n in 0..REPORTS_MAX {
            assert!(reports.skip(Path::new(&n.to_string()), SkipReason::DanglingLink, ""));
        }
        assert!(!reports.skip(Path::new("one more"), SkipReason::DanglingLink, ""));
        assert!(reports.skip(Path::new("7"), SkipReason::NotAFile, ""));
        assert_eq!(reports.counts()[&SkipReason::DanglingLink], REPORTS_MAX - 1);
        assert_eq!(reports.dangling().count(), REPORTS_MAX - 1);
    }
}
