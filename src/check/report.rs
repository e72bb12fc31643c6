//! The report of a check: one finding per check and revision, as text and as JSON. [`super::junit`] and
//! [`super::annotations`] write it for machines that run builds.
//!
//! Text that came from a server is cleaned of control characters and shortened.

use std::fmt;

use serde::Serialize;

use super::catalog::{Check, Severity};
use crate::printable;

/// The name of the JSON format. The number changes with a change that breaks readers.
const SCHEMA: &str = "tidings.check/1";

/// The limit on the text of a finding.
const SEEN_CHARS_MAX: usize = 400;

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The server follows the rule.
    Pass,
    /// The server breaks the rule.
    Fail,
    /// The check was not made; the finding has the reason.
    Skipped,
}

/// The outcome of one check for one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The name of the check.
    pub id: &'static str,
    /// The revision of the protocol that was used.
    pub revision: String,
    /// The severity of a failure.
    pub severity: Severity,
    /// The outcome.
    pub verdict: Verdict,
    /// The observation; for a skipped check, the reason.
    pub seen: String,
    /// The remedy, for a failure.
    #[serde(rename = "mend", skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
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
            remedy: (verdict == Verdict::Fail).then(|| check.remedy()),
            link: check.link(revision),
        }
    }
}

/// The number of checks by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The checks that passed.
    pub passed: usize,
    /// The failures that are errors.
    pub errors: usize,
    /// The failures that are warnings.
    pub warnings: usize,
    /// The failures that are only worth knowing.
    pub infos: usize,
    /// The checks that were not made.
    pub skipped: usize,
}

/// The findings of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    schema: &'static str,
    /// The server, without its arguments.
    pub target: String,
    /// The revisions that were used.
    pub revisions: Vec<String>,
    /// The reason for which some checks could not be made; none if all were.
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

    /// Returns the highest severity among the failures, if it is at least a warning.
    ///
    /// An incomplete report counts as an error.
    pub fn worst(&self) -> Option<Severity> {
        // A build that checks the exit status must not take half a check for a success.
        if self.summary.errors > 0 || self.incomplete.is_some() {
            return Some(Severity::Error);
        }
        match self.summary.warnings {
            0 => None,
            _ => Some(Severity::Warning),
        }
    }

    /// Returns the findings that are failures.
    pub fn failed(&self) -> impl Iterator<Item = &Finding> {
        self.checks
            .iter()
            .filter(|finding| finding.verdict == Verdict::Fail)
    }

    /// Returns the report as one JSON document.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has only texts and numbers")
    }

    /// Writes the failures of one severity under a title; writes no title without one.
    fn write_failures(&self, f: &mut fmt::Formatter<'_>, severity: Severity) -> fmt::Result {
        let (title, mark) = match severity {
            Severity::Error => ("errors", '✗'),
            Severity::Warning => ("warnings", '!'),
            Severity::Info => ("worth knowing", 'i'),
        };
        let mut failures = self
            .failed()
            .filter(|finding| finding.severity == severity)
            .peekable();
        if failures.peek().is_some() {
            writeln!(f, "\n{title}")?;
        }
        for finding in failures {
            writeln!(
                f,
                "  {mark} {} [{}]: {}",
                finding.id, finding.revision, finding.seen
            )?;
            if let Some(remedy) = finding.remedy {
                writeln!(f, "      {remedy}\n      {}", finding.link)?;
            }
        }
        Ok(())
    }

    /// Writes the findings with this verdict under a title, those with the same text as one.
    fn write_others(&self, f: &mut fmt::Formatter<'_>, verdict: Verdict) -> fmt::Result {
        let (title, mark) = match verdict {
            Verdict::Pass => ("passed", '✓'),
            Verdict::Skipped => ("skipped", '-'),
            Verdict::Fail => return Ok(()),
        };
        // In the order of the first finding of each text.
        let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
        for finding in self.checks.iter().filter(|finding| finding.verdict == verdict) {
            let name = format!("{} [{}]", finding.id, finding.revision);
            match groups.iter_mut().find(|(seen, _)| *seen == finding.seen) {
                Some((_, names)) => names.push(name),
                None => groups.push((&finding.seen, vec![name])),
            }
        }
        if !groups.is_empty() {
            writeln!(f, "\n{title}")?;
        }
        for (seen, names) in groups {
            writeln!(f, "  {mark} {}: {seen}", names.join(", "))?;
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
        if let Some(reason) = &self.incomplete {
            writeln!(f, "\nnot everything could be checked: {}", clean(reason))?;
        }
        for severity in [Severity::Error, Severity::Warning, Severity::Info] {
            self.write_failures(f, severity)?;
        }
        self.write_others(f, Verdict::Skipped)?;
        self.write_others(f, Verdict::Pass)?;
        let Summary {
            passed,
            errors,
            warnings,
            infos,
            skipped,
        } = self.summary;
        writeln!(
            f,
            "\n{errors} errors, {warnings} warnings, {infos} worth knowing, {passed} passed, {skipped} skipped"
        )
    }
}

