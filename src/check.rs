//! A test of any MCP server's manners in telling of changes.
//!
//! Owns the order of a run: which eras the server speaks, one round for each, and the time that all of it may take.
//! It speaks the wire itself, since a client library hides what is looked for. It receives a target and options from
//! the command line or any other code, and answers a [`Report`]; it prints nothing.

mod catalog;
mod report;
mod log;
mod sse;
mod wire;
mod http;
mod stdio;
mod peer;
mod touch;
mod filter;
mod round;
mod story;
mod legacy;
mod modern;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::{Duration, Instant, timeout_at};

use crate::client::{Era, Target};
use log::Log;
use peer::{Peer, Stop, client_info};
use round::Round;
use wire::{Trouble, Wire};

pub use catalog::{Check, Severity};
pub use report::{Finding, Report, Summary, Verdict};

const MODERN: &str = "2026-07-28";
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// How long one answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Shell command that changes the resource; without it no check that needs a change is made.
    pub touch: Option<String>,
    /// The resource that it changes; the first that is listed by default.
    pub uri: Option<String>,
    /// How long is listened for what must not come; 3 s by default.
    pub quiet_time: Duration,
    /// How long is waited for the notice of a change; 5 s by default.
    pub wait: Duration,
    /// Within which time a silent stream must show that it is alive; not looked at by default.
    pub idle: Option<Duration>,
    /// How long the whole run may take; 60 s by default. What was not looked at by then is skipped, and the report is
    /// incomplete.
    pub timeout: Duration,
    /// Which revisions are spoken; all that the server knows by default.
    pub era: Era,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            touch: None,
            uri: None,
            quiet_time: Duration::from_secs(3),
            wait: Duration::from_secs(5),
            idle: None,
            timeout: Duration::from_secs(60),
            era: Era::Auto,
        }
    }
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// Nobody answers there.
    #[error("cannot reach {target}: {reason}; is the server running?")]
    Unreachable {
        /// The server.
        target: String,
        /// What happened.
        reason: String,
    },
    /// Whoever answers speaks no revision of the protocol that was tried.
    #[error("{target} is no MCP server that can be checked: {reason}")]
    NoServer {
        /// The server.
        target: String,
        /// What it said to each attempt.
        reason: String,
    },
}

/// Looks at the server at `target`, in every era it speaks and `options` allow.
///
/// It ends by `options.timeout`, give or take the time a process needs to be stopped. Nothing of the server is
/// changed, except by `options.touch`.
///
/// # Errors
/// [`CheckError`] when there is no server to look at.
pub async fn run(target: &Target, options: &Options) -> Result<Report, CheckError> {
    let deadline = Instant::now() + options.timeout;
    let mut run = Run {
        target,
        options,
        deadline,
        revisions: Vec::new(),
        findings: Vec::new(),
        refusals: Vec::new(),
        incomplete: None,
    };
    if options.era != Era::Modern {
        run.round(false).await?;
    }
    if options.era != Era::Legacy {
        run.round(true).await?;
    }
    run.report()
}

struct Run<'a> {
    target: &'a Target,
    options: &'a Options,
    deadline: Instant,
    revisions: Vec<String>,
    findings: Vec<Finding>,
    refusals: Vec<String>,
    incomplete: Option<String>,
}

impl Run<'_> {
    /// Looks at one era, if the server speaks it.
    async fn round(&mut self, modern: bool) -> Result<(), CheckError> {
        let peer = match timeout_at(self.deadline, connect(self.target, modern)).await {
            Ok(Ok(peer)) => peer,
            Ok(Err(Trouble::Unreachable(reason))) if self.revisions.is_empty() => {
                let target = self.target.to_string();
                return Err(CheckError::Unreachable { target, reason });
            }
            Ok(Err(trouble)) => {
                self.refusals.push(trouble.to_string());
                return Ok(());
            }
            Err(_) => {
                let era = if modern {
                    "2026-07-28 was"
                } else {
                    "the older revisions were"
                };
                self.incomplete = Some(format!("{era} not tried; {}", self.late()));
                return Ok(());
            }
        };
        let revision = peer.revision.clone();
        let mut found = Vec::new();
        let mut round = Round::new(peer, self.options, &mut found);
        let ended = timeout_at(self.deadline, async {
            if modern {
                modern::look(&mut round).await
            } else {
                legacy::look(&mut round).await
            }
        });
        let stopped = match ended.await {
            Ok(Ok(())) => None,
            Ok(Err(Stop(reason))) => Some(reason),
            Err(_) => Some(self.late()),
        };
        drop(round);
        self.complete(&revision, modern, found, stopped);
        Ok(())
    }

    fn late(&self) -> String {
        format!(
            "the time of {:?} is over; allow more with --timeout",
            self.options.timeout
        )
    }

    /// Puts the findings into their order, and a skipped one in place of each that is missing.
    fn complete(&mut self, revision: &str, modern: bool, mut found: Vec<Finding>, stopped: Option<String>) {
        let reason = stopped.as_deref().unwrap_or("nothing to look at");
        for check in Check::ALL.into_iter().filter(|check| check.applies(modern)) {
            let place = found.iter().position(|finding| finding.id == check.id());
            self.findings.push(match place {
                Some(place) => found.swap_remove(place),
                None => Finding::new(check, revision, Verdict::Skipped, reason),
            });
        }
        self.revisions.push(revision.to_owned());
        if self.incomplete.is_none() {
            self.incomplete = stopped.map(|reason| format!("{revision}: {reason}"));
        }
    }

    fn report(self) -> Result<Report, CheckError> {
        let target = self.target.to_string();
        if self.revisions.is_empty() {
            let reason = self
                .incomplete
                .into_iter()
                .chain(self.refusals)
                .collect::<Vec<_>>()
                .join("; ");
            return Err(CheckError::NoServer { target, reason });
        }
        let mut report = Report::new(target, self.revisions, self.findings);
        report.incomplete = self.incomplete;
        Ok(report)
    }
}

/// Meets the server in one era.
async fn connect(target: &Target, modern: bool) -> Result<Peer, Trouble> {
    let log = Arc::new(Log::default());
    let wire = Wire::open(target, log.clone(), ANSWER_WITHIN)?;
    let mut peer = Peer::new(wire, log, ANSWER_WITHIN);
    let (method, params) = if modern {
        peer.revision = MODERN.to_owned();
        peer.wire.settle(MODERN);
        ("server/discover", json!({}))
    } else {
        let newest = LEGACY[LEGACY.len() - 1];
        (
            "initialize",
            json!({ "protocolVersion": newest, "capabilities": {}, "clientInfo": client_info() }),
        )
    };
    let answer = peer.try_call(method, params).await?;
    let refused = |what: String| Trouble::Broken(format!("{method} was answered with {what}"));
    let result = answer.result().ok_or_else(|| refused(answer.to_string()))?;
    peer.capabilities = result["capabilities"].clone();
    if modern {
        let supported = result["supportedVersions"].as_array();
        let speaks = supported.is_some_and(|all| all.contains(&Value::from(MODERN)));
        speaks
            .then_some(())
            .ok_or_else(|| refused(format!("versions without {MODERN}")))?;
    } else {
        let revision = result["protocolVersion"].as_str().unwrap_or_default();
        if !LEGACY.contains(&revision) {
            return Err(refused(format!("the unknown revision {revision:?}")));
        }
        peer.wire.settle(revision);
        peer.revision = revision.to_owned();
    }
    Ok(peer)
}
