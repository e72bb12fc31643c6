//! The run against the revisions with sessions, which begin with `initialize`.
//!
//! It starts after the answer to `initialize` and before the client says that it is ready.

use serde_json::json;

use super::catalog::Check;
use super::change_scenario::TouchedResource;
use super::connection::{Aborted, KINDS};
use super::run::{
    CheckRun, METHOD_NOT_FOUND, Problems, UNKNOWN_URI, await_early_messages, find_unadvertised,
};
use super::transcript::Received;
use super::transport::Transport;

/// Makes the checks in the order in which the life of a session allows them.
pub(super) async fn check(run: &mut CheckRun<'_>) -> Result<(), Aborted> {
    // Opened before the client is ready: without a stream, no message could come too early over HTTP.
    let early = open_stream(run).await;
    await_early_messages().await;
    check_initialized_first(run);
    let ready = run.connection.transcript.position();
    run.connection
        .notify("notifications/initialized", json!({}))
        .await?;
    // A server may refuse the stream until the client is ready.
    let stream = match early {
        Ok(()) => Ok(()),
        Err(_) => open_stream(run).await,
    };
    if stream.is_ok() {
        run.open_lists = KINDS
            .into_iter()
            .filter(|kind| run.connection.advertises(kind, "listChanged"))
            .collect();
    }
    run.check_fresh_announcements(ready).await?;
    run.check_spurious_changes().await?;
    run.check_error_codes().await?;
    let mut promises = Problems::default();
    if let Err(refusal) = &stream {
        find_unreachable(run, refusal, &mut promises);
    }
    check_subscriptions(run, stream.is_ok(), &mut promises).await?;
    let received = run.connection.transcript.since(0);
    find_unadvertised(&run.connection, &received, &mut promises);
    run.conclude(
        Check::CapabilityPromises,
        &promises,
        "what is advertised works, and nothing else came",
    );
    run.check_keep_alive(stream.is_ok()).await;
    check_session_end(run).await
}

/// Opens the stream of notifications.
async fn open_stream(run: &CheckRun<'_>) -> Result<(), String> {
    let opened = run.connection.transport.open_stream().await;
    opened.map_err(|error| error.to_string())
}

fn check_initialized_first(run: &mut CheckRun<'_>) {
    let mut problems = Problems::default();
    for received in run.connection.transcript.since(0) {
        let method = received.method();
        if !matches!(method, "ping" | "notifications/message") {
            problems.warning(format!("{method} came before notifications/initialized"));
            break;
        }
    }
    run.conclude(
        Check::InitializedFirst,
        &problems,
        "nothing came before notifications/initialized",
    );
}

/// Adds a problem if notifications are advertised although the stream that carries them is refused.
fn find_unreachable(run: &CheckRun<'_>, refusal: &str, promises: &mut Problems) {
    let connection = &run.connection;
    let lists = KINDS
        .iter()
        .any(|kind| connection.advertises(kind, "listChanged"));
    if lists || connection.advertises("resources", "subscribe") {
        promises.error(format!(
            "notifications are advertised, but the stream that would carry them was refused ({refusal})"
        ));
    }
}

/// Makes the checks of resource subscriptions, and of lists where nothing can be subscribed to.
async fn check_subscriptions(
    run: &mut CheckRun<'_>,
    has_stream: bool,
    promises: &mut Problems,
) -> Result<(), Aborted> {
    run.begin("subscribing to the resource");
    let start = run.connection.transcript.position();
    let (subscribed, reason) = match subscribe(run, promises).await? {
        Ok(uri) => {
            check_unknown_uri(run).await?;
            if has_stream {
                return check_subscription(run, &uri, start).await;
            }
            (
                Some(uri),
                "there is no stream: see capability-promises".to_owned(),
            )
        }
        Err(reason) => (None, reason),
    };
    run.skip_change_checks(Check::SubscribeObeyed, &reason);
    run.check_lists_alone().await?;
    // After the change, which a server may announce to sessions that it refused.
    run.check_strangers(subscribed.as_deref(), &reason);
    Ok(())
}