/// Returns a text that is fit to be printed, and shortened.
pub(super) fn clean(text: &str) -> String {
    // Counted in characters, so that none of several bytes is cut in two.
    let start: String = text.chars().take(SEEN_CHARS_MAX).collect();
    // GitHub's runner obeys this prefix anywhere in a line.
    let mut cleaned = printable::line(&start).replace("##[", "## [");
    if text.chars().nth(SEEN_CHARS_MAX).is_some() {
        cleaned.push('…');
    }
    cleaned
}

#[cfg(test)]
impl Report {
    /// Returns a report about one revision, with the same observation for every finding.
    pub(super) fn of(target: &str, findings: &[(Check, Verdict)], seen: &str) -> Report {
        let revision = "2025-11-25";
        let findings = findings
            .iter()
            .map(|(check, verdict)| Finding::new(*check, revision, *verdict, seen));
        Report::new(target.to_owned(), vec![revision.to_owned()], findings.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: &[(Check, Verdict)]) -> Report {
        Report::of("h", findings, "what was\u{1b}[2J seen")
    }

    #[test]
    fn worst_finding_decides() {
        let unknown_uri = (Check::UnknownUri, Verdict::Fail);
        let keep_alive = (Check::KeepAlive, Verdict::Fail);
        for (findings, worst) in [
            (&[(Check::ErrorCodes, Verdict::Pass)][..], None),
            (&[(Check::ErrorCodes, Verdict::Skipped)], None),
            (&[keep_alive], None),
            (&[keep_alive, unknown_uri], Some(Severity::Warning)),
            (
                &[unknown_uri, (Check::ErrorCodes, Verdict::Fail)],
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
    fn text_is_grouped_by_severity() {
        let text = report(&[
            (Check::UnknownUri, Verdict::Fail),
            (Check::ErrorCodes, Verdict::Fail),
            (Check::GracefulEnd, Verdict::Pass),
            (Check::KeepAlive, Verdict::Skipped),
        ])
        .to_string();
        let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle} in {text}"));
        assert!(
            at("errors\n  ✗ error-codes") < at("warnings\n  ! unknown-uri"),
            "{text}"
        );
        assert!(
            at("skipped\n  - keep-alive") < at("passed\n  ✓ graceful-end"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
        assert!(
            text.ends_with("1 errors, 1 warnings, 0 worth knowing, 1 passed, 1 skipped\n"),
            "{text}"
        );
    }

    #[test]
    fn findings_with_one_reason_are_one_line() {
        let text = report(&[
            (Check::UnknownUri, Verdict::Skipped),
            (Check::KeepAlive, Verdict::Skipped),
        ])
        .to_string();
        assert!(
            text.contains("  - unknown-uri [2025-11-25], keep-alive [2025-11-25]: what was"),
            "{text}"
        );
    }

    #[test]
    fn json_format_is_stable() {
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
                    "mend": Check::UnknownUri.remedy(),
                    "link": "https://modelcontextprotocol.io/specification/2025-11-25/server/resources",
                }],
            })
        );
    }

    #[test]
    fn long_text_is_shortened() {
        assert_eq!(clean(&"x".repeat(1000)).chars().count(), SEEN_CHARS_MAX + 1);
    }
}
