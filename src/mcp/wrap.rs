//! For those who already have an rmcp server: a wrapper that adds subscriptions, listen, etags, the etag tools and list
//! notifications to a `ServerHandler` and forwards the rest.
//!
//! Owns: what the wrapped server's answers tell about its state (digests of what it read and listed), and whom it can
//! be asked for. Never: changes what it answers, beyond `_meta` and the bus's own items. Receives the requests of one
//! client per [`Wrapped`]; asks the wrapped handler and the [`Bus`].

mod inner;
mod seen;
mod listed;
mod wrapped;
mod forward;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use rmcp::model::{ErrorCode, ReadResourceResult};
use rmcp::{ErrorData, ServerHandler};
use serde_json::Value;

use self::inner::{Live, Part};
use self::listed::Listed;
use self::seen::{Answer, Seen, Step, judge};
pub use self::wrapped::Wrapped;
use super::handler::Handler;
use super::options::McpOptions;
use crate::etag_tools::{self, EtagToolLimits};
use crate::metrics::McpMetrics;
use crate::{
    Bus, CallbackError, Closed, Content, Descriptor, Digest, Etag, ListKind, PublishError, Resource,
    ResourceUri,
};

/// How many resources are read at once when several are read on the wrapper's own account.
const READS_AT_ONCE: usize = 16;

/// The shortest time between two rounds of [`Wrap::refresh_every`].
const REFRESH_MIN: Duration = Duration::from_millis(10);

tokio::task_local! {
    /// The client on whose behalf a tool of the bus runs: what it reads is read in that client's name.
    static CALLER: Live;
}

/// Adds a bus to rmcp servers. Make one per server, and a [`Wrapped`] handler per client of it.
///
/// The wrapped server is taken to hold the same resources for all its clients: the first read of a resource gives it
/// version 1, and every other content that is read later is a change that all its subscribers are told of. The digest is
/// of the contents without their `_meta`. As many resources can have a version as the bus may hold
/// ([`Limits::resources_max`](crate::Limits::resources_max)); those beyond are served without an etag, and nobody can
/// subscribe to them.
///
/// A server that sends `list_changed` or `resources/updated` by itself goes on doing so, beside what the wrapper sends.
///
/// ```
/// # use rmcp::ServerHandler;
/// # #[derive(Clone)] struct MyServer; impl ServerHandler for MyServer {}
/// # async fn run(my_server: MyServer) -> Result<(), Box<dyn std::error::Error>> {
/// use tidings::mcp::{McpOptions, Wrap};
/// let wrap = Wrap::new(tidings::Bus::builder().start()?, McpOptions::default()).await?;
/// // Wherever the handler went, for each client:
/// let handler = wrap.handler(my_server.clone());
/// // From anywhere in the program:
/// wrap.notify_resource_changed("demo://report").await?;
/// # drop(handler); Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(MyServer)).unwrap();
/// ```
#[derive(Clone)]
pub struct Wrap {
    shared: Arc<Shared>,
}

struct Shared {
    bus: Bus,
    options: Arc<McpOptions>,
    metrics: McpMetrics,
    /// What was read so far. One at a time, so that what is learnt of one resource is in the order of its versions; no
    /// handler runs under this lock, so a handler may hold a `Wrap` and use it.
    seen: tokio::sync::Mutex<HashMap<ResourceUri, Seen>>,
    /// What was listed last; locked until the bus knows it too.
    listed: tokio::sync::Mutex<Listed>,
    /// How often each kind of list was seen to change; moves only under the lock of `listed`.
    moves: [AtomicU64; 3],
    /// The handlers that have a client now, the oldest first. An entry goes with its [`Wrapped`], so a handler that
    /// holds a `Wrap` is no cycle.
    live: Mutex<BTreeMap<u64, Live>>,
    next_id: AtomicU64,
}

impl Wrap {
    /// A wrapper over `bus`, at which it registers the etag tools.
    ///
    /// # Errors
    /// [`PublishError`] when the bus has stopped.
    pub async fn new(bus: Bus, options: McpOptions) -> Result<Wrap, PublishError> {
        etag_tools::install(&bus, EtagToolLimits::default()).await?;
        let shared = Shared {
            bus,
            options: Arc::new(options),
            metrics: McpMetrics::new("wrapped"),
            seen: tokio::sync::Mutex::default(),
            listed: tokio::sync::Mutex::default(),
            moves: Default::default(),
            live: Mutex::default(),
            next_id: AtomicU64::new(1),
        };
        Ok(Wrap {
            shared: Arc::new(shared),
        })
    }

    /// Wraps the handler of one client; its session ends when the handler is dropped. On rmcp's HTTP service that is
    /// one per session, and one per request on 2026-07-28: call this in the service's factory.
    pub fn handler<H: ServerHandler>(&self, inner: H) -> Wrapped<H> {
        let ours = Handler {
            bus: self.shared.bus.clone(),
            options: self.shared.options.clone(),
            transport: "wrapped",
            metrics: self.shared.metrics.clone(),
            opened: Some(Arc::new(OnceLock::new())),
            flow: None,
        };
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        Wrapped::new(id, inner, ours, self.clone())
    }

