//! For those who already have an rmcp server: a wrapper that adds subscriptions, listen, etags, the etag tools and list
//! notifications to a `ServerHandler` and forwards the rest.
//!
//! Owns: what the wrapped server's answers tell about its state (digests of what it read and listed). Never: changes
//! what it answers, beyond `_meta` and the bus's own items. Receives the requests of one client per [`Wrapped`]; asks
//! the wrapped handler and the [`Bus`].

mod forward;
mod inner;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::model::{ReadResourceResult, ServerCapabilities};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::Value;

pub use self::forward::Wrapped;
use self::inner::{Inner, InnerOf, Part};
use super::handler::Handler;
use super::options::McpOptions;
use super::wire::Revision;
use crate::etag_tools::{self, EtagToolLimits};
use crate::{
    Bus, CallbackError, Content, Descriptor, Digest, Etag, ListKind, PublishError, Resource, ResourceUri,
};

/// Adds a bus to rmcp servers. Make one per server, and a [`Wrapped`] handler per client of it.
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
    /// What was read so far, with the digest of the last answer; none: touched since. One at a time, so that what is
    /// learnt of one resource is in the order in which it was read.
    seen: tokio::sync::Mutex<HashMap<ResourceUri, Option<Digest>>>,
    /// What was listed last, by part.
    listed: std::sync::Mutex<HashMap<Part, Digest>>,
    /// The newest handler and a client it can be asked for.
    live: std::sync::Mutex<Option<Live>>,
}

