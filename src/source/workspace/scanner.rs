//! What happens on blocking threads besides reading files: looking at the folder, and keeping the books.
//!
//! Owns: the folder, what is known of it, the reports and the watcher. Never publishes and never decides when to
//! look; the task does both, and hands this to a blocking thread whenever the disk is involved.

use super::definitions::{DefinitionFolders, Definitions};
use super::file_index::{FileIndex, KnownFile, Plan, Scope, Trust};
use super::folder::{Folder, Look};
use super::path::FilePath;
use super::skip::{Reports, SkipReason};
use super::watch::FolderWatch;
use crate::metrics::{self, Limit};
use std::path::Path;

/// The blocking half of the source.
pub(super) struct Scanner {
    /// Where to look.
    pub(super) folder: Folder,
    /// What is known.
    pub(super) file_index: FileIndex,
    /// What is skipped.
    pub(super) reports: Reports,
    /// What says when to look.
    pub(super) watch: FolderWatch,
    /// Prompts and tools.
    pub(super) definitions: DefinitionFolders,
    /// Files beyond `files_max` at the last full look.
    pub(super) beyond: usize,
}

impl Scanner {
    /// Looks at what is in scope and answers what to do.
    pub(super) fn look(&mut self, scope: Scope, trust: Trust) -> Plan {
        let scope = match scope {
            Scope::All => {
                self.watch.cover(&self.folder);
                Scope::All
            }
            Scope::Below(mut paths) => {
                for path in &paths {
                    self.watch.cover_below(&self.folder, path);
                }
                paths.extend(self.file_index.links_to(&paths));
                paths.extend(self.reports.dangling());
                Scope::Below(paths)
            }
        };
        let look = self.folder.look(scope, &self.file_index);
        let plan = self.file_index.plan(&look.survey, trust);
        self.report(&look);
        plan
    }

    /// Looks at prompts and tools.
    pub(super) fn scan_definitions(&mut self, trust: Trust) -> Definitions {
        self.watch.cover_flat(&self.definitions.prompts.folder);
        self.watch.cover_flat(&self.definitions.tools.folder);
        self.definitions.look(trust)
    }

    fn report(&mut self, look: &Look) {
        let survey = &look.survey;
        self.reports.end_where(|reported| {
            let Some(path) = FilePath::below(Path::new(""), reported) else {
                return true;
            };
            let goes_on = survey.skipped.contains_key(&path)
                || survey.files.contains_key(&path)
                || look.not_utf8.iter().any(|other| other == reported)
                || survey.unseen.iter().any(|unseen| unseen.covers(&path));
            survey.scope.covers(&path) && !goes_on
        });
        for (path, reason) in &survey.skipped {
            let limit = match reason {
                SkipReason::TooLarge => format!("the limit is {} bytes", self.folder.file_bytes_max),
                _ => String::new(),
            };
            self.reports.skip(Path::new(path.as_str()), *reason, &limit);
        }
        for path in &look.not_utf8 {
            self.reports.skip(path, SkipReason::NotUtf8, "");
        }
        let before = self.beyond;
        match &look.beyond {
            Some((count, _)) if survey.scope == Scope::All => self.beyond = *count,
            Some((count, _)) => self.beyond = before.max(*count),
            None if survey.scope == Scope::All => self.beyond = 0,
            None => {}
        }
        if let Some((_, first)) = look.beyond.as_ref().filter(|_| before == 0) {
            let (first, max) = (first.as_str(), self.folder.files_max);
            metrics::limit_reached(Limit::Files);
            tracing::warn!(
                first,
                max,
                "more files than are served; raise workspace.files_max or remove some"
            );
        }
    }

    /// Reports that a file cannot be served, and keeps in mind that it is not; answers whether it was until now.
    pub(super) fn refuse(
        &mut self,
        path: FilePath,
        known: KnownFile,
        reason: SkipReason,
        detail: &str,
    ) -> bool {
        self.reports.skip(Path::new(path.as_str()), reason, detail);
        let served = self.file_index.forget(&path);
        let known = KnownFile {
            served: false,
            ..known
        };
        self.file_index.keep(path, known);
        served
    }

    /// Keeps in mind that a file must be read again, whatever its metadata say.
    pub(super) fn distrust(&mut self, path: &FilePath) {
        if let Some(known) = self.file_index.get(path).cloned() {
            let known = KnownFile {
                settled: false,
                ..known
            };
            self.file_index.keep(path.clone(), known);
        }
    }
}
