//! Sends proposals to one server, under their conditions, and reads the answers.
//!
//! The answers come on one subject of this connection, whose last part names the proposal. So an answer
//! that never comes leaves nothing behind.

use std::time::Instant;

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_ID};
use async_nats::{Client, HeaderMap, Message};
use futures_util::{FutureExt, StreamExt};

use super::in_flight::Attempt;
use super::node_state::{NodeState, Stopped};
use super::record_answer::RecordAnswer;
use super::session::SessionEnd;

/// Sends proposals until the connection or the node ends.
pub(super) async fn run(node: &NodeState, client: &Client) -> SessionEnd {
    let inbox = client.new_inbox();
    let Ok(mut answers) = client.subscribe(format!("{inbox}.*")).await else {
        return SessionEnd::Lost;
    };
    // Answers of another connection cannot come on this one.
    node.in_flight.borrow_mut().reconnect(Instant::now());
    loop {
        if node.is_writable() && send_waiting(node, client, &inbox).await.is_err() {
            return SessionEnd::Lost;
        }
        tokio::select! {
            answer = answers.next() => {
                let mut next = answer;
                // Those that have come meanwhile, too: sending them one by one would cost a turn for each.
                loop {
                    let Some(message) = next else {
                        return SessionEnd::Lost;
                    };
                    if let Err(Stopped) = take(node, &message).await {
                        return SessionEnd::Stopped;
                    }
                    let Some(more) = answers.next().now_or_never() else {
                        break;
                    };
                    next = more;
                }
                if let Err(Stopped) = node.tell_acknowledged().await {
                    return SessionEnd::Stopped;
                }
                node.timer.notify_one();
            }
            () = node.wake.notified() => {}
        }
    }
}

/// Sends what waits, as far as it may be in flight.
async fn send_waiting(
    node: &NodeState,
    client: &Client,
    inbox: &str,
) -> Result<(), async_nats::PublishError> {
    loop {
        let max = node.settings.in_flight_max;
        let attempt = node.in_flight.borrow_mut().next_attempt(max, Instant::now());
        let Some(attempt) = attempt else {
            break;
        };
        send(client, attempt, inbox).await?;
    }
    node.timer.notify_one();
    Ok(())
}

async fn send(client: &Client, attempt: Attempt, inbox: &str) -> Result<(), async_nats::PublishError> {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_MESSAGE_ID, attempt.operation.to_string());
    if let Some(expected) = attempt.expected {
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
    }
    let subject = attempt.subject.to_string();
    let answers = format!("{inbox}.{}", attempt.token);
    client
        .publish_with_reply_and_headers(subject, answers, headers, attempt.frame)
        .await
}

async fn take(node: &NodeState, message: &Message) -> Result<(), Stopped> {
    // Any client of the account could send something here.
    let Some(Ok(token)) = message.subject.rsplit('.').next().map(str::parse::<u64>) else {
        return Ok(());
    };
    let answer = RecordAnswer::of(message);
    let ended = node.in_flight.borrow_mut().answer(token, answer, Instant::now());
    if node.in_flight.borrow().has_doubted() {
        node.doubt.notify_one();
    }
    match ended {
        Some(ended) => node.tell(ended).await,
        None => Ok(()),
    }
}