#[derive(Clone)]
struct Live {
    inner: Arc<dyn Inner>,
    peer: Peer<RoleServer>,
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
            seen: tokio::sync::Mutex::default(),
            listed: std::sync::Mutex::default(),
            live: std::sync::Mutex::default(),
        };
        Ok(Wrap {
            shared: Arc::new(shared),
        })
    }

    /// Wraps the handler of one client; its session ends when the handler is dropped.
    pub fn handler<H: ServerHandler>(&self, inner: H) -> Wrapped<H> {
        let ours = Handler {
            bus: self.shared.bus.clone(),
            options: self.shared.options.clone(),
            transport: "wrapped",
            opened: Some(Arc::new(OnceLock::new())),
        };
        Wrapped {
            inner: Arc::new(inner),
            ours,
            wrap: self.clone(),
        }
    }

    /// The bus: resources, tools and prompts registered there are served beside those of the wrapped server.
    pub fn bus(&self) -> &Bus {
        &self.shared.bus
    }

    /// Says that a resource of the wrapped server changed. A resource that no client has read or subscribed to yet has
    /// no version that could move, so nothing happens.
    ///
    /// # Errors
    /// [`PublishError::InvalidUri`] and [`PublishError::Closed`].
    pub async fn notify_resource_changed(&self, uri: &str) -> Result<(), PublishError> {
        let uri = ResourceUri::new(uri)?;
        let mut seen = self.shared.seen.lock().await;
        match seen.get_mut(&uri) {
            Some(digest) => *digest = None,
            // What is registered at the bus itself is touched there.
            None if self.shared.bus.etags(vec![uri.clone()]).await? == [None] => return Ok(()),
            None => {}
        }
        self.shared.bus.touch(&uri).await?;
        Ok(())
    }

    /// Asks the wrapped server for its lists again; clients are told of those that are other ones now. For servers
    /// whose lists change without a client having listed them.
    ///
    /// # Errors
    /// [`PublishError::Closed`] when the bus has stopped.
    pub async fn refresh_lists(&self) -> Result<(), PublishError> {
        let Some(live) = self.live() else { return Ok(()) };
        for part in Part::ALL {
            // A server that cannot list a kind has none of it.
            let items = live.inner.list(part, live.peer.clone()).await.unwrap_or_default();
            self.observe_list(part, &items).await?;
        }
        Ok(())
    }

    /// Reads every subscribed resource of the wrapped server again, and tells subscribers of those that are other ones
    /// now. For servers that cannot say when a resource changes.
    ///
    /// # Errors
    /// [`PublishError::Closed`] when the bus has stopped.
    pub async fn refresh_subscribed(&self) -> Result<(), PublishError> {
        let Some(live) = self.live() else { return Ok(()) };
        let seen: Vec<ResourceUri> = self.shared.seen.lock().await.keys().cloned().collect();
        for uri in seen {
            if !self.shared.bus.subscribers(&uri).await?.is_empty() {
                let read = live.inner.read(uri.as_str().to_owned(), live.peer.clone()).await;
                self.observe_read(&uri, &read).await?;
            }
        }
        Ok(())
    }

    /// Does [`refresh_subscribed`](Self::refresh_subscribed) and [`refresh_lists`](Self::refresh_lists) every
    /// `interval`, until the bus stops or the last `Wrap` is gone.
    pub fn refresh_every(&self, interval: Duration) {
        let weak = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(shared) = weak.upgrade() else { return };
                let wrap = Wrap { shared };
                if wrap.refresh_subscribed().await.is_err() || wrap.refresh_lists().await.is_err() {
                    return;
                }
            }
        });
    }

    fn live(&self) -> Option<Live> {
        self.shared
            .live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Remembers whom the wrapped server can be asked for.
    fn remember<H: ServerHandler>(&self, inner: &Arc<H>, peer: &Peer<RoleServer>) {
        let live = Live {
            inner: Arc::new(InnerOf(inner.clone())),
            peer: peer.clone(),
        };
        *self.shared.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    /// Learns from what the wrapped server answered to a read: its etag, or that it is gone.
    async fn observe_read(
        &self,
        uri: &ResourceUri,
        read: &Result<ReadResourceResult, ErrorData>,
    ) -> Result<Option<Etag>, PublishError> {
        let bus = &self.shared.bus;
        let mut seen = self.shared.seen.lock().await;
        let Ok(result) = read else {
            if seen.remove(uri).is_some() {
                bus.remove(uri).await?;
            }
            return Ok(None);
        };
        let digest = Digest::of_json(&serde_json::to_value(&result.contents).unwrap_or_default());
        let etag = match seen.get(uri) {
            None => bus.upsert(self.lazy(uri)).await?.etag,
            Some(Some(known)) if *known != digest => bus.touch(uri).await?.etag,
            Some(_) => bus
                .etags(vec![uri.clone()])
                .await?
                .first()
                .copied()
                .flatten()
                .unwrap_or(Etag::UNKNOWN),
        };
        seen.insert(uri.clone(), Some(digest));
        Ok(Some(etag))
    }

    /// Makes sure that the bus knows `uri` if the wrapped server does; answers whether anybody does.
    async fn ensure(&self, uri: &ResourceUri, peer: &Peer<RoleServer>) -> Result<bool, PublishError> {
        let known = self.shared.bus.etags(vec![uri.clone()]).await? != [None];
        let Some(live) = self.live().filter(|_| !known) else {
            return Ok(known);
        };
        let read = live.inner.read(uri.as_str().to_owned(), peer.clone()).await;
        Ok(self.observe_read(uri, &read).await?.is_some())
    }

    /// The bus's view of a resource that the wrapped server holds and lists.
    fn lazy(&self, uri: &ResourceUri) -> Resource {
        let (weak, owned) = (Arc::downgrade(&self.shared), uri.clone());
        let reader = move || {
            let (weak, uri) = (weak.clone(), owned.clone());
            async move {
                let gone = || CallbackError::from("the wrapped server has no client to be asked for");
                let live = weak
                    .upgrade()
                    .and_then(|shared| Wrap { shared }.live())
                    .ok_or_else(gone)?;
                let read = live.inner.read(uri.as_str().to_owned(), live.peer).await?;
                inner::body(&read)
                    .ok_or_else(|| CallbackError::from("the wrapped server answered no content"))
            }
        };
        Resource::new(Descriptor::new(uri.clone()), Content::Lazy(Arc::new(reader))).listed(false)
    }

    /// Learns from what the wrapped server listed in full.
    async fn observe_list(&self, part: Part, items: &[Value]) -> Result<(), PublishError> {
        let mut digests: Vec<[u8; 16]> = items
            .iter()
            .map(|item| Digest::of_json(item).0.to_le_bytes())
            .collect();
        digests.sort_unstable();
        let whole: Vec<&[u8]> = digests.iter().map(<[u8; 16]>::as_slice).collect();
        let foreign = {
            let mut listed = self.shared.listed.lock().unwrap_or_else(PoisonError::into_inner);
            if items.is_empty() {
                listed.remove(&part);
            } else {
                listed.insert(part, Digest::of(&whole));
            }
            let parts = Part::ALL.into_iter().filter(|other| other.kind() == part.kind());
            let shares: Vec<[u8; 16]> = parts
                .filter_map(|part| Some(listed.get(&part)?.0.to_le_bytes()))
                .collect();
            let shares: Vec<&[u8]> = shares.iter().map(<[u8; 16]>::as_slice).collect();
            (!shares.is_empty()).then(|| Digest::of(&shares))
        };
        self.shared.bus.set_foreign_list(part.kind(), foreign).await?;
        Ok(())
    }
}

/// What the wrapped server can do, and what the bus adds.
fn with_ours(mut capabilities: ServerCapabilities, revision: Revision) -> ServerCapabilities {
    let told = (revision.is_stateless() || revision.tells_lists()).then_some(true);
    let resources = capabilities.resources.get_or_insert_default();
    (resources.subscribe, resources.list_changed) = (Some(true), told);
    capabilities.tools.get_or_insert_default().list_changed = told;
    capabilities.logging.get_or_insert_default();
    if let Some(prompts) = &mut capabilities.prompts {
        prompts.list_changed = told;
    }
    capabilities
}

/// The kinds that a session of this server is told of.
fn kinds(capabilities: &ServerCapabilities) -> Vec<ListKind> {
    let has = |kind: &ListKind| *kind != ListKind::Prompts || capabilities.prompts.is_some();
    ListKind::ALL.into_iter().filter(has).collect()
}
