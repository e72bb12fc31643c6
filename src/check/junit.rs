//! The report as JUnit XML, which build systems show test by test.

use super::CheckError;
use super::catalog::Severity;
use super::report::{Finding, Report, Verdict};
use crate::printable;

impl Report {
    /// Returns the report as JUnit XML: a suite per revision, and a test per check.
    ///
    /// Errors and warnings are failures, with the severity as their type. A report that is incomplete has one
    /// more suite with an error.
    pub fn to_junit(&self) -> String {
        let mut suites = Suites::default();
        if let Some(reason) = &self.incomplete {
            suites.add_error(&self.target, "complete", reason);
        }
        let mut revisions: Vec<&str> = Vec::new();
        for finding in &self.checks {
            if !revisions.contains(&finding.revision.as_str()) {
                revisions.push(&finding.revision);
            }
        }
        for revision in revisions {
            let findings = self.checks.iter().filter(|finding| finding.revision == revision);
            suites.add_findings(&self.target, revision, &findings.collect::<Vec<_>>());
        }
        suites.finish()
    }
}

impl CheckError {
    /// Returns the error as JUnit XML, in place of a report.
    pub fn to_junit(&self) -> String {
        let mut suites = Suites::default();
        suites.add_error("tidings check", "server", &self.to_string());
        suites.finish()
    }
}

/// The suites written so far, and the counts of all of them.
#[derive(Debug, Default)]
struct Suites {
    xml: String,
    counts: TestCounts,
}

/// The numbers of tests in a suite.
#[derive(Debug, Default, Clone, Copy)]
struct TestCounts {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
}

impl TestCounts {
    fn attributes(self) -> String {
        let TestCounts {
            tests,
            failures,
            errors,
            skipped,
        } = self;
        format!(r#"tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}""#)
    }
}

impl Suites {
    /// Adds a suite with one test, which could not be made.
    fn add_error(&mut self, target: &str, name: &str, reason: &str) {
        let counts = TestCounts {
            tests: 1,
            errors: 1,
            ..TestCounts::default()
        };
        let target = escape(target);
        let case = format!(
            "    <testcase classname=\"{target}\" name=\"{name}\">\n      <error message=\"{}\"/>\n    </testcase>\n",
            escape(reason)
        );
        self.add_suite(name, counts, &case);
    }

    /// Adds the suite of one revision.
    fn add_findings(&mut self, target: &str, revision: &str, findings: &[&Finding]) {
        let mut counts = TestCounts::default();
        let mut cases = String::new();
        for finding in findings {
            counts.tests += 1;
            match (finding.verdict, finding.severity) {
                (Verdict::Fail, Severity::Error | Severity::Warning) => counts.failures += 1,
                (Verdict::Skipped, _) => counts.skipped += 1,
                (Verdict::Pass | Verdict::Fail, _) => {}
            }
            let class = format!("{}.{revision}", escape(target));
            let name = finding.id;
            let outcome = outcome(finding);
            cases.push_str(&format!(
                "    <testcase classname=\"{class}\" name=\"{name}\">{outcome}</testcase>\n"
            ));
        }
        self.add_suite(revision, counts, &cases);
    }

    fn add_suite(&mut self, name: &str, counts: TestCounts, cases: &str) {
        self.counts.tests += counts.tests;
        self.counts.failures += counts.failures;
        self.counts.errors += counts.errors;
        self.counts.skipped += counts.skipped;
        let name = escape(name);
        let attributes = counts.attributes();
        let suite = format!("  <testsuite name=\"{name}\" {attributes}>\n{cases}  </testsuite>\n");
        self.xml.push_str(&suite);
    }

    fn finish(self) -> String {
        let attributes = self.counts.attributes();
        let suites = self.xml;
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuites name=\"tidings check\" {attributes}>\n{suites}</testsuites>\n"
        )
    }
}

/// Returns the element within a test that has its outcome; nothing for a pass.
fn outcome(finding: &Finding) -> String {
    let seen = escape(&finding.seen);
    let remedy = escape(finding.remedy.unwrap_or_default());
    let link = escape(&finding.link);
    match (finding.verdict, finding.severity) {
        (Verdict::Pass, _) => String::new(),
        (Verdict::Skipped, _) => format!(r#"<skipped message="{seen}"/>"#),
        // No failure, since it does not affect the exit code either.
        (Verdict::Fail, Severity::Info) => format!("<system-out>{seen}</system-out>"),
        (Verdict::Fail, severity) => {
            let kind = severity.name();
            format!("<failure type=\"{kind}\" message=\"{seen}\">{remedy}\n{link}</failure>")
        }
    }
}

/// Returns a text for an attribute or an element, without the characters that XML 1.0 does not know.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if printable::steers(c) => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Check;

    #[test]
    fn each_verdict_has_its_element() {
        let findings = [
            (Check::ErrorCodes, Verdict::Fail),
            (Check::UnknownUri, Verdict::Fail),
            (Check::KeepAlive, Verdict::Fail),
            (Check::GracefulEnd, Verdict::Skipped),
            (Check::SubscribeObeyed, Verdict::Pass),
        ];
        let mut report = Report::of("h&h", &findings, "a <b> & \"c\"\u{1b}\u{ffff}]]>");
        report.incomplete = Some("time <over>".to_owned());
        let xml = report.to_junit();
        for part in [
            r#"<testsuites name="tidings check" tests="6" failures="2" errors="1" skipped="1">"#,
            r#"<testsuite name="2025-11-25" tests="5" failures="2" errors="0" skipped="1">"#,
            "<error message=\"time &lt;over&gt;\"/>",
            "<testcase classname=\"h&amp;h.2025-11-25\" name=\"error-codes\"><failure type=\"error\" \
             message=\"a &lt;b&gt; &amp; &quot;c&quot; \u{fffd}]]&gt;\">",
            r#"<failure type="warning""#,
            "<system-out>a &lt;b&gt;",
            r#"name="graceful-end"><skipped message="a"#,
            r#"name="subscribe-obeyed"></testcase>"#,
        ] {
            assert!(xml.contains(part), "{part}\n{xml}");
        }
        assert_eq!(
            xml.matches("<testcase ").count(),
            xml.matches("</testcase>").count()
        );
    }

    #[test]
    fn missing_server_is_an_error() {
        let error = CheckError::Unreachable {
            target: "h".to_owned(),
            reason: "refused <\n".to_owned(),
        };
        let xml = error.to_junit();
        assert!(
            xml.contains(r#"errors="1""#) && xml.contains("refused &lt; "),
            "{xml}"
        );
    }
}
