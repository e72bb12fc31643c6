//! The check: tests how an MCP server announces changes, in every era of the protocol that it speaks.
//!
//! [`run`] connects to a server, makes the checks of the [catalog](Check) and returns a [`Report`]; it prints
//! nothing. Notifications are read from the wire, since a client library hides the faults that the checks
//! look for.

mod catalog;
mod tool_call;
mod options;
mod step;
mod report;
mod junit;
mod annotations;
mod answer;
mod transcript;
mod http;
mod stdio;
mod transport;
mod connection;
mod touch;
mod run;
mod updates;
mod list_change;
mod change_scenario;
mod legacy;
mod listen_rules;
mod modern;

use tokio::time::{Duration, Instant, timeout};

use crate::client::{CredentialsError, Era, Target};
use crate::wire::dialect::Revision;
use answer::TransportError;
use connection::{Aborted, Connection};
use report::clean;
use run::{CheckRun, Record};
use step::OnStep;

pub use catalog::{Check, Severity};
pub use options::{Options, Variables};
pub use report::{Finding, Report, Summary, Verdict};
pub use step::Step;
pub use tool_call::ToolCall;

/// The reason for which there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The server could not be connected to.
    #[error("cannot reach {target}: {reason}; is the server running?")]
    Unreachable {
        /// The server.
        target: String,
        /// The error of the connection.
        reason: String,
    },
    /// The server does not let this client in, or not with these credentials.
    #[error("{target} does not let this client in: {reason}")]
    Denied {
        /// The server.
        target: String,
        /// Its challenge, with the scope that it asks for.
        reason: String,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(CredentialsError),
    /// The server speaks no revision of the protocol that was tried.
    #[error("{target} is no MCP server that can be checked: {reason}")]
    NoServer {
        /// The server.
        target: String,
        /// The answer to each attempt.
        reason: String,
    },
}

/// Checks the server at `target` in every era that it speaks and `options` allow.
///
/// Ends within `options.timeout`, the waits for a first answer, the time that a process needs to be stopped,
/// and that in which a token is obtained. The check changes nothing on the server, except by
/// `options.touch` and `options.touch_tools`.
///
/// # Errors
/// [`CheckError`] when there is no server to check.
pub async fn run(target: &Target, options: &Options) -> Result<Report, CheckError> {
    run_with_steps(target, options, &|_| ()).await
}

/// Checks a server as [`run`] does, and tells `on_step` of each step when it begins.
///
/// # Errors
/// [`CheckError`] when there is no server to check.
pub async fn run_with_steps(
    target: &Target,
    options: &Options,
    on_step: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Report, CheckError> {
    options
        .credentials
        .prepare()
        .await
        .map_err(CheckError::Credentials)?;
    let mut eras = Eras {
        target,
        options,
        on_step,
        time_left: options.timeout,
        revisions: Vec::new(),
        findings: Vec::new(),
        refusals: Vec::new(),
        incomplete: None,
    };
    if options.era != Era::Modern {
        eras.check(false).await?;
    }
    if options.era != Era::Legacy {
        eras.check(true).await?;
    }
    eras.into_report()
}

/// The check of both eras, one after the other.
struct Eras<'a> {
    target: &'a Target,
    options: &'a Options,
    on_step: OnStep<'a>,
    /// The time for the checks that are left.
    time_left: Duration,
    revisions: Vec<String>,
    findings: Vec<Finding>,
    /// The reasons for which an era could not be checked.
    refusals: Vec<String>,
    incomplete: Option<String>,
}

