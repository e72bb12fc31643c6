//! The report as workflow commands of GitHub Actions, which shows them beside the run.

use super::CheckError;
use super::catalog::Severity;
use super::report::{Finding, Report};

impl Report {
    /// Returns a line for each failure, and one for a report that is incomplete: workflow commands of GitHub
    /// Actions.
    pub fn to_github(&self) -> String {
        let mut lines = String::new();
        if let Some(reason) = &self.incomplete {
            lines.push_str(&command("error", "not everything could be checked", reason));
        }
        // The runner shows a limited number of each kind, so the gravest come first.
        let mut failed: Vec<&Finding> = self.failed().collect();
        failed.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        for finding in failed {
            let kind = match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Info => "notice",
            };
            let title = format!("{} [{}]", finding.id, finding.revision);
            let remedy = finding.remedy.unwrap_or_default();
            lines.push_str(&command(
                kind,
                &title,
                &format!("{}\n{remedy}\n{}", finding.seen, finding.link),
            ));
        }
        lines
    }
}

impl CheckError {
    /// Returns the error as a workflow command of GitHub Actions.
    pub fn to_github(&self) -> String {
        command("error", "tidings check", &self.to_string())
    }
}

/// Returns one command: its kind, and a title and a text that are escaped as the runner expects it.
fn command(kind: &str, title: &str, text: &str) -> String {
    let title = escape_data(title).replace(':', "%3A").replace(',', "%2C");
    format!("::{kind} title={title}::{}\n", escape_data(text))
}

fn escape_data(text: &str) -> String {
    // The sign of an escape comes first, so that no other escape is escaped again.
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Check, Verdict};

    #[test]
    fn each_failure_is_one_escaped_line() {
        let findings = [
            (Check::KeepAlive, Verdict::Fail),
            (Check::UnknownUri, Verdict::Fail),
            (Check::ErrorCodes, Verdict::Fail),
            (Check::GracefulEnd, Verdict::Pass),
        ];
        let mut report = Report::of("h", &findings, "50 %\n::error::forged");
        report.incomplete = Some("100 %\r\n, a: b".to_owned());
        let text = report.to_github();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "::error title=not everything could be checked::100 %25%0D%0A, a: b"
        );
        let starts = [
            "::error title=error-codes [2025-11-25]::50 %25 ::error::forged%0A",
            "::warning title=unknown-uri [2025-11-25]::50 %25 ",
            "::notice title=keep-alive [2025-11-25]::",
        ];
        assert_eq!(lines.len(), 1 + starts.len(), "{text}");
        for (line, start) in lines[1..].iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn title_has_no_sign_of_its_own() {
        assert_eq!(
            command("error", "a: b, c%", "x"),
            "::error title=a%3A b%2C c%25::x\n"
        );
    }
}
