//! The check: tests how an MCP server announces changes, in every era of the protocol that it speaks.
//!
//! [`run`] connects to a server, makes the checks of the [catalog](Check) and returns a [`Report`]; it prints
//! nothing. Notifications are read from the wire, since a client library hides the faults that the checks
//! look for.

mod catalog;
mod options;
mod report;
mod answer;
mod transcript;
mod http;
mod stdio;
mod transport;
mod connection;
mod touch_command;
mod run;
mod change_scenario;
mod legacy;
mod listen_rules;
mod modern;

use tokio::time::{Instant, timeout_at};

use crate::client::{CredentialsError, Era, Target};
use answer::TransportError;
use connection::{Aborted, Connection};
use run::CheckRun;

pub use catalog::{Check, Severity};
pub use options::Options;
pub use report::{Finding, Report, Summary, Verdict};

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
/// Ends within `options.timeout`, the time that a process needs to be stopped, and that in which a token is
/// obtained. The check changes nothing
/// on the server, except by the command in `options.touch`.
///
/// # Errors
/// [`CheckError`] when there is no server to check.
pub async fn run(target: &Target, options: &Options) -> Result<Report, CheckError> {
    options
        .credentials
        .prepare()
        .await
        .map_err(CheckError::Credentials)?;
    let mut eras = Eras {
        target,
        options,
        deadline: Instant::now() + options.timeout,
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
    deadline: Instant,
    revisions: Vec<String>,
    findings: Vec<Finding>,
    /// The reasons for which an era could not be checked.
    refusals: Vec<String>,
    incomplete: Option<String>,
}

impl Eras<'_> {
    /// Checks one era, if the server speaks it.
    async fn check(&mut self, is_modern: bool) -> Result<(), CheckError> {
        let opened = timeout_at(
            self.deadline,
            Connection::open(self.target, &self.options.credentials, is_modern),
        );
        let connection = match opened.await {
            Ok(Ok(connection)) => connection,
            // A server that was reached before has refused this era rather than gone.
            Ok(Err(TransportError::Unreachable(reason))) if self.revisions.is_empty() => {
                let target = self.target.to_string();
                return Err(CheckError::Unreachable { target, reason });
            }
            Ok(Err(TransportError::Denied(challenge))) if self.revisions.is_empty() => {
                return Err(CheckError::Denied {
                    target: self.target.to_string(),
                    reason: challenge.to_string(),
                });
            }
            Ok(Err(TransportError::Credentials(error))) => return Err(CheckError::Credentials(error)),
            Ok(Err(error)) => {
                self.refusals.push(error.to_string());
                return Ok(());
            }
            Err(_) => {
                let era = match is_modern {
                    true => "2026-07-28 was",
                    false => "the older revisions were",
                };
                self.incomplete = Some(format!("{era} not tried; {}", self.out_of_time()));
                return Ok(());
            }
        };
        let revision = connection.revision().as_str();
        // Outside the run, so that the findings made so far stay when the time is over.
        let mut found = Vec::new();
        let mut run = CheckRun::new(connection, self.options, &mut found);
        let ended = timeout_at(self.deadline, async {
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
        // Ends the connection, and with it the process of a server on standard input and output.
        drop(run);
        self.add_findings(is_modern, revision, found, aborted);
        Ok(())
    }

    fn out_of_time(&self) -> String {
        let limit = self.options.timeout;
        format!("the time of {limit:?} is over; allow more with --timeout")
    }

    /// Adds the findings in the order of reports, and a skipped one for each check that was not made.
    fn add_findings(
        &mut self,
        is_modern: bool,
        revision: &str,
        mut found: Vec<Finding>,
        aborted: Option<String>,
    ) {
        let reason = aborted.as_deref().unwrap_or("not applicable to this server");
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
        // The first reason is told: the one for the second era usually follows from it.
        if self.incomplete.is_none() {
            self.incomplete = aborted.map(|reason| format!("{revision}: {reason}"));
        }
    }

    fn into_report(self) -> Result<Report, CheckError> {
        let target = self.target.to_string();
        if self.revisions.is_empty() {
            let reasons: Vec<String> = self.incomplete.into_iter().chain(self.refusals).collect();
            let reason = reasons.join("; ");
            return Err(CheckError::NoServer { target, reason });
        }
        let mut report = Report::new(target, self.revisions, self.findings);
        report.incomplete = self.incomplete;
        Ok(report)
    }
}
