//! The open problems with prompts, tools and `register`, and their log lines.
//!
//! A problem is logged once when it begins and once when it ends, however often it is found in between.

use crate::metrics::{self, Source};
use std::collections::BTreeMap;

/// OpenProblems by their subject, such as `tools/count.json` or `register`.
pub(super) type ProblemMap = BTreeMap<String, String>;

/// The origins of problems. Each one reports all of its problems at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProblemOrigin {
    /// The scan of `prompts` and `tools`.
    Definitions,
    /// The run of `register`.
    Register,
    /// The registration of tools.
    Tools,
    /// The registration of prompts.
    Prompts,
    /// The registration of the resources of `register`.
    Resources,
}

/// The open problems.
#[derive(Debug, Default)]
pub(super) struct OpenProblems {
    open: BTreeMap<ProblemOrigin, ProblemMap>,
    reports: u64,
}

impl OpenProblems {
    /// Replaces the problems of an origin. New ones and those that ended are logged.
    pub(super) fn replace(&mut self, origin: ProblemOrigin, found: ProblemMap) {
        let before = self.open.remove(&origin).unwrap_or_default();
        for (subject, problem) in &found {
            // The words of a problem may change from scan to scan while it lasts.
            if before.contains_key(subject) {
                continue;
            }
            self.reports += 1;
            metrics::source_failed(match origin {
                ProblemOrigin::Register => Source::Register,
                _ => Source::Workspace,
            });
            tracing::warn!(subject, problem, "problem in the folder");
        }
        for subject in before.keys() {
            if !found.contains_key(subject) {
                tracing::info!(subject, "problem in the folder has ended");
            }
        }
        self.open.insert(origin, found);
    }

    /// Returns all open problems.
    pub(super) fn all(&self) -> ProblemMap {
        let mut all = ProblemMap::new();
        for problems in self.open.values() {
            all.extend(problems.clone());
        }
        all
    }

    /// Returns the number of problems that were ever logged.
    pub(super) fn reports(&self) -> u64 {
        self.reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[(&str, &str)]) -> ProblemMap {
        texts
            .iter()
            .map(|(subject, text)| ((*subject).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn problem_is_reported_once_until_it_ends() {
        let mut problems = OpenProblems::default();
        problems.replace(ProblemOrigin::Definitions, found(&[("a", "line 1")]));
        problems.replace(ProblemOrigin::Definitions, found(&[("a", "line 2"), ("b", "")]));
        assert_eq!(problems.reports(), 2);
        assert_eq!(problems.all(), found(&[("a", "line 2"), ("b", "")]));
        problems.replace(ProblemOrigin::Definitions, found(&[]));
        problems.replace(ProblemOrigin::Definitions, found(&[("a", "line 2")]));
        assert_eq!(problems.reports(), 3);
    }

    #[test]
    fn origin_ends_only_its_own_problems() {
        let mut problems = OpenProblems::default();
        problems.replace(ProblemOrigin::Definitions, found(&[("a", "")]));
        problems.replace(ProblemOrigin::Register, found(&[]));
        assert_eq!(problems.all(), found(&[("a", "")]));
    }
}
