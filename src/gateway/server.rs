//! The server behind the gateway as one client is served it: every request is forwarded.

#![expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]

use std::sync::{Arc, OnceLock};

use rmcp::model::{
    ClientRequest, InputResponses, LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParam,
    ProtocolVersion, ServerNotification, ServerResult,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, Peer, RoleServer};

use super::capabilities::{self, is_stateless};
use super::change_notices::ChangeNotices;
use super::client_log_level::ClientLogLevel;
use super::connection::UpstreamConnection;
use super::exchange::Dialog;
use super::failure::{self, UpstreamFailure};
use super::introduction::{Handshake, Introduction};
use super::lists_watch::{Audience, ListsWatch};
use super::one_client::OneClient;
use super::options::Isolation;
use super::own_speaker::OwnSpeaker;
use super::parked::{self, ParkedCall};
use super::relay::{Relayed, relay};
use super::road::Road;
use super::rounds;
use super::speakers::{ClientKey, Speaker};
use super::upstream::Upstream;
use crate::mcp::ClientLine;
use crate::metrics::GaugePlace;

type Context = RequestContext<RoleServer>;

/// The source of the lists of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListSource {
    /// The server.
    Server,
    /// Its last answers, which the watcher compares after it has asked.
    Known,
}

/// The server behind the gateway, as one client is served it.
pub(super) struct UpstreamServer {
    upstream: Arc<Upstream>,
    /// The source of the lists that it answers.
    source: ListSource,
    /// The connection of a client with a session, from its first call on.
    own: OnceLock<Arc<OwnSpeaker>>,
    /// The log level that the client has set.
    level: Arc<ClientLogLevel>,
}

impl UpstreamServer {
    pub(super) fn new(upstream: Arc<Upstream>, source: ListSource) -> UpstreamServer {
        UpstreamServer {
            upstream,
            source,
            own: OnceLock::new(),
            level: Arc::default(),
        }
    }

