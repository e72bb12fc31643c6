//! One WebSocket connection, from the upgrade to the close frame.
//!
//! It carries out one request at a time. While a write waits for the client, nothing is read from the client
//! and nothing is taken from the session's outbox, in which newer notices replace older ones.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::debug;

use super::close::Close;
use super::entry_messages::EntryMessages;
use super::message::{self, Ack, ClientMessage};
use super::patterns::Patterns;
use super::upgrade::WebSocket;
use super::{WsContext, WsPermit};
use crate::auth::{Caller, Grant, Object, Right};
use crate::http::limits::{Counted, refused_subscription};
use crate::http::write_deadline::is_write_timeout;
use crate::metrics::{self, Limit};
use crate::rights::Viewer;
use crate::{
    Closed, Drained, EndReason, ListKind, OpenError, OutboxEntry, OutboxReader, ResourceUri, Session,
    SessionOptions, SubscribeError, SubscriberKind, SubscriptionRequest,
};

/// The time in which a client must answer a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The end of a connection: a close frame to send, or none when the client is gone.
type End = Option<Close>;

/// Serves a connection to its end. With `bodies`, notices carry the content.
pub(super) async fn serve(mut socket: WebSocket, context: &Arc<WsContext>, caller: &Caller, bodies: bool) {
    let end = match WsPermit::take(context) {
        Some(_permit) => match open_session(context, caller).await {
            Ok(session) => {
                let mut connection = WsConnection::new(&mut socket, session, context, caller);
                connection.bodies = bodies;
                connection.run().await
            }
            Err(close) => Some(close),
        },
        None => {
            metrics::limit_reached(Limit::WsConnections);
            let max = context.config.connections_max;
            Some(Close::full(format!(
                "{max} connections are open (ws.connections_max); try again later"
            )))
        }
    };
    if let Some(close) = end {
        send_close(&mut socket, context, &close).await;
    }
}

async fn open_session(context: &WsContext, caller: &Caller) -> Result<Arc<Session>, Close> {
    let mut options = SessionOptions::new(SubscriberKind::Stream, "websocket");
    options.transport = "websocket";
    options.lists = ListKind::ALL.to_vec();
    options.subscriptions_max = context.bus.limits().subscriptions_max;
    let grant = Grant::of(caller);
    options.viewer = grant.clone().map(|grant| grant as Arc<dyn Viewer>);
    options.allowance = context.limits.subscriptions(&Counted::by(caller));
    match context.bus.open(options).await {
        Ok(session) => {
            let session = Arc::new(session);
            if let Some(grant) = &grant {
                grant.end_streams_at_expiry(&session);
            }
            Ok(session)
        }
        Err(OpenError::Closed(_)) => Err(Close::ended(EndReason::Shutdown)),
        Err(error) => Err(Close::full(error.to_string())),
    }
}

/// Sends a close frame and gives the client a moment to answer it. If the socket were closed with unread
/// bytes of the client in it, the kernel would reset the connection and drop the close frame.
async fn send_close(socket: &mut WebSocket, context: &WsContext, close: &Close) {
    context.metrics.closed(close.code);
    debug!(code = close.code, reason = close.reason, "a WebSocket is closed");
    let exchange = async {
        if socket.send(Message::Close(Some(close.frame()))).await.is_ok() {
            while let Some(Ok(_)) = socket.next().await {}
        }
    };
    if timeout(CLOSE_TIMEOUT, exchange).await.is_err() {
        debug!("a WebSocket client did not answer the close frame; it is cut");
    }
}

struct WsConnection<'s> {
    socket: &'s mut WebSocket,
    session: Arc<Session>,
    reader: OutboxReader,
    context: &'s WsContext,
    caller: &'s Caller,
    /// Per list, true if the client wants its changes.
    lists: [bool; ListKind::ALL.len()],
    /// True once the session watches lists at all.
    watches_lists: bool,
    patterns: Patterns,
    /// True if notices carry the content.
    bodies: bool,
    /// The time of the oldest ping that the client has not answered.
    pinged_at: Option<Instant>,
}

