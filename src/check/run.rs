//! The run of the checks against one era of the protocol: its findings, and the checks that both eras have in
//! common.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::catalog::{Check, Severity};
use super::connection::{Aborted, Connection, LISTS, ListState};
use super::options::Options;
use super::report::{Finding, Verdict};
use super::stdio::ProcessEnd;
use super::step::{OnStep, Step};
use super::transcript::Received;
use crate::Digest;

/// The number of times that everything is read while no change may be announced.
const REPEATS: usize = 3;

/// The pause in which a message that comes too early is awaited.
const EARLY_PAUSE: Duration = Duration::from_millis(300);

/// The code of an answer to a method that the server does not have.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// A resource that no server has.
pub(super) const UNKNOWN_URI: &str = "tidings-check:///no-such-resource";

/// The problems that one check found, each with its severity.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<(Severity, String)>);

impl Problems {
    pub(super) fn error(&mut self, text: impl Into<String>) {
        self.0.push((Severity::Error, text.into()));
    }

    pub(super) fn warning(&mut self, text: impl Into<String>) {
        self.0.push((Severity::Warning, text.into()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The number of changes announced per kind of list.
type ListChanges = BTreeMap<String, usize>;

/// The outcome of a run.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) findings: Vec<Finding>,
    /// The reason for which some checks could not be made.
    pub(super) incomplete: Option<String>,
}

/// A run of the checks over one connection.
pub(super) struct CheckRun<'a> {
    pub(super) connection: Connection,
    pub(super) options: &'a Options,
    /// The kinds of lists whose changes can be announced: there is a stream for them.
    pub(super) open_lists: Vec<&'static str>,
    record: &'a mut Record,
    on_step: OnStep<'a>,
}

impl<'a> CheckRun<'a> {
    /// Makes a run that writes to `record`, where its findings stay if the run is cancelled.
    pub(super) fn new(
        connection: Connection,
        options: &'a Options,
        record: &'a mut Record,
        on_step: OnStep<'a>,
    ) -> CheckRun<'a> {
        CheckRun {
            connection,
            options,
            open_lists: Vec::new(),
            record,
            on_step,
        }
    }

    /// Tells of a step that begins.
    pub(super) fn begin(&self, text: &str) {
        let revision = self.connection.revision().as_str();
        (self.on_step)(Step { revision, text });
    }

    /// Notes the reason for which some checks cannot be made; the first one stays.
    pub(super) fn note_incomplete(&mut self, reason: &str) {
        self.record.incomplete.get_or_insert_with(|| reason.to_owned());
    }

    /// Adds the finding of a check: a failure if there are problems, else a pass described by `pass_text`.
    ///
    /// The severity of a failure is that of its gravest problem, and at most that of the check.
    pub(super) fn conclude(&mut self, check: Check, problems: &Problems, pass_text: &str) {
        let Some(worst) = problems.0.iter().map(|(severity, _)| *severity).max() else {
            return self.add(check, Verdict::Pass, check.severity(), pass_text);
        };
        let texts: Vec<&str> = problems.0.iter().map(|(_, text)| text.as_str()).collect();
        // The catalog has the upper limit: a missing keep-alive, say, is worth knowing and no warning.
        let severity = worst.min(check.severity());
        self.add(check, Verdict::Fail, severity, &texts.join("; "));
    }

    /// Adds the finding of a check that is not made, with the reason.
    pub(super) fn skip(&mut self, check: Check, reason: &str) {
        self.add(check, Verdict::Skipped, check.severity(), reason);
    }

    fn add(&mut self, check: Check, verdict: Verdict, severity: Severity, text: &str) {
        let revision = self.connection.revision().as_str();
        let mut finding = Finding::new(check, revision, verdict, text);
        finding.severity = severity;
        self.record.findings.push(finding);
    }

    /// Waits for the quiet time and returns the messages after `position`.
    pub(super) async fn received_in_quiet_time(&self, position: usize) -> Vec<Received> {
        sleep(self.options.quiet_time).await;
        self.connection.transcript.since(position)
    }

    /// Checks that the messages to a fresh session, those after `position`, announce each list at most once.
    pub(super) async fn check_fresh_announcements(&mut self, position: usize) -> Result<(), Aborted> {
        self.begin(&format!(
            "listening for {:?} to a fresh client",
            self.options.quiet_time
        ));
        // A server under load may welcome the client late, which is no announcement out of turn.
        self.connection.catch_up().await?;
        let changes = list_changes(&self.received_in_quiet_time(position).await);
        let text = format!("a fresh session received {}", describe(&changes));
        let mut problems = Problems::default();
        if changes.values().any(|count| *count > 1) {
            problems.warning(text.as_str());
        }
        self.conclude(Check::FreshAnnouncements, &problems, &text);
        Ok(())
    }

    /// Reads all lists and the resource several times, and checks that no change is announced meanwhile.
    pub(super) async fn check_spurious_changes(&mut self) -> Result<(), Aborted> {
        self.begin("reading the lists and the resource, while nothing may be announced");
        let start = self.connection.transcript.position();
        let quiet_until = Instant::now() + self.options.quiet_time;
        let before = self.connection.list_states().await?;
        let uri = self.test_uri().await?;
        for _ in 0..REPEATS {
            self.connection.list_states().await?;
            if let Some(uri) = &uri {
                self.connection.content_digest(uri).await?;
            }
            self.connection.catch_up().await?;
        }
        sleep_until(quiet_until).await;
        let mut changes = list_changes(&self.connection.transcript.since(start));
        let after = self.connection.list_states().await?;
        // A list may change by itself during the check; announcing that is right.
        changes.retain(|kind, _| states_of(kind, &before) == states_of(kind, &after));
        let mut problems = Problems::default();
        if !changes.is_empty() {
            problems.error(format!("{} came while nothing changed", describe(&changes)));
        }
        let quiet_time = self.options.quiet_time;
        let pass_text = format!("no change was announced in {quiet_time:?} of reads and silence");
        self.conclude(Check::SpuriousListChanged, &problems, &pass_text);
        Ok(())
    }

    /// Returns the resource under test: the one in the options, else the first that the server lists.
    pub(super) async fn test_uri(&self) -> Result<Option<String>, Aborted> {
        if self.options.uri.is_some() || !self.connection.has("resources") {
            return Ok(self.options.uri.clone());
        }
        self.connection.first_resource().await
    }

    /// Checks the codes of errors that clients decide by.
    pub(super) async fn check_error_codes(&mut self) -> Result<(), Aborted> {
        self.begin("sending wrong requests");
        let mut problems = Problems::default();
        self.check_unknown_method(&mut problems).await?;
        if let Some(list) = LISTS.iter().find(|list| self.connection.has_list(list)) {
            let params = json!({ "cursor": "tidings-check-no-such-cursor" });
            let answer = self.connection.call(list.method, params).await?;
            if answer.error_code() != Some(-32602) {
                let method = list.method;
                problems.warning(format!(
                    "{method} with an invalid cursor was answered with {answer}"
                ));
            }
        }
        if self.connection.has("resources") {
            self.check_unknown_resource(&mut problems).await?;
        }
        self.conclude(Check::ErrorCodes, &problems, "every error had its code");
        Ok(())
    }

    async fn check_unknown_method(&self, problems: &mut Problems) -> Result<(), Aborted> {
        let method = "tidings-check/no-such-method";
        let answer = self.connection.call(method, json!({})).await?;
        if answer.error_code() != Some(METHOD_NOT_FOUND) {
            problems.error(format!("an unknown method was answered with {answer}"));
            return Ok(());
        }
        match answer.status {
            Some(404) | None => {}
            // Only 2026-07-28 prescribes a status.
            Some(_) if !self.connection.is_modern() => {}
            Some(_) => problems.error(format!(
                "an unknown method must have HTTP status 404, but was answered with {answer}"
            )),
        }
        Ok(())
    }

    async fn check_unknown_resource(&self, problems: &mut Problems) -> Result<(), Aborted> {
        let params = json!({ "uri": UNKNOWN_URI });
        let answer = self.connection.call("resources/read", params).await?;
        let is_modern = self.connection.is_modern();
        let expected = match is_modern {
            true => -32602,
            false => -32002,
        };
        let text =
            format!("a read of an unknown resource must be answered with {expected}, but was with {answer}");
        match answer.error_code() {
            Some(code) if code == expected => {}
            // The older revisions only recommend a code.
            Some(_) if !is_modern => problems.warning(text),
            _ => problems.error(text),
        }
        Ok(())
    }

    /// Checks that a silent stream carries a keep-alive; `is_open` tells if there is a stream.
    pub(super) async fn check_keep_alive(&mut self, is_open: bool) {
        let Some(idle) = self.options.idle else {
            return self.skip(Check::KeepAlive, "give --idle TIME to wait for a sign of life");
        };
        // A pipe to a process is not cut by proxies, so it needs no keep-alive.
        if !self.connection.transport.is_http() || !is_open {
            return self.skip(Check::KeepAlive, "there is no HTTP stream that could be cut");
        }
        self.begin(&format!("waiting {idle:?} for a sign of life"));
        let deadline = Instant::now() + idle;
        let mut problems = Problems::default();
        if !self.connection.transcript.wait_for_activity(deadline).await {
            problems.warning(format!("nothing came on a silent stream in {idle:?}"));
        }
        let pass_text = "a silent stream carried a sign of life";
        self.conclude(Check::KeepAlive, &problems, pass_text);
    }

    /// Ends the process of the server, if there is one, and checks that it ends by itself.
    pub(super) async fn check_process_end(&mut self) {
        self.begin("ending the connection");
        let Some(end) = self.connection.transport.end_process().await else {
            return self.skip(Check::GracefulEnd, "there is no session to end");
        };
        let mut problems = Problems::default();
        match end {
            ProcessEnd::InputClosed => {}
            ProcessEnd::Terminated => {
                problems.warning("the process outlived its standard input by 5 s and ended on SIGTERM only");
            }
            ProcessEnd::Killed => {
                problems.error("the process outlived its standard input and SIGTERM by 5 s each");
            }
        }
        let pass_text = "the process ended with its standard input";
        self.conclude(Check::GracefulEnd, &problems, pass_text);
    }
}

/// Returns the states of the lists of one kind; resources have two lists.
fn states_of(kind: &str, states: &[ListState]) -> Vec<Digest> {
    let of_kind = states.iter().filter(|state| state.kind == kind);
    of_kind.map(|state| state.whole).collect()
}

/// Counts the announced changes of each kind of list.
fn list_changes(received: &[Received]) -> ListChanges {
    let mut changes = ListChanges::new();
    for kind in received.iter().flat_map(Received::changed_list) {
        *changes.entry(kind.to_owned()).or_default() += 1;
    }
    changes
}

fn describe(changes: &ListChanges) -> String {
    if changes.is_empty() {
        return "no list_changed".to_owned();
    }
    let mut texts = Vec::new();
    for (kind, count) in changes {
        texts.push(format!("{count} {kind}/list_changed"));
    }
    texts.join(", ")
}

/// Adds a problem for each kind of notification that came although the server does not advertise it.
pub(super) fn find_unadvertised(connection: &Connection, received: &[Received], problems: &mut Problems) {
    for (kind, count) in list_changes(received) {
        if !connection.advertises(&kind, "listChanged") {
            problems.error(format!(
                "{count} {kind}/list_changed came, but {kind}.listChanged is not advertised"
            ));
        }
    }
    let updates = received.iter().flat_map(Received::updated_uri).count();
    if updates > 0 && !connection.advertises("resources", "subscribe") {
        problems.error(format!(
            "{updates} resources/updated came, but resources.subscribe is not advertised"
        ));
    }
}

/// Gives messages that come too early the time to arrive.
pub(super) async fn await_early_messages() {
    sleep(EARLY_PAUSE).await;
}
