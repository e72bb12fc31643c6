//! What a run found: one finding per check and revision, for people and for programs.
//!
//! Owns the findings, their order, the summary and both forms of output. It is handed what was seen by the rounds and
//! judges nothing itself. Text that came from a server is cleaned of control characters and cut.

use std::fmt;

use serde::Serialize;

use super::catalog::{Check, Severity};

/// The name of the JSON form; a change that breaks readers changes the number.
const SCHEMA: &str = "tidings.check/1";

/// At most this much is shown of what was seen.
const SEEN_CHARS_MAX: usize = 400;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Pass,
    /// Not as it should be.
    Fail,
    /// Not looked at; the finding says why.
    Skipped,
}

/// One check of one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Which check.
    pub id: &'static str,
    /// The revision of the protocol that was spoken.
    pub revision: String,
    /// How grave a failure is.
    pub severity: Severity,
    /// How it ended.
    pub verdict: Verdict,
    /// What was seen; of a skipped check, why it was skipped.
    pub seen: String,
    /// What to do about it; only of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<&'static str>,
    /// The page of the specification.
    pub link: String,
}

impl Finding {
    pub(super) fn new(check: Check, revision: &str, verdict: Verdict, seen: &str) -> Finding {
        Finding {
            id: check.id(),
            revision: revision.to_owned(),
            severity: check.severity(),
            verdict,
            seen: clean(seen),
            mend: (verdict == Verdict::Fail).then(|| check.mend()),
            link: check.link(revision),
        }
    }
}

/// How many checks ended how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Checks that passed.
    pub passed: usize,
    /// Failures that are errors.
    pub errors: usize,
    /// Failures that are warnings.
    pub warnings: usize,
    /// Failures that are only worth knowing.
    pub infos: usize,
    /// Checks that were not made.
    pub skipped: usize,
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    schema: &'static str,
    /// The server, without its arguments.
    pub target: String,
    /// The revisions that were spoken.
    pub revisions: Vec<String>,
    /// Why not all of it could be looked at; none when all was.
    pub incomplete: Option<String>,
    /// The counts.
    pub summary: Summary,
    /// The findings, by revision and then in the order of [`Check::ALL`].
    pub checks: Vec<Finding>,
}

impl Report {
    pub(super) fn new(target: String, revisions: Vec<String>, checks: Vec<Finding>) -> Report {
        let mut summary = Summary::default();
        for finding in &checks {
            *match (finding.verdict, finding.severity) {
                (Verdict::Pass, _) => &mut summary.passed,
                (Verdict::Skipped, _) => &mut summary.skipped,
                (Verdict::Fail, Severity::Error) => &mut summary.errors,
                (Verdict::Fail, Severity::Warning) => &mut summary.warnings,
                (Verdict::Fail, Severity::Info) => &mut summary.infos,
            } += 1;
        }
        Report {
            schema: SCHEMA,
            target,
            revisions,
            incomplete: None,
            summary,
            checks,
        }
    }

    /// The gravest of what was found; none when all is well. A run that could not be finished is an error.
    pub fn worst(&self) -> Option<Severity> {
        if self.summary.errors > 0 || self.incomplete.is_some() {
            return Some(Severity::Error);
        }
        (self.summary.warnings > 0).then_some(Severity::Warning)
    }

