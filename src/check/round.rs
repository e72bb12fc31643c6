//! One round: what is looked at alike in both eras.
//!
//! Owns the peer of the round and the steps that need no subscription: counting announcements, watching for spurious
//! ones, error codes, signs of life. What it sees goes to the findings; [`Stop`] ends the round early.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::Options;
use super::catalog::{Check, Severity};
use super::log::Heard;
use super::peer::{LISTS, Peer, Stop};
use super::report::{Finding, Verdict};
use super::stdio::Ending;

/// How often everything is asked for while nothing may be told.
const REPEATS: usize = 3;

/// A resource that no server has.
pub(super) const UNKNOWN: &str = "tidings-check:///no-such-resource";

/// What is wrong, and how grave it is.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<(Severity, String)>);

impl Problems {
    pub(super) fn error(&mut self, text: impl Into<String>) {
        self.0.push((Severity::Error, text.into()));
    }

    pub(super) fn warning(&mut self, text: impl Into<String>) {
        self.0.push((Severity::Warning, text.into()));
    }
}

impl From<Vec<String>> for Problems {
    fn from(texts: Vec<String>) -> Problems {
        Problems(texts.into_iter().map(|text| (Severity::Error, text)).collect())
    }
}

pub(super) struct Round<'a> {
    pub(super) peer: Peer,
    pub(super) options: &'a Options,
    findings: &'a mut Vec<Finding>,
}

