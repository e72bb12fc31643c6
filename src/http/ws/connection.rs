//! One connection: requests in, notices out, and nothing kept between them but the session's outbox.
//!
//! Owns: the socket and the session from the upgrade to the close frame. One request is at work at a time, and while a
//! write waits for the client nothing is read and nothing is taken from the outbox, which conflates. Never: a queue.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::close::Close;
use super::message::{self, Ack, Request};
use super::{Place, Shared};
use crate::http::write_deadline::is_write_timeout;
use crate::metrics::{self, Limit};
use crate::{
    Closed, Drained, ListKind, OpenError, OutboxEntry, OutboxReader, ResourceUri, Session, SessionOptions,
    SubscriberKind,
};

/// How long a client may take to answer a close frame.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// How a connection ends: by a close frame of ours, or because there is nobody any more.
type End = Option<Close>;

/// Carries a connection to its end.
pub(super) async fn run(mut socket: WebSocket, shared: &Arc<Shared>) {
    let Some(_place) = Place::take(shared) else {
        let max = shared.config.connections_max;
        metrics::limit_reached(Limit::WsConnections);
        let close = Close::full(format!(
            "{max} connections are open (ws.connections_max); try again later"
        ));
        return goodbye(&mut socket, shared, &close).await;
    };
    let mut options = SessionOptions::new(SubscriberKind::Stream, "websocket");
    options.transport = "websocket";
    options.lists = ListKind::ALL.to_vec();
    options.subscriptions_max = shared.bus.limits().subscriptions_max;
    let session = match shared.bus.open(options).await {
        Ok(session) => session,
        Err(error) => {
            let close = match error {
                OpenError::Closed(_) => Close::ended(crate::EndReason::Shutdown),
                _ => Close::full(error.to_string()),
            };
            return goodbye(&mut socket, shared, &close).await;
        }
    };
    let reader = session.reader();
    let mut connection = Connection {
        socket,
        session,
        reader,
        shared,
        lists: [false; 3],
        watching: false,
        asked: None,
    };
    if let Some(close) = connection.serve().await {
        goodbye(&mut connection.socket, shared, &close).await;
    }
}

/// Says why, and gives the client a moment to say the same; without that, what it sent last could make the kernel throw
/// our words away.
async fn goodbye(socket: &mut WebSocket, shared: &Shared, close: &Close) {
    shared.metrics.closed(close.code);
    debug!(code = close.code, reason = close.reason, "a WebSocket is closed");
    let exchange = async {
        if socket.send(Message::Close(Some(close.frame()))).await.is_ok() {
            while let Some(Ok(_)) = socket.recv().await {}
        }
    };
    // Whoever does not answer is cut.
    timeout(CLOSE_PATIENCE, exchange).await.unwrap_or_default();
}

struct Connection<'s> {
    socket: WebSocket,
    session: Session,
    reader: OutboxReader,
    shared: &'s Shared,
    /// The lists that the client wants to hear of.
    lists: [bool; 3],
    /// Whether the session watches lists at all.
    watching: bool,
    /// When it was asked for a sign of life that has not come.
    asked: Option<Instant>,
}

