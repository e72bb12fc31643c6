//! Questions from node to node, which no stream keeps: their answers are of use at once or not at all.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use async_nats::jetstream::Context;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot};

use super::key::StateStream;
use super::{Inner, SharedState};
use crate::cluster::names::LogNames;
use crate::cluster::servers::REQUEST_TIMEOUT;

/// The questions that wait for an answer. Further ones get none.
const WAITING_MAX: usize = 1_024;

/// A question of another node.
#[derive(Debug)]
pub struct NodeQuestion {
    /// Its text.
    pub text: Bytes,
    /// Takes the answer; dropped without one, the other node waits in vain.
    pub answer: oneshot::Sender<Bytes>,
}

/// The queue of questions.
pub(super) struct Questions {
    sender: mpsc::Sender<NodeQuestion>,
    /// None once it was taken.
    receiver: Mutex<Option<mpsc::Receiver<NodeQuestion>>>,
}

impl Default for Questions {
    fn default() -> Questions {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Questions {
            sender,
            receiver: Mutex::new(Some(receiver)),
        }
    }
}

impl SharedState {
    /// Returns the questions of other nodes: those to this one, or for the state of nodes those to all, for
    /// bodies that are gone. None to a second caller.
    pub fn questions(&self) -> Option<mpsc::Receiver<NodeQuestion>> {
        let receiver = &self.0.inner.questions.receiver;
        receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Asks the node of this start; none if it is not there, or does not answer in time.
    pub async fn ask(&self, boot: u32, text: Bytes) -> Option<Bytes> {
        let inner = &self.0.inner;
        let context = inner.context().await.ok()?;
        let client = context.client();
        let asked = client.request(inner.names.questions_to(boot), text);
        match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Ok(answer)) => Some(answer.payload),
            // No node listens there: the server says so at once.
            Ok(Err(error)) => {
                tracing::debug!(%error, "a node was not asked");
                None
            }
            Err(_late) => None,
        }
    }
}

/// Hands the questions of other nodes on until the connection is lost.
pub(super) async fn serve(inner: &Inner, context: &Context) -> Result<Infallible, String> {
    let client = context.client();
    let subject = match inner.stream {
        StateStream::Nodes => LogNames::new(&inner.settings.namespace).lost_bodies(),
        StateStream::Sessions => inner.names.questions_to(inner.boot),
    };
    let subscribed = client.subscribe(subject).await;
    let mut questions = subscribed.map_err(|error| format!("questions cannot be heard: {error}"))?;
    while let Some(message) = questions.next().await {
        let Some(reply) = message.reply else { continue };
        let (answer, answered) = oneshot::channel();
        let question = NodeQuestion {
            text: message.payload,
            answer,
        };
        if inner.questions.sender.try_send(question).is_err() {
            tracing::warn!("more questions of other nodes than are answered; they go on without the answers");
            continue;
        }
        // A task for each: one that waits for a move must not hold up the others.
        let client = client.clone();
        tokio::spawn(async move {
            if let Ok(answer) = answered.await
                && let Err(error) = client.publish(reply, answer).await
            {
                tracing::debug!(%error, "an answer to another node was not sent");
            }
        });
    }
    Err("no more questions are heard".to_owned())
}
