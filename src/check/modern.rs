//! The run against 2026-07-28, which has listen streams instead of sessions.
//!
//! It opens a stream for every list, one for an unknown resource and one for the resource under test.
//! [`super::listen_rules`] judges the messages on them.

use serde_json::{Value, json};

use super::answer::describe_error;
use super::catalog::Check;
use super::change_scenario::TouchedResource;
use super::connection::{Aborted, KINDS};
use super::listen_rules::{belongs_to, filter_uris, find_problems, list_flag};
use super::run::{CheckRun, METHOD_NOT_FOUND, Problems, UNKNOWN_URI, find_unadvertised};
use super::transcript::Received;
use crate::wire::dialect::{ACKNOWLEDGED, resource_filter};

/// A listen request and its outcome.
struct ListenStream {
    id: Value,
    requested: Value,
    /// The filter in the acknowledgement, or the reason for which there is none.
    granted: Result<Value, String>,
    /// False if the server does not know the method.
    is_implemented: bool,
}

impl ListenStream {
    /// Sends a listen request and waits for its acknowledgement or its refusal.
    async fn open(run: &CheckRun<'_>, id: Value, requested: Value) -> Result<ListenStream, Aborted> {
        let connection = &run.connection;
        let start = connection.transcript.position();
        connection.listen(&id, &requested).await?;
        let deadline = connection.answer_deadline();
        let decision = connection.transcript.wait_for(start, deadline, |received| {
            let is_response = received.message.get("method").is_none();
            belongs_to(received, &id) && (is_response || received.method() == ACKNOWLEDGED)
        });
        let decision = decision.await;
        let code = decision
            .as_ref()
            .map(|received| &received.message["error"]["code"]);
        let is_implemented = code != Some(&json!(METHOD_NOT_FOUND));
        let granted = match decision {
            Some(received) if received.method() == ACKNOWLEDGED => {
                Ok(received.message["params"]["notifications"].clone())
            }
            Some(received) if received.message["error"].is_null() => Err("no acknowledgement".to_owned()),
            Some(received) => Err(describe_error(&received.message["error"])),
            None => Err("no acknowledgement in time".to_owned()),
        };
        Ok(ListenStream {
            id,
            requested,
            granted,
            is_implemented,
        })
    }

    fn received(&self, run: &CheckRun<'_>) -> Vec<Received> {
        let mut received = run.connection.transcript.since(0);
        received.retain(|received| belongs_to(received, &self.id));
        received
    }

    fn grants_list(&self, kind: &str) -> bool {
        match &self.granted {
            Ok(granted) => granted[list_flag(kind)] == true,
            Err(_) => false,
        }
    }

    fn grants_uri(&self, uri: &str) -> bool {
        match &self.granted {
            Ok(granted) => filter_uris(granted).contains(&uri),
            Err(_) => false,
        }
    }

    /// Describes the answer to a request that was granted less than it asked for.
    fn answer(&self) -> String {
        match &self.granted {
            Ok(granted) => format!("the acknowledgement {granted}"),
            Err(reason) => reason.clone(),
        }
    }
}

/// Makes all checks of this era.
pub(super) async fn check(run: &mut CheckRun<'_>) -> Result<(), Aborted> {
    let mut promises = Problems::default();
    let start = run.connection.transcript.position();
    let every_list: Value = KINDS.iter().map(|kind| (list_flag(kind), json!(true))).collect();
    // The ids have both JSON types, since a server may tag messages with the wrong one.
    let lists = ListenStream::open(run, json!("tidings-check"), every_list).await?;
    find_missing_lists(run, &lists, &mut promises);
    let kinds = KINDS.into_iter();
    run.open_lists = kinds.filter(|kind| lists.grants_list(kind)).collect();
    match &lists.granted {
        Ok(_) => {
            run.check_fresh_announcements(start).await?;
            run.check_spurious_changes().await?;
        }
        Err(reason) => {
            let reason = format!("subscriptions/listen was answered with {reason}");
            run.skip(Check::FreshAnnouncements, &reason);
            run.skip(Check::SpuriousListChanged, &reason);
        }
    }
    run.check_error_codes().await?;
    let mut streams = vec![lists];
    check_subscriptions(run, &mut streams, &mut promises).await?;
    let received = run.connection.transcript.since(0);
    find_unadvertised(&run.connection, &received, &mut promises);
    run.conclude(
        Check::CapabilityPromises,
        &promises,
        "what is advertised works, and nothing else came",
    );
    let is_open = streams.iter().any(|stream| stream.granted.is_ok());
    run.check_keep_alive(is_open).await;
    check_filters(run, &streams, is_open);
    run.check_process_end().await;
    Ok(())
}

