//! The round of 2026-07-28, which has no sessions.
//!
//! Owns the listen streams: one for every list, with a text as id, and one for a resource and one for an unknown one,
//! with numbers. What stands on them is judged by [`super::filter`].

use serde_json::{Value, json};

use super::catalog::Check;
use super::filter::{ACKNOWLEDGED, audit, belongs, flag, resources, uris};
use super::log::Heard;
use super::peer::Stop;
use super::round::{Problems, Round, UNKNOWN, unpromised};

const KINDS: [&str; 3] = ["tools", "prompts", "resources"];

/// A listen request and how it was taken.
struct Listen {
    id: Value,
    asked: Value,
    /// What was granted, or why nothing was.
    granted: Result<Value, String>,
}

impl Listen {
    async fn open(round: &Round<'_>, id: Value, asked: Value) -> Result<Listen, Stop> {
        let peer = &round.peer;
        let mark = peer.log.mark();
        let params = peer.dress(json!({ "notifications": asked }));
        peer.wire.listen(id.clone(), params).await?;
        let decided = |heard: &Heard| {
            belongs(heard, &id) && (heard.method() == ACKNOWLEDGED || heard.message.get("method").is_none())
        };
        let granted = match peer.log.wait(mark, peer.deadline(), decided).await {
            Some(heard) if heard.method() == ACKNOWLEDGED => {
                Ok(heard.message["params"]["notifications"].clone())
            }
            Some(heard) => Err(refusal(&heard.message)),
            None => Err(format!("no acknowledgement within {:?}", peer.limit)),
        };
        Ok(Listen { id, asked, granted })
    }

    fn heard(&self, round: &Round<'_>) -> Vec<Heard> {
        let mut heard = round.peer.log.since(0);
        heard.retain(|heard| belongs(heard, &self.id));
        heard
    }

    fn grants(&self, uri: &str) -> bool {
        self.granted
            .as_ref()
            .is_ok_and(|granted| uris(granted).contains(&uri))
    }

    /// Why it grants less than was asked for.
    fn shortfall(&self) -> String {
        match &self.granted {
            Ok(granted) => format!("the acknowledgement {granted}"),
            Err(reason) => reason.clone(),
        }
    }
}

fn refusal(message: &Value) -> String {
    match &message["error"] {
        Value::Null => "no acknowledgement".to_owned(),
        error => format!(
            "error {} ({})",
            error["code"],
            error["message"].as_str().unwrap_or_default()
        ),
    }
}

pub(super) async fn look(round: &mut Round<'_>) -> Result<(), Stop> {
    let mut promises = Problems::default();
    let mark = round.peer.log.mark();
    let asked: Value = KINDS.iter().map(|kind| (flag(kind), json!(true))).collect();
    let lists = Listen::open(round, json!("tidings-check"), asked).await?;
    promised_lists(round, &lists, &mut promises);
    match &lists.granted {
        Ok(_) => {
            round.fresh(mark).await;
            round.spurious().await?;
        }
        Err(reason) => {
            let reason = format!("subscriptions/listen was answered with {reason}");
            round.skip(Check::FreshAnnouncements, &reason);
            round.skip(Check::SpuriousListChanged, &reason);
        }
    }
    round.error_codes().await?;
    let mut listens = vec![lists];
    subscriptions(round, &mut listens, &mut promises).await?;
    unpromised(&round.peer, &round.peer.log.since(0), &mut promises);
    round.judge(
        Check::CapabilityPromises,
        &promises,
        "what is advertised works, and nothing else came",
    );
    let open = listens.iter().any(|listen| listen.granted.is_ok());
    round.keep_alive(open).await;
    filter_obeyed(round, &listens, open);
    round.end_process().await;
    Ok(())
}

fn promised_lists(round: &Round<'_>, lists: &Listen, promises: &mut Problems) {
    for kind in KINDS {
        let granted = lists
            .granted
            .as_ref()
            .is_ok_and(|granted| granted[flag(kind)] == true);
        if round.peer.promises(kind, "listChanged") && !granted {
            let shortfall = lists.shortfall();
            promises.error(format!(
                "{kind}.listChanged is advertised, but subscriptions/listen was answered with {shortfall}"
            ));
        }
    }
}

async fn subscriptions(
    round: &mut Round<'_>,
    listens: &mut Vec<Listen>,
    promises: &mut Problems,
) -> Result<(), Stop> {
    if !round.peer.promises("resources", "subscribe") {
        let reason = "resources.subscribe is not advertised";
        round.skip(Check::UnknownUri, reason);
        round.skip_story(Check::ListenObeyed, reason);
        return Ok(());
    }
    let unknown = Listen::open(round, json!(8), resources(&[UNKNOWN])).await?;
    let mut problems = Problems::default();
    if unknown.grants(UNKNOWN) {
        problems.warning(format!("a subscription to {UNKNOWN} was acknowledged"));
    }
    round.judge(
        Check::UnknownUri,
        &problems,
        "a subscription to an unknown URI was not granted",
    );
    listens.push(unknown);
    let Some(uri) = round.subject().await? else {
        round.skip_story(
            Check::ListenObeyed,
            "the server lists no resource; name one with --uri",
        );
        return Ok(());
    };
    let listen = Listen::open(round, json!(7), resources(&[&uri])).await?;
    if listen.grants(&uri) {
        told_and_not(round, &uri, &listen.id).await?;
    } else {
        let shortfall = listen.shortfall();
        promises.error(format!(
            "resources.subscribe is advertised, but subscriptions/listen for {uri} was answered with {shortfall}"
        ));
        round.skip_story(Check::ListenObeyed, "listening failed: see capability-promises");
    }
    listens.push(listen);
    Ok(())
}

async fn told_and_not(round: &mut Round<'_>, uri: &str, id: &Value) -> Result<(), Stop> {
    let told = |heard: &Heard| {
        // It may be a part of what was subscribed.
        belongs(heard, id) && heard.updated().is_some_and(|updated| updated.starts_with(uri))
    };
    if !round.story(uri, Check::ListenObeyed, told).await? {
        return Ok(());
    }
    if round.peer.wire.is_http() {
        round.skip(
            Check::UnsubscribeObeyed,
            "over HTTP a subscription ends with its stream, on which nothing more can come",
        );
        return Ok(());
    }
    round
        .peer
        .notify("notifications/cancelled", json!({ "requestId": id }))
        .await?;
    // The answer to a later request shows that the server has seen the cancellation.
    round.peer.call("server/discover", json!({})).await?;
    round.silence(told).await
}

fn filter_obeyed(round: &mut Round<'_>, listens: &[Listen], open: bool) {
    if !open {
        return round.skip(Check::FilterObeyed, "no listen stream could be opened");
    }
    let mut problems: Vec<String> = Vec::new();
    for listen in listens {
        for problem in audit(&listen.id, &listen.asked, &listen.heard(round)) {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    let fine = format!(
        "{} streams carried what was asked for, tagged and acknowledged first",
        listens.len()
    );
    round.judge(Check::FilterObeyed, &problems.into(), &fine);
}
