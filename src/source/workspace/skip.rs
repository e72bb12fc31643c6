//! Files that are not served, each reported once with its reason.

use super::file_path::FilePath;
use crate::metrics::{self, Limit, Source};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Reports kept at a time. Files that are skipped beyond are not logged and not counted, which bounds the
/// memory.
const REPORTS_MAX: usize = 10_000;

/// The reason that a file below the folder is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// It is larger than `workspace.file_bytes_max`.
    TooLarge,
    /// It is a link to somewhere outside the folder.
    LeavesFolder,
    /// It is a link to a folder; only links to files are followed.
    FolderLink,
    /// It is a link to a file that does not exist.
    DanglingLink,
    /// It is neither file nor folder, but a pipe, a socket or a device.
    NotAFile,
    /// Its name is not UTF-8.
    NotUtf8,
    /// Its path is so long that its URI is too long.
    PathTooLong,
    /// The service has no permission to read it.
    NoPermission,
    /// The system failed to read it; it is tried again.
    Unreadable,
    /// The bus refused it, because of one of its own limits.
    Refused,
    /// Its URI belongs to another owner, such as a caller of the API; it is tried again.
    Owned,
}

impl SkipReason {
    /// Returns the reason and its remedy in words.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            SkipReason::TooLarge => (
                "larger than workspace.file_bytes_max",
                "raise workspace.file_bytes_max or shorten it",
            ),
            SkipReason::LeavesFolder => (
                "a link that leaves the folder",
                "put a copy into the folder instead of a link",
            ),
            SkipReason::FolderLink => (
                "a link to a folder",
                "move the folder here, or link its files one by one",
            ),
            SkipReason::DanglingLink => ("a link to nothing", "remove the link or create its target"),
            SkipReason::NotAFile => ("not a file", "only files can be served"),
            SkipReason::NotUtf8 => ("a name that is not UTF-8", "rename it"),
            SkipReason::PathTooLong => ("a path too long for a URI", "shorten the names"),
            SkipReason::NoPermission => ("no permission to read it", "let the service read it"),
            SkipReason::Unreadable => ("reading it failed", "it is tried again"),
            SkipReason::Refused => ("refused by the bus", "raise the limit of the bus that is named"),
            SkipReason::Owned => (
                "its URI belongs to another owner",
                "remove that resource or rename the file",
            ),
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words().0)
    }
}

/// The files that are skipped now, by path below the folder.
#[derive(Debug, Default)]
pub(super) struct SkipReports {
    skipped: BTreeMap<PathBuf, SkipReason>,
}

impl SkipReports {
    /// Logs a skipped file, unless it is skipped for the same reason already. Returns true if it was logged.
    pub(super) fn skip(&mut self, path: &Path, reason: SkipReason, detail: &str) -> bool {
        let before = self.skipped.get(path);
        // One that is reported already may change its reason.
        let is_full = before.is_none() && self.skipped.len() >= REPORTS_MAX;
        if before == Some(&reason) || is_full {
            return false;
        }
        self.skipped.insert(path.to_owned(), reason);
        match reason {
            SkipReason::TooLarge => metrics::limit_reached(Limit::FileBytes),
            SkipReason::Unreadable | SkipReason::NoPermission | SkipReason::Refused | SkipReason::Owned => {
                metrics::source_failed(Source::Workspace);
            }
            _ => {}
        }
        let path = path.display();
        let (_, remedy) = reason.words();
        match reason {
            // Some editors use links to nothing as locks, so they are no cause for a warning.
            SkipReason::DanglingLink => tracing::debug!(%path, %reason, remedy, "file skipped"),
            _ => tracing::warn!(%path, %reason, detail, remedy, "file skipped"),
        }
        true
    }

    /// Ends the report of a file that is served now.
    pub(super) fn end(&mut self, path: &Path) {
        if self.skipped.remove(path).is_some() {
            tracing::info!(path = %path.display(), "file no longer skipped");
        }
    }

    /// Ends the reports of all files for which `is_over` returns true.
    pub(super) fn end_where(&mut self, is_over: impl Fn(&Path) -> bool) {
        self.skipped.retain(|path, _| !is_over(path));
    }

    /// Returns the links to nothing. No event tells when their targets appear.
    pub(super) fn dangling_links(&self) -> Vec<FilePath> {
        let mut links = Vec::new();
        for (path, reason) in &self.skipped {
            if *reason == SkipReason::DanglingLink {
                links.extend(FilePath::below(Path::new(""), path));
            }
        }
        links
    }

    /// Returns the number of skipped files by reason.
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
    fn file_is_reported_once_per_reason() {
        let mut reports = SkipReports::default();
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
    fn reports_are_bounded() {
        let mut reports = SkipReports::default();
        for n in 0..REPORTS_MAX {
            assert!(reports.skip(Path::new(&n.to_string()), SkipReason::DanglingLink, ""));
        }
        assert!(!reports.skip(Path::new("one more"), SkipReason::DanglingLink, ""));
        assert!(reports.skip(Path::new("7"), SkipReason::NotAFile, ""));
        assert_eq!(reports.counts()[&SkipReason::DanglingLink], REPORTS_MAX - 1);
        assert_eq!(reports.dangling_links().len(), REPORTS_MAX - 1);
    }
}