/// Subscribes to the resource under test; returns it, or the reason for which there is no subscription.
async fn subscribe(
    run: &mut CheckRun<'_>,
    promises: &mut Problems,
) -> Result<Result<String, String>, Aborted> {
    if !run.connection.advertises("resources", "subscribe") {
        let reason = "resources.subscribe is not advertised".to_owned();
        run.skip(Check::UnknownUri, &reason);
        return Ok(Err(reason));
    }
    let uri = run.test_uri().await?;
    let subscribed = uri.as_deref().unwrap_or(UNKNOWN_URI);
    let params = json!({ "uri": subscribed });
    let answer = run.connection.call("resources/subscribe", params).await?;
    match (&uri, answer.result()) {
        (Some(uri), Some(_)) => return Ok(Ok(uri.clone())),
        // The only subscription that can be tried where there is no resource.
        (None, _) if answer.error_code() != Some(METHOD_NOT_FOUND) => {
            conclude_unknown_uri(run, answer.result().is_some());
            return Ok(Err("the server lists no resource; name one with --uri".to_owned()));
        }
        _ => {}
    }
    promises.error(format!(
        "resources.subscribe is advertised, but a subscription to {subscribed} was answered with {answer}"
    ));
    let reason = "subscribing failed: see capability-promises".to_owned();
    // A refusal of an unknown resource says nothing where every subscription is refused.
    run.skip(Check::UnknownUri, &reason);
    Ok(Err(reason))
}

async fn check_unknown_uri(run: &mut CheckRun<'_>) -> Result<(), Aborted> {
    let params = json!({ "uri": UNKNOWN_URI });
    let answer = run.connection.call("resources/subscribe", params).await?;
    conclude_unknown_uri(run, answer.result().is_some());
    Ok(())
}

fn conclude_unknown_uri(run: &mut CheckRun<'_>, is_accepted: bool) {
    let mut problems = Problems::default();
    if is_accepted {
        problems.warning(format!("a subscription to {UNKNOWN_URI} was accepted"));
    }
    run.conclude(
        Check::UnknownUri,
        &problems,
        "a subscription to an unknown URI was refused",
    );
}

/// Checks the subscription to `uri`, which began after the position `start`, a change within it, and one
/// after its end.
async fn check_subscription(run: &mut CheckRun<'_>, uri: &str, start: usize) -> Result<(), Aborted> {
    let is_notice = |received: &Received| received.announces(uri);
    let change = TouchedResource {
        uri,
        check: Check::SubscribeObeyed,
        silence: run.check_spurious_updates(uri, start, is_notice).await?,
    };
    let came = run.check_change(change, is_notice).await?;
    // Ended even without a notice, since the check of keep-alives needs a silent stream.
    let params = json!({ "uri": uri });
    let answer = run.connection.call("resources/unsubscribe", params).await?;
    if !came {
        return Ok(());
    }
    if answer.result().is_none() {
        let mut problems = Problems::default();
        problems.error(format!("resources/unsubscribe was answered with {answer}"));
        run.conclude(Check::UnsubscribeObeyed, &problems, "");
        return Ok(());
    }
    run.check_unsubscribed(uri, is_notice).await
}

/// Ends the session, and checks that the server then answers it with 404; over stdio, ends the process.
async fn check_session_end(run: &mut CheckRun<'_>) -> Result<(), Aborted> {
    let Transport::Http(http) = &run.connection.transport else {
        run.check_process_end().await;
        return Ok(());
    };
    run.begin("ending the session");
    if !http.has_session() {
        run.skip(Check::GracefulEnd, "the server gave no session id");
        return Ok(());
    }
    let mut problems = Problems::default();
    let mut pass_text = "the session ended, and is answered with 404";
    match http.delete_session().await? {
        200..300 => {
            // Any request will do, since all of them carry the id of the deleted session.
            let answer = run.connection.call("ping", json!({})).await?;
            if answer.status != Some(404) {
                problems.error(format!(
                    "a session that was deleted must be answered with HTTP status 404, but was with {answer}"
                ));
            }
        }
        // The specification lets a server refuse to have its sessions ended by clients.
        405 => pass_text = "the server ends sessions itself (405)",
        status => problems.error(format!(
            "DELETE of the session was answered with HTTP status {status}"
        )),
    }
    run.conclude(Check::GracefulEnd, &problems, pass_text);
    Ok(())
}