    /// The findings that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Finding> {
        self.checks
            .iter()
            .filter(|finding| finding.verdict == Verdict::Fail)
    }

    /// It as one JSON document.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has only texts and numbers")
    }

    fn group(&self, f: &mut fmt::Formatter<'_>, verdict: Verdict, severity: Option<Severity>) -> fmt::Result {
        let title = match (verdict, severity) {
            (Verdict::Pass, _) => "passed",
            (Verdict::Skipped, _) => "skipped",
            (Verdict::Fail, Some(Severity::Error)) => "errors",
            (Verdict::Fail, Some(Severity::Warning)) => "warnings",
            (Verdict::Fail, _) => "worth knowing",
        };
        let of_group = |found: &&Finding| {
            found.verdict == verdict && severity.is_none_or(|severity| found.severity == severity)
        };
        for (index, finding) in self.checks.iter().filter(of_group).enumerate() {
            if index == 0 {
                writeln!(f, "\n{title}")?;
            }
            writeln!(f, "  {} [{}]: {}", finding.id, finding.revision, finding.seen)?;
            if let Some(mend) = finding.mend {
                writeln!(f, "      {mend}\n      {}", finding.link)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} speaks {}",
            clean(&self.target),
            self.revisions.join(" and ")
        )?;
        for severity in [Severity::Error, Severity::Warning, Severity::Info] {
            self.group(f, Verdict::Fail, Some(severity))?;
        }
        self.group(f, Verdict::Skipped, None)?;
        self.group(f, Verdict::Pass, None)?;
        let Summary {
            passed,
            errors,
            warnings,
            infos,
            skipped,
        } = self.summary;
        if let Some(reason) = &self.incomplete {
            writeln!(f, "\nnot everything could be looked at: {}", clean(reason))?;
        }
        writeln!(
            f,
            "\n{errors} errors, {warnings} warnings, {infos} worth knowing, {passed} passed, {skipped} skipped"
        )
    }
}

/// What a server says may not steer the terminal.
fn clean(text: &str) -> String {
    let printable = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut cleaned: String = printable.take(SEEN_CHARS_MAX).collect();
    if text.chars().nth(SEEN_CHARS_MAX).is_some() {
        cleaned.push('…');
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: &[(Check, Verdict)]) -> Report {
        let findings = findings
            .iter()
            .map(|(check, verdict)| Finding::new(*check, "2025-11-25", *verdict, "what was\u{1b}[2J seen"));
        Report::new("h".to_owned(), vec!["2025-11-25".to_owned()], findings.collect())
    }

    #[test]
    fn the_worst_finding_decides() {
        let fail = |check| (check, Verdict::Fail);
        for (findings, worst) in [
            (&[(Check::ErrorCodes, Verdict::Pass)][..], None),
            (&[(Check::ErrorCodes, Verdict::Skipped)], None),
            (&[fail(Check::KeepAlive)], None),
            (
                &[fail(Check::KeepAlive), fail(Check::UnknownUri)],
                Some(Severity::Warning),
            ),
            (
                &[fail(Check::UnknownUri), fail(Check::ErrorCodes)],
                Some(Severity::Error),
            ),
        ] {
            assert_eq!(report(findings).worst(), worst, "{findings:?}");
        }
        let mut unfinished = report(&[]);
        unfinished.incomplete = Some("the time is over".to_owned());
        assert_eq!(unfinished.worst(), Some(Severity::Error));
    }

    #[test]
    fn the_text_groups_by_severity_and_ends_with_the_counts() {
        let text = report(&[
            (Check::UnknownUri, Verdict::Fail),
            (Check::ErrorCodes, Verdict::Fail),
            (Check::GracefulEnd, Verdict::Pass),
            (Check::KeepAlive, Verdict::Skipped),
        ])
        .to_string();
        let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle} in {text}"));
        assert!(
            at("errors\n  error-codes") < at("warnings\n  unknown-uri"),
            "{text}"
        );
        assert!(
            at("skipped\n  keep-alive") < at("passed\n  graceful-end"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
        assert!(
            text.ends_with("1 errors, 1 warnings, 0 worth knowing, 1 passed, 1 skipped\n"),
            "{text}"
        );
    }

    #[test]
    fn the_json_form_stays_as_it_is() {
        let json: serde_json::Value =
            serde_json::from_str(&report(&[(Check::UnknownUri, Verdict::Fail)]).to_json()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "schema": "tidings.check/1",
                "target": "h",
                "revisions": ["2025-11-25"],
                "incomplete": null,
                "summary": { "passed": 0, "errors": 0, "warnings": 1, "infos": 0, "skipped": 0 },
                "checks": [{
                    "id": "unknown-uri",
                    "revision": "2025-11-25",
                    "severity": "warning",
                    "verdict": "fail",
                    "seen": "what was [2J seen",
                    "mend": Check::UnknownUri.mend(),
                    "link": "https://modelcontextprotocol.io/specification/2025-11-25/server/resources",
                }],
            })
        );
    }

    #[test]
    fn long_words_of_a_server_are_cut() {
        assert_eq!(clean(&"x".repeat(1000)).chars().count(), SEEN_CHARS_MAX + 1);
    }
}