impl Connection<'_> {
    async fn serve(&mut self) -> End {
        let mut entries = Vec::new();
        loop {
            let patience = self.asked.map(|asked| asked + self.shared.config.pong_timeout);
            let silent = async {
                match patience {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let step = tokio::select! {
                received = self.socket.next() => self.received(received).await,
                drained = self.reader.drain(&mut entries) => self.drained(drained, &mut entries).await,
                () = silent => {
                    metrics::limit_reached(Limit::PongTimeout);
                    let seconds = self.shared.config.pong_timeout.as_secs();
                    ControlFlow::Break(Some(Close::policy(format!(
                        "no answer to a ping within {seconds} s (ws.pong_timeout)"
                    ))))
                }
            };
            if let ControlFlow::Break(end) = step {
                return end;
            }
        }
    }

    async fn received(&mut self, received: Option<Result<Message, axum::Error>>) -> ControlFlow<End> {
        let message = match received {
            Some(Ok(message)) => message,
            Some(Err(error)) => return ControlFlow::Break(self.unreadable(&error)),
            None => return ControlFlow::Break(None),
        };
        self.asked = None;
        match message {
            Message::Text(text) if text.len() > self.shared.config.message_bytes_max => {
                ControlFlow::Break(Some(self.too_big()))
            }
            Message::Text(text) => self.requested(&text).await,
            Message::Binary(_) => ControlFlow::Break(Some(Close::not_text())),
            // A ping is answered, and a close confirmed, by the protocol's own layer with the next read.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => ControlFlow::Continue(()),
        }
    }

    fn too_big(&self) -> Close {
        metrics::limit_reached(Limit::WsMessageBytes);
        Close::too_big(self.shared.config.message_bytes_max)
    }

    fn unreadable(&self, error: &axum::Error) -> End {
        let text = error.to_string();
        if text.contains("too long") {
            return Some(self.too_big());
        }
        let io = std::error::Error::source(error)
            .and_then(std::error::Error::source)
            .is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
        (!io).then(|| Close::unreadable(error))
    }

    async fn requested(&mut self, text: &str) -> ControlFlow<End> {
        self.shared.metrics.requests.increment(1);
        let answers = match Request::read(text) {
            Ok(Request::Subscribe {
                id,
                uris,
                lists,
                known,
            }) => self.subscribe(id, uris, &lists, &known).await,
            Ok(Request::Unsubscribe { id, uris, lists }) => self.unsubscribe(id, uris, &lists).await,
            Ok(Request::Ping { id }) => Ok(vec![message::pong(&id)]),
            Err(error) => Ok(vec![error]),
        };
        match answers {
            Ok(answers) => self.write(answers).await,
            // The outbox says why, after what is left in it.
            Err(Closed) => ControlFlow::Continue(()),
        }
    }

    async fn subscribe(
        &mut self,
        id: Value,
        uris: Vec<String>,
        lists: &[String],
        known: &std::collections::BTreeMap<String, Option<String>>,
    ) -> Result<Vec<Message>, Closed> {
        let mut ack = Ack { id, ..Ack::default() };
        let mut wanted: Vec<ResourceUri> = Vec::new();
        for uri in uris.iter().chain(known.keys()) {
            match ResourceUri::new(uri) {
                Ok(uri) => wanted.push(uri),
                Err(error) => drop(ack.refused.insert(uri.clone(), error.to_string())),
            }
        }
        wanted.sort();
        wanted.dedup();
        let mut others = Vec::new();
        let mut subscribed = std::collections::BTreeMap::new();
        let answers = self.session.subscribe(wanted.clone()).await?;
        for (uri, answer) in wanted.iter().zip(answers) {
            match answer {
                Ok(etag) => {
                    let known = known.get(uri.as_str());
                    if known.is_some_and(|known| known.as_deref() != Some(etag.to_string().as_str())) {
                        others.push(message::other(uri.as_str(), etag));
                    }
                    subscribed.insert(uri.to_string(), etag.to_string());
                }
                Err(error) => drop(ack.refused.insert(uri.to_string(), error.to_string())),
            }
        }
        ack.subscribed = Some(subscribed);
        self.want(lists, true, &mut ack);
        if self.lists.contains(&true) && !std::mem::replace(&mut self.watching, true) {
            self.session.ready().await?;
        }
        let mut messages = vec![ack.message()];
        messages.append(&mut others);
        Ok(messages)
    }

    async fn unsubscribe(
        &mut self,
        id: Value,
        uris: Vec<String>,
        lists: &[String],
    ) -> Result<Vec<Message>, Closed> {
        let mut ack = Ack { id, ..Ack::default() };
        let mut unsubscribed = Vec::new();
        for text in uris {
            let there = match ResourceUri::new(&text) {
                Ok(uri) => self.session.unsubscribe(uri).await?,
                Err(_) => false,
            };
            if there {
                unsubscribed.push(text);
            } else {
                ack.refused.insert(text, "not subscribed to".to_owned());
            }
        }
        ack.unsubscribed = Some(unsubscribed);
        self.want(lists, false, &mut ack);
        Ok(vec![ack.message()])
    }

    /// Notes which lists are wanted from now on.
    fn want(&mut self, lists: &[String], wanted: bool, ack: &mut Ack) {
        let index = |name: &str| ListKind::ALL.iter().position(|kind| kind.name() == name);
        for name in lists {
            match index(name) {
                Some(at) => self.lists[at] = wanted,
                None => {
                    let name: String = name.chars().take(40).collect();
                    let all = ListKind::ALL.map(ListKind::name).join(", ");
                    ack.refused.insert(name, format!("no list; the lists are {all}"));
                }
            }
        }
        let named = ListKind::ALL.iter().zip(self.lists);
        ack.lists = named
            .filter_map(|(kind, wanted)| wanted.then_some(kind.name()))
            .collect();
    }

    async fn drained(&mut self, drained: Drained, entries: &mut Vec<OutboxEntry>) -> ControlFlow<End> {
        match drained {
            Drained::Entries(position) => {
                let messages: Vec<_> = entries
                    .drain(..)
                    .filter_map(|entry| match entry {
                        OutboxEntry::Updated(notice) => Some(message::notice(&notice)),
                        OutboxEntry::ListChanged(kind) => {
                            let at = ListKind::ALL.iter().position(|other| *other == kind)?;
                            self.lists[at].then(|| message::list_changed(kind, position))
                        }
                    })
                    .collect();
                self.write(messages).await
            }
            Drained::KeepAlive => {
                self.asked.get_or_insert_with(Instant::now);
                self.write(vec![Message::Ping(bytes::Bytes::new())]).await
            }
            Drained::Ended(reason) => ControlFlow::Break(Some(Close::ended(reason))),
        }
    }

    /// Writes these, all at once; waits for the client to take them.
    async fn write(&mut self, messages: Vec<Message>) -> ControlFlow<End> {
        let count = messages.len() as u64;
        let writing = async {
            for message in messages {
                self.socket.feed(message).await?;
            }
            self.socket.flush().await
        };
        let limit = self.shared.write_timeout;
        match timeout(limit, writing).await {
            Ok(Ok(())) => {
                self.shared.metrics.written.increment(count);
                ControlFlow::Continue(())
            }
            Ok(Err(error)) => {
                // The connection has a write deadline of its own, which may run out first.
                if is_write_timeout(&error) {
                    metrics::limit_reached(Limit::WriteTimeout);
                }
                debug!(%error, "a WebSocket ended");
                ControlFlow::Break(None)
            }
            Err(_elapsed) => {
                metrics::limit_reached(Limit::WriteTimeout);
                debug!(
                    ?limit,
                    "a WebSocket client does not read; it is cut (http.write_timeout)"
                );
                ControlFlow::Break(None)
            }
        }
    }
}