/// Adds a problem for each list whose changes are advertised but not granted.
fn find_missing_lists(run: &CheckRun<'_>, lists: &ListenStream, promises: &mut Problems) {
    for kind in KINDS {
        if run.connection.advertises(kind, "listChanged") && !lists.grants_list(kind) {
            let answer = lists.answer();
            promises.error(format!(
                "{kind}.listChanged is advertised, but subscriptions/listen was answered with {answer}"
            ));
        }
    }
}

/// Makes the checks of resource subscriptions, and of lists where nothing can be subscribed to; adds the
/// streams to `streams`.
async fn check_subscriptions(
    run: &mut CheckRun<'_>,
    streams: &mut Vec<ListenStream>,
    promises: &mut Problems,
) -> Result<(), Aborted> {
    let reason = match run.connection.advertises("resources", "subscribe") {
        false => {
            let reason = "resources.subscribe is not advertised";
            run.skip(Check::UnknownUri, reason);
            reason
        }
        true => match run.test_uri().await? {
            Some(uri) => match subscribe(run, &uri, streams, promises).await? {
                Some((id, start)) => return check_subscription(run, &uri, &id, start).await,
                None => "listening failed: see capability-promises",
            },
            None => {
                streams.push(check_unknown_uri(run).await?);
                "the server lists no resource; name one with --uri"
            }
        },
    };
    run.skip(Check::SpuriousUpdates, reason);
    run.skip_change_checks(Check::ListenObeyed, reason);
    run.check_lists_alone().await
}

/// Opens the stream of the resource under test, and one of an unknown resource.
///
/// Returns the id of the first and the position before it, or none if it is not granted.
async fn subscribe(
    run: &mut CheckRun<'_>,
    uri: &str,
    streams: &mut Vec<ListenStream>,
    promises: &mut Problems,
) -> Result<Option<(Value, usize)>, Aborted> {
    run.begin("listening to the resource");
    let start = run.connection.transcript.position();
    let stream = ListenStream::open(run, json!(7), resource_filter(&[uri])).await?;
    let opened = stream.grants_uri(uri).then(|| (stream.id.clone(), start));
    if opened.is_some() {
        streams.push(check_unknown_uri(run).await?);
    } else {
        let answer = stream.answer();
        promises.error(format!(
            "resources.subscribe is advertised, but subscriptions/listen for {uri} was answered with {answer}"
        ));
        // A refusal of an unknown resource says nothing where every resource is refused.
        run.skip(Check::UnknownUri, "listening failed: see capability-promises");
    }
    streams.push(stream);
    Ok(opened)
}

async fn check_unknown_uri(run: &mut CheckRun<'_>) -> Result<ListenStream, Aborted> {
    let stream = ListenStream::open(run, json!(8), resource_filter(&[UNKNOWN_URI])).await?;
    if !stream.is_implemented {
        run.skip(Check::UnknownUri, "subscriptions/listen is not implemented");
        return Ok(stream);
    }
    let mut problems = Problems::default();
    if stream.grants_uri(UNKNOWN_URI) {
        problems.warning(format!("a subscription to {UNKNOWN_URI} was acknowledged"));
    }
    run.conclude(
        Check::UnknownUri,
        &problems,
        "a subscription to an unknown URI was not granted",
    );
    Ok(stream)
}

/// Checks the subscription to `uri`, which began after the position `start`, a change within it, and one
/// after its end.
async fn check_subscription(
    run: &mut CheckRun<'_>,
    uri: &str,
    id: &Value,
    start: usize,
) -> Result<(), Aborted> {
    let is_notice = |received: &Received| belongs_to(received, id) && received.announces(uri);
    let change = TouchedResource {
        uri,
        check: Check::ListenObeyed,
        silence: run.check_spurious_updates(uri, start, is_notice).await?,
    };
    if !run.check_change(change, is_notice).await? {
        return Ok(());
    }
    if run.connection.transport.is_http() {
        let reason = "over HTTP a subscription ends with its stream, on which nothing more can come";
        run.skip(Check::UnsubscribeObeyed, reason);
        return Ok(());
    }
    let params = json!({ "requestId": id });
    run.connection.notify("notifications/cancelled", params).await?;
    run.connection.catch_up().await?;
    run.check_unsubscribed(uri, is_notice).await
}

fn check_filters(run: &mut CheckRun<'_>, streams: &[ListenStream], is_open: bool) {
    if !is_open {
        return run.skip(Check::FilterObeyed, "no listen stream could be opened");
    }
    let mut texts: Vec<String> = Vec::new();
    for stream in streams {
        for text in find_problems(&stream.id, &stream.requested, &stream.received(run)) {
            // Streams that share standard output share their problems too.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
    }
    let mut problems = Problems::default();
    for text in texts {
        problems.error(text);
    }
    let count = streams.len();
    let pass_text = format!("{count} streams carried what was asked for, tagged and acknowledged first");
    run.conclude(Check::FilterObeyed, &problems, &pass_text);
}
