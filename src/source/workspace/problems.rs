//! What is wrong with prompts, tools and `register` now, and who has been told.
//!
//! Owns: the open problems, by what they are about, and the log lines: one when a problem begins, one when it ends,
//! however often it is found in between. Filled by the task after every look; read by its statistics.

use crate::metrics::{self, Source};
use std::collections::BTreeMap;

/// Problems by what they are about: `tools/count.json`, `register`.
pub(super) type Found = BTreeMap<String, String>;

/// Who finds problems; each finder tells all of its own at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finder {
    /// The look at `prompts` and `tools`.
    DefinitionFolders,
    /// The run of `register`.
    Register,
    /// The publishing of tools.
    Tools,
    /// The publishing of prompts.
    Prompts,
    /// The publishing of what `register` printed.
    Resources,
}

/// The open problems.
#[derive(Debug, Default)]
pub(super) struct Problems {
    open: BTreeMap<Finder, Found>,
    reports: u64,
}

impl Problems {
    /// These are all the problems that `finder` finds now; those that were not there before are reported.
    pub(super) fn settle(&mut self, finder: Finder, found: Found) {
        let before = self.open.remove(&finder).unwrap_or_default();
        for (subject, problem) in &found {
            if !before.contains_key(subject) {
                self.reports += 1;
                metrics::source_failed(match finder {
                    Finder::Register => Source::Register,
                    _ => Source::Workspace,
                });
                tracing::warn!(subject, problem, "problem in the folder");
            }
        }
        for subject in before.keys().filter(|subject| !found.contains_key(*subject)) {
            tracing::info!(subject, "problem in the folder has ended");
        }
        self.open.insert(finder, found);
    }

    /// All open problems.
    pub(super) fn all(&self) -> Found {
        self.open
            .values()
            .flatten()
            .map(|(subject, text)| (subject.clone(), text.clone()))
            .collect()
    }

    /// How many were ever reported.
    pub(super) fn reports(&self) -> u64 {
        self.reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[(&str, &str)]) -> Found {
        texts
            .iter()
            .map(|(subject, text)| ((*subject).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn reports_once_per_episode_whatever_the_words() {
        let mut problems = Problems::default();
        problems.settle(Finder::DefinitionFolders, found(&[("a", "line 1")]));
        problems.settle(Finder::DefinitionFolders, found(&[("a", "line 2"), ("b", "")]));
        assert_eq!(problems.reports(), 2);
        assert_eq!(problems.all(), found(&[("a", "line 2"), ("b", "")]));
        problems.settle(Finder::DefinitionFolders, found(&[]));
        problems.settle(Finder::DefinitionFolders, found(&[("a", "line 2")]));
        assert_eq!(problems.reports(), 3);
    }

    #[test]
    fn finders_do_not_end_each_others_problems() {
        let mut problems = Problems::default();
        problems.settle(Finder::DefinitionFolders, found(&[("a", "")]));
        problems.settle(Finder::Register, found(&[]));
        assert_eq!(problems.all(), found(&[("a", "")]));
    }
}