    /// The bus: resources, tools and prompts registered there are served beside those of the wrapped server. Where both
    /// have one of the same name, the wrapped server's is served.
    pub fn bus(&self) -> &Bus {
        &self.shared.bus
    }

    /// Says that a resource of the wrapped server changed. A resource that no client has read or subscribed to yet has
    /// no version that could move, so nothing happens.
    ///
    /// # Errors
    /// [`PublishError::InvalidUri`] and [`PublishError::Closed`].
    pub async fn notify_resource_changed(&self, uri: &str) -> Result<(), PublishError> {
        match self.shared.bus.touch(uri).await {
            Ok(_) | Err(PublishError::NotFound(_)) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Asks the wrapped server for its lists again; clients are told of those that are other ones now. For servers
    /// whose lists change without a client having listed them. The server is asked in the name of the client that has
    /// been connected longest; with no client there is nobody to tell. A list that it fails to answer, or does not
    /// answer within 10 s, is left as it was.
    ///
    /// # Errors
    /// [`PublishError::Closed`] when the bus has stopped.
    pub async fn refresh_lists(&self) -> Result<(), PublishError> {
        match self.live() {
            Some(live) => self.learn_lists(&live).await,
            None => Ok(()),
        }
    }

    /// Reads every subscribed resource of the wrapped server again, and tells subscribers of those that are other ones
    /// now. For servers that cannot say when a resource changes. One that the server fails to answer, or does not
    /// answer within 10 s, is left as it was.
    ///
    /// # Errors
    /// [`PublishError::Closed`] when the bus has stopped.
    pub async fn refresh_subscribed(&self) -> Result<(), PublishError> {
        let Some(live) = self.live() else { return Ok(()) };
        let seen: Vec<(ResourceUri, Seen)> = self
            .shared
            .seen
            .lock()
            .await
            .iter()
            .map(|(uri, seen)| (uri.clone(), *seen))
            .collect();
        let mut subscribed = Vec::new();
        for (uri, seen) in seen {
            if !self.shared.bus.subscribers(&uri).await?.is_empty() {
                subscribed.push(uri);
            } else if seen == Seen::Gone {
                self.shared.seen.lock().await.remove(&uri);
            }
        }
        self.learn_all(&live, subscribed).await
    }

    /// Does [`refresh_subscribed`](Self::refresh_subscribed) and [`refresh_lists`](Self::refresh_lists) every
    /// `interval` (at least 10 ms), until the bus stops or the last `Wrap` is gone.
    pub fn refresh_every(&self, interval: Duration) {
        let weak = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval.max(REFRESH_MIN)).await;
                let Some(shared) = weak.upgrade() else { return };
                let wrap = Wrap { shared };
                if wrap.refresh_subscribed().await.is_err() || wrap.refresh_lists().await.is_err() {
                    return;
                }
            }
        });
    }

    fn lives(&self) -> MutexGuard<'_, BTreeMap<u64, Live>> {
        self.shared.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom the wrapped server can be asked for: the oldest client, so that it is the same one from time to time.
    fn live(&self) -> Option<Live> {
        self.lives().values().find(|live| live.is_connected()).cloned()
    }

    async fn etag(&self, uri: &ResourceUri) -> Result<Option<Etag>, Closed> {
        let etags = self.shared.bus.etags(vec![uri.clone()]).await?;
        Ok(etags.first().copied().flatten())
    }

    /// Whether the wrapped server is known to hold a resource.
    async fn has_seen(&self, uri: &ResourceUri) -> bool {
        self.shared.seen.lock().await.contains_key(uri)
    }

    /// Whether the wrapped server must be asked for a resource before the bus can say what version it has.
    async fn is_theirs(&self, uri: &ResourceUri) -> Result<bool, Closed> {
        // Locked first: what the bus knows and is not seen here was registered there by somebody else.
        let seen = self.shared.seen.lock().await;
        Ok(seen.contains_key(uri) || self.etag(uri).await?.is_none())
    }

    /// Reads resources of the wrapped server, for what their answers tell.
    async fn learn_all(&self, live: &Live, uris: Vec<ResourceUri>) -> Result<(), PublishError> {
        let reads = uris.into_iter().map(|uri| async move {
            let before = self.etag(&uri).await?;
            let read = live.read(uri.as_str()).await;
            self.learn(&uri, before, &read).await.map(drop)
        });
        let mut reads = futures_util::stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        while let Some(learnt) = reads.next().await {
            learnt?;
        }
        Ok(())
    }

    /// Learns from what the wrapped server answered to a read. `before` is the bus's etag from before it was asked;
    /// the answer is the etag that the reader may be told.
    async fn learn(
        &self,
        uri: &ResourceUri,
        before: Option<Etag>,
        read: &Result<ReadResourceResult, ErrorData>,
    ) -> Result<Option<Etag>, PublishError> {
        let bus = &self.shared.bus;
        let answer = match read {
            Ok(result) => Answer::Body(inner::digest(result)),
            Err(refusal) if is_gone(refusal) => Answer::Gone,
            Err(_) => Answer::Failed,
        };
        let mut seen = self.shared.seen.lock().await;
        let now = self.etag(uri).await?;
        match judge(seen.get(uri).copied(), before, now, answer) {
            Step::Keep(etag) => Ok(etag),
            Step::Record(digest, etag) => {
                seen.insert(uri.clone(), Seen::Body(digest, etag));
                Ok(Some(etag))
            }
            Step::Register(digest) => {
                let media_type = read.as_ref().ok().and_then(inner::media_type);
                match bus.register(self.lazy(uri, media_type)).await {
                    Ok(outcome) => {
                        seen.insert(uri.clone(), Seen::Body(digest, outcome.etag));
                        Ok(Some(outcome.etag))
                    }
                    Err(PublishError::Closed(closed)) => Err(closed.into()),
                    // Full, or registered by somebody else in this moment: the wrapped server's answer stands.
                    Err(refusal) => {
                        tracing::debug!(%uri, %refusal, "a resource of the wrapped server has no version");
                        Ok(None)
                    }
                }
            }
            Step::Touch(digest, held) => {
                let etag = match bus.touch(uri).await {
                    Ok(outcome) => outcome.etag,
                    Err(PublishError::NotFound(_)) => return Ok(None),
                    Err(refusal) => return Err(refusal),
                };
                // Somebody else's change may have come between; then nobody knows which content is the newest.
                let alone = etag.version == held.version + 1;
                if alone {
                    seen.insert(uri.clone(), Seen::Body(digest, etag));
                }
                Ok(Some(if alone { etag } else { held }))
            }
            Step::Remove => {
                let subscribed = !bus.subscribers(uri).await?.is_empty();
                match bus.remove(uri).await {
                    Ok(_) | Err(PublishError::NotFound(_)) => {}
                    Err(refusal) => return Err(refusal),
                }
                if subscribed {
                    seen.insert(uri.clone(), Seen::Gone);
                } else {
                    seen.remove(uri);
                }
                Ok(None)
            }
        }
    }

    /// The bus's view of a resource that the wrapped server holds and lists.
    fn lazy(&self, uri: &ResourceUri, media_type: Option<String>) -> Resource {
        let (weak, owned) = (Arc::downgrade(&self.shared), uri.clone());
        let reader = move || {
            let (weak, uri) = (weak.clone(), owned.clone());
            async move {
                let gone = || CallbackError::from("the wrapped server has no client to be asked for");
                let wrap = Wrap {
                    shared: weak.upgrade().ok_or_else(gone)?,
                };
                let caller = CALLER.try_with(Live::clone).ok();
                let live = caller.or_else(|| wrap.live()).ok_or_else(gone)?;
                let read = live.read(uri.as_str()).await?;
                inner::body(&read)
                    .ok_or_else(|| CallbackError::from("the wrapped server answered no content"))
            }
        };
        let mut descriptor = Descriptor::new(uri.clone());
        descriptor.media_type = media_type;
        Resource::new(descriptor, Content::Lazy(Arc::new(reader))).listed(false)
    }

    async fn learn_lists(&self, live: &Live) -> Result<(), PublishError> {
        for part in Part::ALL {
            match live.list(part).await {
                Ok(items) => self.learn_list(part, &items, listed::digest(&items)).await?,
                // A server that has no such method has none of it.
                Err(refusal) if refusal.code == ErrorCode::METHOD_NOT_FOUND => {
                    self.learn_list(part, &[], None).await?;
                }
                Err(refusal) => tracing::debug!(?part, %refusal, "a list of the wrapped server is not known"),
            }
        }
        Ok(())
    }

    /// Learns from what the wrapped server listed in full.
    async fn learn_list(
        &self,
        part: Part,
        items: &[Value],
        digest: Option<Digest>,
    ) -> Result<(), PublishError> {
        let mut listed = self.shared.listed.lock().await;
        let (moved, kind) = (listed.put(part, items, digest), part.kind());
        self.shared
            .bus
            .set_foreign_list(kind, listed.of_kind(kind))
            .await?;
        if moved {
            self.shared.moves[kind as usize].fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// How often each kind of list was seen to change.
    fn moves(&self) -> [u64; 3] {
        ListKind::ALL.map(|kind| self.shared.moves[kind as usize].load(Ordering::SeqCst))
    }

    /// Whether the wrapped server has a tool or prompt of that name.
    async fn has(&self, live: &Live, part: Part, name: &str) -> Result<bool, PublishError> {
        let known = self.shared.listed.lock().await.has(part, name);
        if let Some(known) = known {
            return Ok(known);
        }
        let items = live.list(part).await.unwrap_or_default();
        self.learn_list(part, &items, listed::digest(&items)).await?;
        Ok(items
            .iter()
            .any(|item| item.get("name").and_then(Value::as_str) == Some(name)))
    }
}

/// Whether a server says that there is no such resource, rather than that it cannot say.
fn is_gone(refusal: &ErrorData) -> bool {
    matches!(
        refusal.code,
        ErrorCode::RESOURCE_NOT_FOUND | ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND
    )
}