impl<'a> Round<'a> {
    pub(super) fn new(peer: Peer, options: &'a Options, findings: &'a mut Vec<Finding>) -> Round<'a> {
        Round {
            peer,
            options,
            findings,
        }
    }

    /// It failed when there are problems, no graver than the gravest of them and the check allow.
    pub(super) fn judge(&mut self, check: Check, problems: &Problems, fine: &str) {
        let Some(worst) = problems.0.iter().map(|(severity, _)| *severity).max() else {
            return self.find(check, Verdict::Pass, check.severity(), fine);
        };
        let texts: Vec<&str> = problems.0.iter().map(|(_, text)| text.as_str()).collect();
        self.find(
            check,
            Verdict::Fail,
            worst.min(check.severity()),
            &texts.join("; "),
        );
    }

    pub(super) fn skip(&mut self, check: Check, reason: &str) {
        self.find(check, Verdict::Skipped, check.severity(), reason);
    }

    fn find(&mut self, check: Check, verdict: Verdict, severity: Severity, seen: &str) {
        let mut finding = Finding::new(check, &self.peer.revision, verdict, seen);
        finding.severity = severity;
        self.findings.push(finding);
    }

    /// What came since `mark` by the end of the quiet time.
    pub(super) async fn quiet(&self, mark: usize) -> Vec<Heard> {
        sleep(self.options.quiet_time).await;
        self.peer.log.since(mark)
    }

    /// Counts what a fresh session is told.
    pub(super) async fn fresh(&mut self, mark: usize) {
        let counts = count(&self.quiet(mark).await);
        let mut problems = Problems::default();
        if counts.values().any(|count| *count > 1) {
            problems.warning(format!("a fresh session was told of {}", told(&counts)));
        }
        let fine = format!("a fresh session was told of {}", told(&counts));
        self.judge(Check::FreshAnnouncements, &problems, &fine);
    }

    /// Asks for everything again and again, and listens.
    pub(super) async fn spurious(&mut self) -> Result<(), Stop> {
        let mark = self.peer.log.mark();
        let until = Instant::now() + self.options.quiet_time;
        let before = self.peer.digests().await?;
        let uri = self.subject().await?;
        for _ in 0..REPEATS {
            self.peer.digests().await?;
            if let Some(uri) = &uri {
                self.peer.read(uri).await?;
            }
            if !self.peer.is_modern() {
                self.peer.call("ping", json!({})).await?;
            }
        }
        sleep_until(until).await;
        let counts = count(&self.peer.log.since(mark));
        let after = self.peer.digests().await?;
        let same = |kind: &str| {
            let of = |all: &[(&'static str, crate::Digest)]| {
                all.iter()
                    .filter(|(of, _)| *of == kind)
                    .map(|(_, digest)| *digest)
                    .collect::<Vec<_>>()
            };
            of(&before) == of(&after)
        };
        let spurious: BTreeMap<String, usize> = counts.into_iter().filter(|(kind, _)| same(kind)).collect();
        let mut problems = Problems::default();
        if !spurious.is_empty() {
            problems.error(format!("told of {} while nothing changed", told(&spurious)));
        }
        let fine = format!(
            "nothing was told in {:?} of lists, reads and silence",
            self.options.quiet_time
        );
        self.judge(Check::SpuriousListChanged, &problems, &fine);
        Ok(())
    }

    /// The resource to look at: the one that was named, else the first that is listed.
    pub(super) async fn subject(&self) -> Result<Option<String>, Stop> {
        if self.options.uri.is_some() || !self.peer.has("resources") {
            return Ok(self.options.uri.clone());
        }
        let listed = self.peer.items("resources/list", "resources").await?;
        let first = listed.iter().flatten().find_map(|item| item["uri"].as_str());
        Ok(first.map(str::to_owned))
    }

    pub(super) async fn error_codes(&mut self) -> Result<(), Stop> {
        let mut problems = Problems::default();
        let answer = self.peer.call("tidings-check/no-such-method", json!({})).await?;
        if answer.code() != Some(-32601) {
            problems.error(format!("an unknown method was answered with {answer}"));
        } else if self.peer.is_modern() && answer.status.is_some_and(|status| status != 404) {
            problems.error(format!(
                "an unknown method must have HTTP status 404, but was answered with {answer}"
            ));
        }
        if let Some((method, ..)) = LISTS.iter().find(|(.., kind)| self.peer.has(kind)) {
            let answer = self
                .peer
                .call(method, json!({ "cursor": "tidings-check-no-such-cursor" }))
                .await?;
            if answer.code() != Some(-32602) {
                problems.warning(format!(
                    "{method} with an invalid cursor was answered with {answer}"
                ));
            }
        }
        if self.peer.has("resources") {
            self.not_found(&mut problems).await?;
        }
        self.judge(Check::ErrorCodes, &problems, "every error had its code");
        Ok(())
    }

    async fn not_found(&self, problems: &mut Problems) -> Result<(), Stop> {
        let answer = self
            .peer
            .call("resources/read", json!({ "uri": UNKNOWN }))
            .await?;
        let modern = self.peer.is_modern();
        let expected = if modern { -32602 } else { -32002 };
        let text =
            format!("a read of an unknown resource must be answered with {expected}, but was with {answer}");
        match answer.code() {
            Some(code) if code == expected => {}
            // The older revisions only recommend a code.
            Some(_) if !modern => problems.warning(text),
            _ => problems.error(text),
        }
        Ok(())
    }

    /// Waits for a sign of life on a silent stream.
    pub(super) async fn keep_alive(&mut self, stream: bool) {
        let Some(idle) = self.options.idle else {
            return self.skip(Check::KeepAlive, "give --idle SECONDS to wait for a sign of life");
        };
        if !self.peer.wire.is_http() || !stream {
            return self.skip(Check::KeepAlive, "there is no HTTP stream that could be cut");
        }
        let log = &self.peer.log;
        let alive = log.wait_sign(log.signs(), Instant::now() + idle).await;
        let mut problems = Problems::default();
        if !alive {
            problems.warning(format!("nothing came on a silent stream in {idle:?}"));
        }
        self.judge(
            Check::KeepAlive,
            &problems,
            "a silent stream carried a sign of life",
        );
    }

    /// Ends the process of the server, where there is one.
    pub(super) async fn end_process(&mut self) {
        let Some(ending) = self.peer.wire.end().await else {
            return self.skip(Check::GracefulEnd, "there is no session to end");
        };
        let mut problems = Problems::default();
        match ending {
            Ending::Closed => {}
            Ending::Terminated => {
                problems.warning("the process outlived its standard input by 5 s and ended on SIGTERM only");
            }
            Ending::Killed => {
                problems.error("the process outlived its standard input and SIGTERM by 5 s each");
            }
        }
        self.judge(
            Check::GracefulEnd,
            &problems,
            "the process ended with its standard input",
        );
    }
}

/// How often each list was said to have changed.
pub(super) fn count(heard: &[Heard]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for kind in heard.iter().filter_map(Heard::list) {
        *counts.entry(kind.to_owned()).or_default() += 1;
    }
    counts
}

fn told(counts: &BTreeMap<String, usize>) -> String {
    let mut text = String::new();
    for (kind, count) in counts {
        let comma = if text.is_empty() { "" } else { ", " };
        write!(text, "{comma}{count} {kind}/list_changed").expect("a string takes every text");
    }
    if text.is_empty() {
        "no list".to_owned()
    } else {
        text
    }
}

/// What is wrong with lists that are told of though nothing promised it.
pub(super) fn unpromised(peer: &Peer, heard: &[Heard], problems: &mut Problems) {
    for (kind, count) in count(heard) {
        if !peer.promises(&kind, "listChanged") {
            problems.error(format!(
                "{count} {kind}/list_changed came, but {kind}.listChanged is not advertised"
            ));
        }
    }
    let updates = heard.iter().filter(|heard| heard.updated().is_some()).count();
    if updates > 0 && !peer.promises("resources", "subscribe") {
        problems.error(format!(
            "{updates} resources/updated came, but resources.subscribe is not advertised"
        ));
    }
}

/// A short pause in which what comes too early would come.
pub(super) async fn hush() {
    sleep(Duration::from_millis(300)).await;
}