impl<'s> WsConnection<'s> {
    fn new(
        socket: &'s mut WebSocket,
        session: Arc<Session>,
        context: &'s WsContext,
        caller: &'s Caller,
    ) -> WsConnection<'s> {
        let reader = session.reader();
        WsConnection {
            socket,
            session,
            reader,
            context,
            caller,
            lists: [false; ListKind::ALL.len()],
            watches_lists: false,
            patterns: Patterns::default(),
            bodies: false,
            pinged_at: None,
        }
    }

    async fn run(&mut self) -> End {
        let mut entries = Vec::new();
        loop {
            let pong_deadline = self
                .pinged_at
                .map(|pinged_at| pinged_at + self.context.config.pong_timeout);
            let step = tokio::select! {
                received = self.socket.next() => self.received(received).await,
                drained = self.reader.drain(&mut entries) => self.drained(drained, &mut entries).await,
                () = until(pong_deadline) => {
                    metrics::limit_reached(Limit::PongTimeout);
                    let seconds = self.context.config.pong_timeout.as_secs();
                    let text = format!("no answer to a ping within {seconds} s (ws.pong_timeout)");
                    ControlFlow::Break(Some(Close::policy(text)))
                }
            };
            if let ControlFlow::Break(end) = step {
                return end;
            }
        }
    }

    async fn received(&mut self, received: Option<Result<Message, Error>>) -> ControlFlow<End> {
        let message = match received {
            Some(Ok(message)) => message,
            Some(Err(error)) => return ControlFlow::Break(self.unreadable(&error)),
            None => return ControlFlow::Break(None),
        };
        // Any message shows that the client is alive, not only a pong.
        self.pinged_at = None;
        match message {
            Message::Text(text) if text.len() > self.context.config.message_bytes_max => {
                ControlFlow::Break(Some(self.too_big()))
            }
            Message::Text(text) => self.carry_out(&text).await,
            Message::Binary(_) => ControlFlow::Break(Some(Close::not_text())),
            // The WebSocket library answers pings and confirms closes with the next read.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {
                ControlFlow::Continue(())
            }
        }
    }

    fn too_big(&self) -> Close {
        metrics::limit_reached(Limit::WsMessageBytes);
        Close::too_big(self.context.config.message_bytes_max)
    }

    fn unreadable(&self, error: &Error) -> End {
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => Some(self.too_big()),
            // The connection failed, rather than the WebSocket protocol on it.
            Error::Io(_) | Error::ConnectionClosed | Error::AlreadyClosed => None,
            error => Some(Close::unreadable(error)),
        }
    }

    /// Carries out a request and answers it.
    async fn carry_out(&mut self, text: &str) -> ControlFlow<End> {
        self.context.metrics.requests.increment(1);
        let request = ClientMessage::parse(text);
        if let Err(exceeded) = self.context.limits.requests(&Counted::by(self.caller), 1) {
            let id = match &request {
                Ok(request) => request.id(),
                Err(_) => &Value::Null,
            };
            let refusal = message::failed(id, &exceeded.text);
            return self.write([refusal]).await;
        }
        let answer = match request {
            Ok(ClientMessage::Subscribe {
                id,
                uris,
                lists,
                patterns,
                known,
            }) => {
                let mut ack = Ack::to(id);
                match self.subscribe(&mut ack, uris, known).await {
                    Ok(()) => self.set_others(ack, &lists, &patterns, true).await,
                    Err(closed) => Err(closed),
                }
            }
            Ok(ClientMessage::Unsubscribe {
                id,
                uris,
                lists,
                patterns,
            }) => {
                let mut ack = Ack::to(id);
                match self.unsubscribe(&mut ack, uris).await {
                    Ok(()) => self.set_others(ack, &lists, &patterns, false).await,
                    Err(closed) => Err(closed),
                }
            }
            Ok(ClientMessage::Ping { id }) => Ok(message::pong(&id)),
            Err(error) => Ok(error),
        };
        match answer {
            Ok(answer) => self.write([answer]).await,
            // The outbox tells the reason of the end, after its last entries.
            Err(Closed) => ControlFlow::Continue(()),
        }
    }

    async fn subscribe(
        &mut self,
        ack: &mut Ack,
        uris: Vec<String>,
        known: BTreeMap<String, Option<String>>,
    ) -> Result<(), Closed> {
        // A URI may be in both, and then the client says what it holds.
        let mut requested: BTreeMap<String, Option<Option<String>>> = BTreeMap::new();
        requested.extend(uris.into_iter().map(|uri| (uri, None)));
        requested.extend(known.into_iter().map(|(uri, etag)| (uri, Some(etag))));
        let mut requests = Vec::with_capacity(requested.len());
        for (uri, known) in requested {
            match ResourceUri::new(&uri) {
                Ok(uri) => {
                    let object = Object::Resource(uri.as_str());
                    match self.caller.may(Right::Subscribe, object) {
                        Ok(()) => requests.push(SubscriptionRequest { uri, known }),
                        Err(_) => {
                            let refused = SubscribeError::NotFound(uri.clone());
                            ack.refuse(uri.as_str(), refused.to_string());
                        }
                    }
                }
                Err(error) => ack.refuse(&uri, error.to_string()),
            }
        }
        let mut subscribed = BTreeMap::new();
        let answers = self.session.subscribe_from(requests.clone()).await?;
        for (SubscriptionRequest { uri, .. }, answer) in requests.iter().zip(answers) {
            match answer {
                Ok(etag) => {
                    subscribed.insert(uri.to_string(), etag.to_string());
                }
                Err(error) => ack.refuse(uri.as_str(), refused_subscription(&error)),
            }
        }
        ack.subscribed = Some(subscribed);
        Ok(())
    }

    async fn unsubscribe(&mut self, ack: &mut Ack, uris: Vec<String>) -> Result<(), Closed> {
        let mut unsubscribed = Vec::new();
        for text in uris {
            let was_subscribed = match ResourceUri::new(&text) {
                Ok(uri) => self.session.unsubscribe(uri).await?,
                Err(_) => false,
            };
            if was_subscribed {
                unsubscribed.push(text);
            } else {
                ack.refuse(&text, "not subscribed to".to_owned());
            }
        }
        ack.unsubscribed = Some(unsubscribed);
        Ok(())
    }

    /// Begins or ends the notices of lists and patterns, and returns the whole answer.
    async fn set_others(
        &mut self,
        mut ack: Ack,
        lists: &[String],
        patterns: &[String],
        wanted: bool,
    ) -> Result<Message, Closed> {
        self.set_lists(lists, wanted, &mut ack);
        // A session that never wants a list costs the bus no list notices.
        if self.lists.contains(&true) && !self.watches_lists {
            self.watches_lists = true;
            self.session.ready().await?;
        }
        for text in patterns {
            match wanted {
                true => {
                    if let Err(reason) = self.patterns.add(text) {
                        ack.refuse(text, reason);
                    }
                }
                false if self.patterns.remove(text) => {}
                false => ack.refuse(text, "not subscribed to".to_owned()),
            }
        }
        ack.patterns = self.patterns.texts();
        // Without patterns the bus looks at no filter for this connection.
        if !patterns.is_empty() {
            // The filter takes a place in the outbox for each resource that it tells of, like a subscription.
            let pending_max = self.context.bus.limits().subscriptions_max;
            self.session.watch(self.patterns.filter(), pending_max).await?;
        }
        Ok(ack.message())
    }

    /// Sets for the named lists whether the client wants their changes, and puts all wanted lists into `ack`.
    fn set_lists(&mut self, names: &[String], wanted: bool, ack: &mut Ack) {
        for name in names {
            match ListKind::ALL.iter().position(|kind| kind.name() == name) {
                Some(at) => self.lists[at] = wanted,
                None => {
                    let name: String = name.chars().take(40).collect();
                    let known = ListKind::ALL.map(ListKind::name).join(", ");
                    ack.refuse(&name, format!("no list; the lists are {known}"));
                }
            }
        }
        for (kind, wanted) in ListKind::ALL.iter().zip(self.lists) {
            if wanted {
                ack.lists.push(kind.name());
            }
        }
    }

    async fn drained(&mut self, drained: Drained, entries: &mut Vec<OutboxEntry>) -> ControlFlow<End> {
        match drained {
            Drained::Entries(position) => {
                let lost = self.reader.take_lost();
                let gap = (lost > 0).then(|| message::gap(lost));
                let messages = EntryMessages {
                    content: self.bodies.then_some(&self.context.bodies),
                    caller: self.caller,
                    ids: self.caller.event_ids(),
                    lists: self.lists,
                };
                // Made one by one as the client takes them, so that one content waits at a time.
                let told = entries.drain(..);
                let told = told.flat_map(move |entry| messages.message(&entry, position));
                self.write(gap.into_iter().chain(told)).await
            }
            Drained::KeepAlive => {
                // A second ping does not extend the time for the answer to the first.
                self.pinged_at.get_or_insert_with(Instant::now);
                self.write([Message::Ping(bytes::Bytes::new())]).await
            }
            Drained::Ended(reason) => ControlFlow::Break(Some(Close::ended(reason))),
        }
    }

    /// Writes messages, all at once, and waits for the client to take them.
    async fn write(&mut self, messages: impl IntoIterator<Item = Message>) -> ControlFlow<End> {
        let mut count = 0;
        let writing = async {
            for message in messages {
                count += 1;
                self.socket.feed(message).await?;
            }
            self.socket.flush().await
        };
        let limit = self.context.write_timeout;
        let error = match timeout(limit, writing).await {
            Ok(Ok(())) => {
                self.context.metrics.written.increment(count);
                return ControlFlow::Continue(());
            }
            // The connection has a write deadline of its own, which may run out first.
            Ok(Err(error)) if !is_write_timeout(&error) => {
                debug!(%error, "a WebSocket ended");
                return ControlFlow::Break(None);
            }
            Ok(Err(error)) => error.to_string(),
            Err(elapsed) => elapsed.to_string(),
        };
        metrics::limit_reached(Limit::WriteTimeout);
        debug!(
            error,
            ?limit,
            "a WebSocket client does not read; it is cut (http.write_timeout)"
        );
        ControlFlow::Break(None)
    }
}

/// Waits until `deadline`; without one, for ever.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