    /// Returns the connection for a request that may leave a state behind, or be asked back.
    async fn road(&self, context: &Context) -> Result<Road, ErrorData> {
        let watcher = self.upstream.connection().await?;
        match self.upstream.options().isolation {
            Isolation::Shared => return Ok(Road::Watcher(watcher)),
            Isolation::Sole => {
                self.level.tell(&watcher).await;
                return Ok(Road::Watcher(watcher));
            }
            Isolation::Auto | Isolation::Client => {}
        }
        let is_shared = self.upstream.shares_calls(&watcher);
        if is_stateless(context) {
            return match self.leases(&watcher, context) {
                true => self.lease(context).await.map(Road::Leased),
                false => Ok(Road::Watcher(watcher)),
            };
        }
        // A server of several eras is spoken to in that of the client.
        if !watcher.refuses_initialize() {
            let version = context.protocol_version();
            let version = version.unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE);
            match self.own_speaker(context, Handshake::Initialize(version)).await {
                Err(error) if watcher.is_stateless() && !failure::is_limit(&error) => {
                    watcher.note_refused_initialize();
                }
                opened => return opened.map(Road::Own),
            }
        }
        // Log messages name no request, so a client that has asked for them has a connection of its own.
        match is_shared && self.level.wanted().is_none() {
            true => Ok(Road::Watcher(watcher)),
            false => self.own_speaker(context, Handshake::Newest).await.map(Road::Own),
        }
    }

    /// Returns true if a request without a session has a connection to itself.
    pub(super) fn leases(&self, watcher: &UpstreamConnection, context: &Context) -> bool {
        // Log messages name no request, so one that asks for them does.
        is_stateless(context) && (!self.upstream.shares_calls(watcher) || context.meta.log_level().is_some())
    }

    async fn lease(&self, context: &Context) -> Result<Speaker, ErrorData> {
        let key = ClientKey::of(context);
        let speakers = &self.upstream.speakers;
        let speaker = match speakers.take_idle(&key) {
            Some(speaker) => speaker,
            None => {
                let mut client = Introduction::of_client(context, Handshake::Newest);
                client.needs_stream = context.meta.log_level().is_some();
                speakers.open(&self.upstream, key, client).await?
            }
        };
        // An older server is told by a request of its own.
        if let Some(level) = context.meta.log_level() {
            ClientLogLevel::of_request(level).tell(&speaker.connection).await;
        }
        Ok(speaker)
    }

    /// Returns the connection of a client with a session; made anew if it has ended.
    async fn own_speaker(&self, context: &Context, handshake: Handshake) -> Result<Arc<Speaker>, ErrorData> {
        let speakers = &self.upstream.speakers;
        let own = self
            .own
            .get_or_init(|| speakers.register(self.upstream.unknown_lists()));
        own.used();
        let mut slot = own.slot.lock().await;
        if let Some(speaker) = &*slot {
            if !speaker.connection.lost().is_set() {
                return Ok(speaker.clone());
            }
            own.note_lost_state();
            // Its place is free before the next one is taken.
            *slot = None;
        }
        let notices = Arc::new(ChangeNotices::default());
        let mut client = Introduction::of_client(context, handshake);
        client.signals = Some(notices.clone());
        let one_client = OneClient::new();
        one_client.reach(ClientLine::of(context), self.level.clone());
        client.one_client = Some(one_client);
        let key = ClientKey::of(context);
        let speaker = Arc::new(speakers.open(&self.upstream, key, client).await?);
        *slot = Some(speaker.clone());
        drop(slot);
        self.begin_own_lists(own, &speaker.connection, context);
        let has_lost_state = own.take_lost_state();
        if has_lost_state {
            // Without a word of the server: its lists may have gone back to what they are at first.
            notices.may_lack();
        }
        let audience = Audience::Client(ClientLine::of(context));
        ListsWatch::begin(&self.upstream, &own.lists, &speaker.connection, notices, audience);
        self.level.tell(&speaker.connection).await;
        // A server without sessions had no state to lose.
        if has_lost_state && !speaker.connection.is_stateless() {
            tell_lost_state(context).await;
        }
        Ok(speaker)
    }

    /// Returns the connection of a client with a session, if it has one now.
    async fn opened_speaker(&self) -> Option<Arc<Speaker>> {
        match self.own.get() {
            Some(own) => own.slot.lock().await.clone(),
            None => None,
        }
    }

    /// The source of the lists that it answers.
    pub(super) fn source(&self) -> ListSource {
        self.source
    }

    pub(super) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// The place of the client's own connection, if it has made a call.
    pub(super) fn own(&self) -> Option<&Arc<OwnSpeaker>> {
        self.own.get()
    }

    /// Takes note that the only client is ready, if the server has one alone.
    pub(super) fn note_ready(&self, peer: Peer<RoleServer>) {
        if let Some(client) = self.upstream.one_client() {
            client.reach(ClientLine::Connection(peer), self.level.clone());
        }
    }

    /// Returns the connection of the client, if it has one now.
    pub(super) async fn connection_of_client(&self) -> Option<Arc<UpstreamConnection>> {
        match self.upstream.options().isolation {
            Isolation::Sole => self.upstream.connected_now(),
            _ => Some(self.opened_speaker().await?.connection.clone()),
        }
    }

    /// Sets the log level of the client, on its connection too if it has one now.
    pub(super) async fn set_level_of_client(&self, level: LoggingLevel) {
        self.level.set(level);
        if let Some(connection) = self.connection_of_client().await {
            self.level.tell(&connection).await;
        }
    }

    /// Forwards a request that the server answers at once.
    pub(super) async fn forward(
        &self,
        request: ClientRequest,
        context: &Context,
    ) -> Result<ServerResult, ErrorData> {
        let road = self.road(context).await?;
        self.send(road, request, context).await
    }

    /// Forwards a call, and the questions that the server has meanwhile.
    pub(super) async fn converse(
        &self,
        mut exchange: Dialog,
        context: &Context,
    ) -> Result<ServerResult, ErrorData> {
        if let (responses, Some(state)) = exchange.parts()
            && is_stateless(context)
        {
            let key = ClientKey::of(context);
            match self.upstream.parked.resume(state, &key) {
                Some(parked) => return self.resume(parked, responses.take(), context).await,
                // The state is the server's own where the revision has it.
                None if !self.upstream.connection().await?.is_stateless() => {
                    return Err(UpstreamFailure::Expired.answer());
                }
                None => {}
            }
        }
        // The connection is chosen anew for each round: the server keeps no state between them.
        for _ in 0..rounds::ROUNDS_MAX {
            let road = match &exchange {
                Dialog::Resource(_) => Road::Watcher(self.upstream.connection().await?),
                Dialog::Tool(_) | Dialog::Prompt(_) => self.road(context).await?,
            };
            let required = match self.send(road, exchange.request(), context).await? {
                ServerResult::InputRequiredResult(required) if !is_stateless(context) => required,
                answer => return Ok(answer),
            };
            let input = rounds::ask(&required, context).await?;
            let (responses, state) = exchange.parts();
            *responses = Some(input);
            *state = required.request_state;
        }
        Err(ErrorData::internal_error(
            format!("the server asked for input in {} rounds", rounds::ROUNDS_MAX),
            None,
        ))
    }

    async fn send(
        &self,
        road: Road,
        request: ClientRequest,
        context: &Context,
    ) -> Result<ServerResult, ErrorData> {
        // Refused rather than queued: a queue would only hide that the server is too slow.
        let Ok(_place) = self.upstream.places.clone().try_acquire_owned() else {
            return Err(UpstreamFailure::TooManyCalls.answer());
        };
        let metrics = self.upstream.metrics();
        let _in_flight = GaugePlace::new(&metrics.in_flight);
        let began = std::time::Instant::now();
        let connection = road.connection();
        let level = match is_stateless(context) {
            true => context.meta.log_level(),
            false => self.level.wanted(),
        };
        let mut meta = capabilities::meta_for(context, connection.is_stateless());
        // The revision has no request for the level. On a connection of all clients it would bring messages
        // that are dropped.
        if let Some(level) = level
            && connection.is_stateless()
            && connection.hearing().is_of_one_client()
        {
            meta.set_log_level(level);
        }
        let timeout = self.upstream.options().call_timeout;
        let mut call = match connection.begin(request, meta, timeout).await {
            Ok(call) => call,
            Err(error) => return Err(failure::answer_of(error)),
        };
        // A client without a session gets log messages before the answer, or never.
        if level.is_some() && is_stateless(context) && !connection.is_stateless() {
            call.linger();
        }
        let relayed = relay(call, context, level, &self.upstream).await;
        metrics.call_time.record(began.elapsed());
        self.settle(road, relayed, context)
    }

    /// Goes on with a call that waited for input.
    async fn resume(
        &self,
        parked: ParkedCall,
        responses: Option<InputResponses>,
        context: &Context,
    ) -> Result<ServerResult, ErrorData> {
        let answer = parked::answer(&parked.asked.request, responses.as_ref());
        let refused = answer.clone().err();
        if parked.asked.reply.send(answer).is_err() {
            return Err(UpstreamFailure::Expired.answer());
        }
        // The server was told, too, so that its call ends.
        if let Some(refusal) = refused {
            return Err(refusal);
        }
        let relayed = relay(parked.call, context, context.meta.log_level(), &self.upstream).await;
        self.settle(parked.road, relayed, context)
    }

    /// Returns the answer for the client, and gives the connection back.
    fn settle(&self, road: Road, relayed: Relayed, context: &Context) -> Result<ServerResult, ErrorData> {
        match (relayed, road) {
            (Relayed::Answered(Ok(result)), Road::Leased(speaker)) => {
                self.upstream.speakers.give_back(speaker);
                Ok(result)
            }
            // A leased connection whose call was cut short may still be busy with it: it is not given back.
            (Relayed::Answered(answer), _) => answer,
            (Relayed::Asked(call, asked), road) => {
                let parked = ParkedCall {
                    call,
                    asked,
                    road,
                    key: ClientKey::of(context),
                };
                let required = self.upstream.parked.park(parked)?;
                Ok(ServerResult::InputRequiredResult(required))
            }
        }
    }
}

/// Tells a client that a new connection took the place of its last one.
async fn tell_lost_state(context: &Context) {
    let text = "the server behind the gateway was started anew; the state of this session there is lost";
    let message = LoggingMessageNotificationParam::new(LoggingLevel::Warning, text.into());
    let message = LoggingMessageNotification::new(message);
    let notice = ServerNotification::LoggingMessageNotification(message);
    if let Err(error) = context.peer.send_notification(notice).await {
        tracing::debug!(%error, "a client could not be told that its state is lost");
    }
}