impl Eras<'_> {
    /// Checks one era, if the server speaks it.
    async fn check(&mut self, is_modern: bool) -> Result<(), CheckError> {
        let newest = match is_modern {
            true => Revision::R2026_07_28.as_str(),
            false => Revision::R2025_11_25.as_str(),
        };
        if self.time_left.is_zero() {
            self.note_incomplete(&format!("{newest} was not tried: {}", self.out_of_time()));
            return Ok(());
        }
        let limit = self.options.start_timeout;
        (self.on_step)(Step {
            revision: newest,
            text: &format!("waiting for the first answer, at most {limit:?}"),
        });
        let connection = match Connection::open(self.target, self.options, is_modern).await {
            Ok(connection) => connection,
            Err(error) => return self.add_unopened(is_modern, newest, &error),
        };
        let revision = connection.revision().as_str();
        // Outside the run, so that the findings made so far stay when the time is over.
        let mut record = Record::default();
        let mut run = CheckRun::new(connection, self.options, &mut record, self.on_step);
        let text = format!("{} was answered", opening_method(is_modern));
        run.conclude(Check::OpeningAnswered, &run::Problems::default(), &text);
        let started = Instant::now();
        let ended = timeout(self.time_left, async {
            match is_modern {
                true => modern::check(&mut run).await,
                false => legacy::check(&mut run).await,
            }
        });
        let aborted = match ended.await {
            Ok(Ok(())) => None,
            Ok(Err(Aborted(reason))) => Some(reason),
            Err(_) => Some(self.out_of_time()),
        };
        self.time_left = self.time_left.saturating_sub(started.elapsed());
        // Ends the connection, and with it the process of a server on standard input and output.
        drop(run);
        self.add_findings(is_modern, revision, record, aborted);
        Ok(())
    }

    /// Judges an era that could not be opened: the server may refuse it, but has to answer.
    fn add_unopened(
        &mut self,
        is_modern: bool,
        revision: &str,
        error: &TransportError,
    ) -> Result<(), CheckError> {
        // A server that was reached before has failed in this era rather than gone.
        let is_first = self.revisions.is_empty() && self.refusals.is_empty();
        let target = self.shown_target();
        let mut reason = clean(&error.to_string());
        match error {
            TransportError::Unreachable(_) if is_first => {
                return Err(CheckError::Unreachable { target, reason });
            }
            TransportError::Denied(_) if self.revisions.is_empty() => {
                return Err(CheckError::Denied { target, reason });
            }
            TransportError::Credentials(error) => return Err(CheckError::Credentials(error.clone())),
            TransportError::Timeout(_) => {
                let method = opening_method(is_modern);
                reason = format!("{method}: {reason}; allow more with --start-timeout");
            }
            _ => {}
        }
        let (verdict, seen) = match error {
            TransportError::NotSpoken(_) => (Verdict::Pass, format!("not spoken: {reason}")),
            _ => (Verdict::Fail, format!("the revision cannot be used: {reason}")),
        };
        let mut finding = Finding::new(Check::OpeningAnswered, revision, verdict, &seen);
        // Older servers were never told how to answer a first request that they do not know, so clients have
        // to cope with a process that ends or keeps silent, at the price of a wait.
        if is_modern && matches!(self.target, Target::Command(_)) {
            finding.severity = Severity::Warning;
        }
        self.findings.push(finding);
        self.refusals.push(reason);
        Ok(())
    }

    /// Returns the server as it is printed: the file of a host may name it in any way.
    fn shown_target(&self) -> String {
        clean(&self.target.to_string())
    }

    fn out_of_time(&self) -> String {
        let limit = self.options.timeout;
        format!("the time of {limit:?} is over; allow more with --timeout")
    }

    /// Keeps the first reason: the one for the second era usually follows from it.
    fn note_incomplete(&mut self, reason: &str) {
        self.incomplete.get_or_insert_with(|| clean(reason));
    }

    /// Adds the findings in the order of reports, and a skipped one for each check that was not made.
    fn add_findings(&mut self, is_modern: bool, revision: &str, record: Record, aborted: Option<String>) {
        let reason = aborted.as_deref().unwrap_or("not applicable to this server");
        let mut found = record.findings;
        for check in Check::ALL {
            if !check.applies_to(is_modern) {
                continue;
            }
            let index = found.iter().position(|finding| finding.id == check.id());
            self.findings.push(match index {
                Some(index) => found.swap_remove(index),
                None => Finding::new(check, revision, Verdict::Skipped, reason),
            });
        }
        self.revisions.push(revision.to_owned());
        if let Some(reason) = record.incomplete.or(aborted) {
            self.note_incomplete(&format!("{revision}: {reason}"));
        }
    }

    fn into_report(self) -> Result<Report, CheckError> {
        let target = self.shown_target();
        if self.revisions.is_empty() {
            let reasons: Vec<String> = self.incomplete.into_iter().chain(self.refusals).collect();
            let reason = reasons.join("; ") + &self.target.endpoint_hint();
            return Err(CheckError::NoServer { target, reason });
        }
        let mut report = Report::new(target, self.revisions, self.findings);
        report.incomplete = self.incomplete;
        Ok(report)
    }
}

/// Returns the request that opens an era.
fn opening_method(is_modern: bool) -> &'static str {
    match is_modern {
        true => "server/discover",
        false => "initialize",
    }
}
