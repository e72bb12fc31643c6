//! The round of the revisions that begin with `initialize`.
//!
//! Owns the order: before the client is ready, its first moments, silence, subscriptions, the end. The peer has been
//! initialized, and not said yet that it is ready.

use serde_json::json;

use super::catalog::Check;
use super::log::Heard;
use super::peer::Stop;
use super::round::{Problems, Round, UNKNOWN, hush, unpromised};
use super::wire::Wire;

pub(super) async fn look(round: &mut Round<'_>) -> Result<(), Stop> {
    let early = open(round).await;
    hush().await;
    initialized_first(round);
    let ready = round.peer.log.mark();
    round.peer.notify("notifications/initialized", json!({})).await?;
    let stream = match early {
        None => None,
        Some(_) => open(round).await,
    };
    round.fresh(ready).await;
    round.spurious().await?;
    round.error_codes().await?;
    let mut promises = Problems::default();
    if let Some(refused) = &stream {
        unheard(round, refused, &mut promises);
    }
    subscriptions(round, stream.is_none(), &mut promises).await?;
    unpromised(&round.peer, &round.peer.log.since(0), &mut promises);
    round.judge(
        Check::CapabilityPromises,
        &promises,
        "what is advertised works, and nothing else came",
    );
    round.keep_alive(stream.is_none()).await;
    graceful_end(round).await
}

/// Opens the stream of notifications; answers why there is none.
async fn open(round: &Round<'_>) -> Option<String> {
    match round.peer.wire.open_stream().await {
        Ok(None) => None,
        Ok(Some(status)) => Some(format!("HTTP status {status}")),
        Err(trouble) => Some(trouble.to_string()),
    }
}

fn initialized_first(round: &mut Round<'_>) {
    let allowed = |heard: &Heard| matches!(heard.method(), "ping" | "notifications/message");
    let mut problems = Problems::default();
    if let Some(early) = round.peer.log.since(0).iter().find(|heard| !allowed(heard)) {
        problems.warning(format!(
            "{} came before notifications/initialized",
            early.method()
        ));
    }
    round.judge(
        Check::InitializedFirst,
        &problems,
        "nothing came before notifications/initialized",
    );
}

/// What is advertised though it can reach nobody.
fn unheard(round: &Round<'_>, refused: &str, promises: &mut Problems) {
    let peer = &round.peer;
    let lists = ["tools", "prompts", "resources"]
        .iter()
        .any(|kind| peer.promises(kind, "listChanged"));
    if lists || peer.promises("resources", "subscribe") {
        promises.error(format!(
            "notifications are advertised, but the stream that would carry them was refused ({refused})"
        ));
    }
}

async fn subscriptions(round: &mut Round<'_>, stream: bool, promises: &mut Problems) -> Result<(), Stop> {
    if !round.peer.promises("resources", "subscribe") {
        let reason = "resources.subscribe is not advertised";
        round.skip(Check::UnknownUri, reason);
        round.skip_story(Check::SubscribeObeyed, reason);
        return Ok(());
    }
    let answer = round
        .peer
        .call("resources/subscribe", json!({ "uri": UNKNOWN }))
        .await?;
    let mut problems = Problems::default();
    if answer.result().is_some() {
        problems.warning(format!("a subscription to {UNKNOWN} was accepted"));
    }
    round.judge(
        Check::UnknownUri,
        &problems,
        "a subscription to an unknown URI was refused",
    );
    let Some(uri) = round.subject().await? else {
        round.skip_story(
            Check::SubscribeObeyed,
            "the server lists no resource; name one with --uri",
        );
        return Ok(());
    };
    let answer = round
        .peer
        .call("resources/subscribe", json!({ "uri": uri }))
        .await?;
    if answer.result().is_none() {
        promises.error(format!(
            "resources.subscribe is advertised, but a subscription to {uri} was answered with {answer}"
        ));
        round.skip_story(
            Check::SubscribeObeyed,
            "subscribing failed: see capability-promises",
        );
    } else if stream {
        told_and_not(round, &uri).await?;
    } else {
        round.skip_story(
            Check::SubscribeObeyed,
            "there is no stream: see capability-promises",
        );
    }
    Ok(())
}

async fn told_and_not(round: &mut Round<'_>, uri: &str) -> Result<(), Stop> {
    // It may be a part of what was subscribed.
    let told = |heard: &Heard| heard.updated().is_some_and(|updated| updated.starts_with(uri));
    let was_told = round.story(uri, Check::SubscribeObeyed, told).await?;
    let answer = round
        .peer
        .call("resources/unsubscribe", json!({ "uri": uri }))
        .await?;
    if !was_told {
        return Ok(());
    }
    if answer.result().is_none() {
        let mut problems = Problems::default();
        problems.error(format!("resources/unsubscribe was answered with {answer}"));
        round.judge(Check::UnsubscribeObeyed, &problems, "");
        return Ok(());
    }
    round.silence(told).await
}

/// Ends the session, which must be gone then.
async fn graceful_end(round: &mut Round<'_>) -> Result<(), Stop> {
    let Wire::Http(wire) = &round.peer.wire else {
        round.end_process().await;
        return Ok(());
    };
    if wire.session().is_none() {
        round.skip(Check::GracefulEnd, "the server gave no session id");
        return Ok(());
    }
    let status = wire.delete().await?;
    let mut problems = Problems::default();
    let mut fine = "the server ends sessions itself (405)".to_owned();
    if (200..300).contains(&status) {
        let answer = round.peer.call("ping", json!({})).await?;
        if answer.status != Some(404) {
            problems.error(format!(
                "a session that was deleted must be answered with HTTP status 404, but was with {answer}"
            ));
        }
        fine = "the session ended, and is answered with 404".to_owned();
    } else if status != 405 {
        problems.error(format!(
            "DELETE of the session was answered with HTTP status {status}"
        ));
    }
    round.judge(Check::GracefulEnd, &problems, &fine);
    Ok(())
}
