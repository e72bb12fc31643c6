//! The handle that publishers and subscribers hold.
//!
//! Owns: the way in (the door) and the tasks that run callbacks: lazy readers, template readers and listers. Never:
//! holds truth of its own; every answer comes from the actors. `Clone`, `Send`, usable from any tokio task; no type
//! of the actor framework shows.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use actix::{Actor, Addr, Handler, Message};
use tokio::sync::{Semaphore, oneshot};

use crate::callback;
use crate::catalog::Found;
use crate::change::{Change, Condition, ListChange, ListOutcome, Outcome};
use crate::door::{Door, Permit, Ticket};
use crate::error::{OpenError, PublishError, ReadError, StartError};
use crate::ledger::Checkpoint;
use crate::limits::Limits;
use crate::message::{EndAll, Find, Look, PageResources, Publish, PublishList, Read, SubscriberInfo, Survey};
use crate::metric::Metrics;
use crate::outbox::{EndReason, Outbox, SubscriberId};
use crate::post::{Life, post};
use crate::registry::Registry;
use crate::session::{Session, SessionActor, SessionOptions};
use crate::store::Store;
use crate::system::{Actors, Parts, Shard, current_shard};
use crate::{
    Body, Closed, Content, Descriptor, Digest, Etag, InvalidUri, ListKind, Prompt, Resource,
    ResourceTemplate, ResourceUri, Tool,
};

/// How often a lazy body is read again because its resource was touched meanwhile.
const READ_ATTEMPTS: usize = 4;

/// How long a shutdown whose time is up waits for the threads to end.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// Tells the time for etags, in seconds since 1970-01-01 UTC.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How a bus is started.
pub struct Builder {
    limits: Limits,
    store: Option<Box<dyn Store>>,
    clock: Clock,
}

impl Builder {
    /// Sets what it holds at most.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// Keeps versions in `store`, so that they outlive this process. Without one they live in memory, and the time
    /// in an etag tells the lives apart.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Builder {
        self.store = Some(Box::new(store));
        self
    }

    /// Takes the time of etags from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Builder {
        self.clock = Arc::new(clock);
        self
    }

    /// Starts the bus on threads of its own; it may be called inside or outside a tokio runtime and returns when the
    /// bus runs.
    ///
    /// # Errors
    /// [`StartError`] when the store cannot be read or a thread cannot be started.
    pub fn start(self) -> Result<Bus, StartError> {
        let Builder {
            limits,
            mut store,
            clock,
        } = self;
        let mut checkpoint = store
            .as_mut()
            .map_or(Ok(Checkpoint::default()), |store| store.load())?;
        if checkpoint.epoch == 0 {
            // Without history, offsets begin anew; milliseconds tell this beginning from any other.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            checkpoint.epoch = now.as_millis() as u64;
        }
        let limits = Arc::new(limits.checked());
        let metrics = Metrics::register();
        let door = Door::new(limits.in_flight_max);
        let places = Arc::new(Semaphore::new(limits.sessions_max));
        let parts = Parts {
            limits: limits.clone(),
            metrics: metrics.clone(),
            door: door.clone(),
            checkpoint,
            store,
        };
        let actors = Actors::start(parts)?;
        let next_id = AtomicU64::new(1);
        let next_shard = AtomicUsize::new(0);
        let inner = Inner {
            actors,
            door,
            limits,
            metrics,
            clock,
            places,
            next_id,
            next_shard,
        };
        Ok(Bus {
            inner: Arc::new(inner),
        })
    }
}

struct Inner {
    actors: Actors,
    door: Door,
    limits: Arc<Limits>,
    metrics: Arc<Metrics>,
    clock: Clock,
    places: Arc<Semaphore>,
    next_id: AtomicU64,
    next_shard: AtomicUsize,
}

/// A resource at one version: body and etag belong together.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What clients see of it in a list.
    pub descriptor: Descriptor,
    /// Its body.
    pub body: Body,
    /// The version of that body.
    pub etag: Etag,
    /// The revision for [`Condition::Revision`]; none for a member of a template.
    pub revision: Option<u64>,
}

/// A page of a list, and where the next one begins.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items, in the order of their names.
    pub items: Vec<T>,
    /// What to ask for next; none when this was the last page.
    pub next: Option<String>,
}

/// The bus's counters since it started, and what it holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Registered resources.
    pub resources: usize,
    /// Resource templates.
    pub templates: usize,
    /// Tools.
    pub tools: usize,
    /// Prompts.
    pub prompts: usize,
    /// Sessions and streams attached.
    pub sessions: usize,
    /// Requests behind the door.
    pub in_flight: usize,
    /// Changes that altered something.
    pub changes: u64,
    /// Changes that altered nothing and told nobody.
    pub unchanged: u64,
    /// Changes refused with an error.
    pub refused: u64,
    /// Stamped resource changes.
    pub notices: u64,
    /// List hashes that became another one.
    pub list_changes: u64,
    /// Outbox entries newly pending.
    pub told: u64,
    /// Outbox entries replaced by a newer one before they were told.
    pub conflated: u64,
    /// Sessions and streams ever attached.
    pub sessions_opened: u64,
    /// Messages refused by a mailbox; a bug when not 0.
    pub mailbox_refused: u64,
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Streams that were still open when the time was up.
    pub streams_cut: usize,
}

/// The one handle of the bus.
///
/// ```
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use tidings_actors::{Bus, Resource};
/// let bus = Bus::builder().start()?;
/// bus.register(Resource::text("demo://greeting", "hello")?).await?;
/// let again = bus.update(Resource::text("demo://greeting", "hello")?).await?;
/// assert!(!again.changed);
/// let outcome = bus.update(Resource::text("demo://greeting", "good day")?).await?;
/// assert_eq!(outcome.etag.version, 2);
/// assert_eq!(bus.read("demo://greeting").await?.etag, outcome.etag);
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
}

impl Bus {
    /// A bus with default limits, versions in memory and the system's clock, to be changed and started.
    pub fn builder() -> Builder {
        let clock = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs())
        };
        Builder {
            limits: Limits::default(),
            store: None,
            clock: Arc::new(clock),
        }
    }

    /// What it holds at most.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// A handle that does not keep it running.
    pub fn downgrade(&self) -> WeakBus {
        WeakBus {
            inner: Arc::downgrade(&self.inner),
        }
    }

    // ── Resources ───────────────────────────────────────────────────────────────────────────────────────────────

    /// Makes `change` when `condition` holds. Waits at the door while as many requests as allowed are in flight.
    ///
    /// # Errors
    /// [`PublishError`], and nothing changed.
    pub async fn publish(&self, change: Change, condition: Condition) -> Result<Outcome, PublishError> {
        let permit = self.inner.door.enter().await?;
        self.send_change(permit, change, condition).await
    }

    /// Like [`publish`](Self::publish), but refuses to wait.
    ///
    /// # Errors
    /// [`PublishError::Busy`] when it would have to, else as `publish`.
    pub async fn try_publish(&self, change: Change, condition: Condition) -> Result<Outcome, PublishError> {
        let permit = self.inner.door.try_enter()?;
        let permit = permit.ok_or(PublishError::Busy(self.inner.limits.in_flight_max))?;
        self.send_change(permit, change, condition).await
    }

    async fn send_change(
        &self,
        permit: Permit,
        change: Change,
        condition: Condition,
    ) -> Result<Outcome, PublishError> {
        let (ticket, answer) = permit.ticket();
        let now = (self.inner.clock)();
        self.to_registry(Publish {
            change,
            condition,
            now,
            ticket,
        });
        answer.await.map_err(|_dropped| Closed)?
    }

    /// Creates a resource.
    ///
    /// # Errors
    /// [`PublishError::AlreadyExists`] when the URI exists, and the limits'.
    pub async fn register(&self, resource: Resource) -> Result<Outcome, PublishError> {
        self.publish(Change::Register(resource), Condition::Always).await
    }

    /// Replaces a resource. The same content again changes nothing and tells nobody.
    ///
    /// # Errors
    /// [`PublishError::NotFound`] when the URI is unknown, and the limits'.
    pub async fn update(&self, resource: Resource) -> Result<Outcome, PublishError> {
        self.publish(Change::Update(resource), Condition::Always).await
    }

    /// Creates or replaces a resource.
    ///
    /// # Errors
    /// The limits' [`PublishError`].
    pub async fn upsert(&self, resource: Resource) -> Result<Outcome, PublishError> {
        self.publish(Change::Upsert(resource), Condition::Always).await
    }

    /// Says that a resource changed, though the bus cannot see how: one that a callback reads, or a member of a
    /// template. This is the one change that is believed rather than decided by digest.
    ///
    /// # Errors
    /// [`PublishError::NotFound`] when the URI is unknown.
    pub async fn touch<U>(&self, uri: U) -> Result<Outcome, PublishError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let uri = uri.try_into().map_err(InvalidUri::from)?;
        self.publish(Change::Touch(uri), Condition::Always).await
    }

    /// [`touch`](Self::touch), for those who come from other SDKs.
    ///
    /// # Errors
    /// As `touch`.
    pub async fn notify_resource_changed<U>(&self, uri: U) -> Result<Outcome, PublishError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        self.touch(uri).await
    }

    /// Removes a resource. Its subscribers get one last notice, so that their next read tells them it is gone.
    ///
    /// # Errors
    /// [`PublishError::NotFound`] when the URI is unknown.
    pub async fn remove<U>(&self, uri: U) -> Result<Outcome, PublishError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let uri = uri.try_into().map_err(InvalidUri::from)?;
        self.publish(Change::Remove(uri), Condition::Always).await
    }

    /// Reads a resource: body and etag of one version. A lazy body is read by its callback, on the caller's task;
    /// when the resource is touched meanwhile it is read again, a few times, and its etag is in no case newer than
    /// its body.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read<U>(&self, uri: U) -> Result<Snapshot, ReadError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let uri = uri.try_into().map_err(InvalidUri::from)?;
        let mut held = self.find(&uri).await?;
        for attempt in 1.. {
            let (found, etag) = held.ok_or_else(|| ReadError::NotFound(uri.clone()))?;
            let (descriptor, body, revision, lazy) = fetch(&uri, &found).await?;
            let snapshot = Snapshot {
                descriptor,
                body,
                etag,
                revision,
            };
            if !lazy || attempt == READ_ATTEMPTS {
                return Ok(snapshot);
            }
            held = self.find(&uri).await?;
            if held.as_ref().is_none_or(|(_, now)| *now == etag) {
                return Ok(snapshot);
            }
        }
        Err(ReadError::NotFound(uri))
    }

    async fn find(&self, uri: &ResourceUri) -> Result<Option<(Found, Etag)>, Closed> {
        self.ask(|ticket| Read {
            uri: uri.clone(),
            ticket,
        })
        .await
    }

    /// The etag of a resource; version 0 when the URI is unknown.
    ///
    /// # Errors
    /// [`ReadError::InvalidUri`] and [`ReadError::Closed`].
    pub async fn etag<U>(&self, uri: U) -> Result<Etag, ReadError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let uri = uri.try_into().map_err(InvalidUri::from)?;
        let etags = self.etags(vec![uri]).await?;
        Ok(etags.into_iter().next().flatten().unwrap_or(Etag::UNKNOWN))
    }

    /// The etags of several resources at one point in the order of changes; none for an unknown URI.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn etags(&self, uris: Vec<ResourceUri>) -> Result<Vec<Option<Etag>>, Closed> {
        self.ask(|ticket| Look { uris, ticket }).await
    }

    /// Whether a client that holds `client_etag` must read again.
    ///
    /// # Errors
    /// As [`etag`](Self::etag).
    pub async fn is_stale<U>(&self, uri: U, client_etag: Option<&str>) -> Result<bool, ReadError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        Ok(self.etag(uri).await?.is_stale(client_etag))
    }

    // ── Lists ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// A page of resources with their etags: at most `limit`, those after `after` (the `next` of the page before).
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn resources(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Page<(Arc<Resource>, Etag)>, Closed> {
        let limit = limit.max(1);
        let found = self
            .ask(|ticket| PageResources {
                after,
                limit: limit + 1,
                ticket,
            })
            .await?;
        Ok(page(found, limit, |(resource, _)| {
            resource.uri().as_str().to_owned()
        }))
    }

    /// What the templates with a lister list now, with etags, in the order of the templates. Listing again what was
    /// listed before is no change; another set is one change of the resource list.
    ///
    /// # Errors
    /// [`PublishError::Lister`] naming the template whose lister failed; [`Closed`].
    pub async fn listed_members(&self) -> Result<Vec<(Descriptor, Etag)>, PublishError> {
        let mut members = Vec::new();
        for template in self.templates().await? {
            let Some((listed, digest)) = list_members(&template, self.inner.limits.list_items_max).await?
            else {
                continue;
            };
            members.extend(listed);
            let name = template.uri_template().as_str().to_owned();
            self.change_list(ListChange::Listed(name, digest)).await?;
        }
        let uris = members.iter().map(|member| member.uri.clone()).collect();
        let etags = self.etags(uris).await?;
        let with_etag = members
            .into_iter()
            .zip(etags)
            .map(|(member, etag)| (member, etag.unwrap_or(Etag::UNKNOWN)));
        Ok(with_etag.collect())
    }

    /// Every resource template, in the order of their texts.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn templates(&self) -> Result<Vec<Arc<ResourceTemplate>>, Closed> {
        self.ask(Find::Templates).await
    }

    /// A page of tools: at most `limit`, those after `after`.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn tools(&self, after: Option<String>, limit: usize) -> Result<Page<Arc<Tool>>, Closed> {
        let limit = limit.max(1);
        let found = self
            .ask(|ticket| Find::Tools {
                after,
                limit: limit + 1,
                ticket,
            })
            .await?;
        Ok(page(found, limit, |tool| tool.name().to_owned()))
    }

    /// A page of prompts: at most `limit`, those after `after`.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn prompts(&self, after: Option<String>, limit: usize) -> Result<Page<Arc<Prompt>>, Closed> {
        let limit = limit.max(1);
        let found = self
            .ask(|ticket| Find::Prompts {
                after,
                limit: limit + 1,
                ticket,
            })
            .await?;
        Ok(page(found, limit, |prompt| prompt.name().to_owned()))
    }

    /// The tool of that name.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn tool(&self, name: &str) -> Result<Option<Arc<Tool>>, Closed> {
        self.ask(|ticket| Find::Tool(name.to_owned(), ticket)).await
    }

    /// The prompt of that name.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn prompt(&self, name: &str) -> Result<Option<Arc<Prompt>>, Closed> {
        self.ask(|ticket| Find::Prompt(name.to_owned(), ticket)).await
    }

    /// Adds a tool, in place of one of the same name.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn add_tool(&self, tool: Tool) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::PutTool(Arc::new(tool))).await
    }

    /// Makes these all the tools there are. Clients are told once, and only when the list is another one.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn replace_tools(&self, tools: Vec<Tool>) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::ReplaceTools(
            tools.into_iter().map(Arc::new).collect(),
        ))
        .await
    }

    /// Removes a tool; removing one that is not there changes nothing.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_tool(&self, name: &str) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::RemoveTool(name.to_owned())).await
    }

    /// Removes the tools named in `removes`, then adds `puts`, each in place of one of the same name: one change,
    /// told once and only when the list is another one. A tool whose item stays the same is exchanged silently.
    /// Tools of others stay, so that several publishers share the list.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit, and nothing changed; [`Closed`].
    pub async fn change_tools(
        &self,
        puts: Vec<Tool>,
        removes: Vec<String>,
    ) -> Result<ListOutcome, PublishError> {
        let puts = puts.into_iter().map(Arc::new).collect();
        self.change_list(ListChange::ChangeTools { puts, removes }).await
    }

    /// Adds a prompt, in place of one of the same name.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn add_prompt(&self, prompt: Prompt) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::PutPrompt(Arc::new(prompt))).await
    }

    /// Makes these all the prompts there are. Clients are told once, and only when the list is another one.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn replace_prompts(&self, prompts: Vec<Prompt>) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::ReplacePrompts(
            prompts.into_iter().map(Arc::new).collect(),
        ))
        .await
    }

    /// Removes a prompt; removing one that is not there changes nothing.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_prompt(&self, name: &str) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::RemovePrompt(name.to_owned())).await
    }

    /// Removes the prompts named in `removes`, then adds `puts`, each in place of one of the same name: one change,
    /// told once and only when the list is another one. Prompts of others stay.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit, and nothing changed; [`Closed`].
    pub async fn change_prompts(
        &self,
        puts: Vec<Prompt>,
        removes: Vec<String>,
    ) -> Result<ListOutcome, PublishError> {
        let puts = puts.into_iter().map(Arc::new).collect();
        self.change_list(ListChange::ChangePrompts { puts, removes })
            .await
    }

    /// Adds a resource template, in place of the same one. Its lister runs once, here.
    ///
    /// # Errors
    /// [`PublishError::Lister`] when its lister fails, [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn add_template(&self, template: ResourceTemplate) -> Result<ListOutcome, PublishError> {
        // Listed before it is registered: the first client's list must not look like a change.
        let listed = list_members(&template, self.inner.limits.list_items_max).await?;
        let digest = listed.map(|(_, digest)| digest);
        self.change_list(ListChange::PutTemplate(Arc::new(template), digest))
            .await
    }

    /// Removes a resource template; removing one that is not there changes nothing.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_template(&self, uri_template: &str) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::RemoveTemplate(uri_template.to_owned()))
            .await
    }

    /// Says that what somebody else lists of this kind, beside the bus's own items, has this digest now (none: there is
    /// nothing). It is part of the list hash, so clients are told when it becomes another one, and only then.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn set_foreign_list(
        &self,
        kind: ListKind,
        digest: Option<Digest>,
    ) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::Foreign(kind, digest)).await
    }

    async fn change_list(&self, change: ListChange) -> Result<ListOutcome, PublishError> {
        let now = (self.inner.clock)();
        self.ask(|ticket| PublishList { change, now, ticket }).await?
    }

    // ── Subscribers ─────────────────────────────────────────────────────────────────────────────────────────────

    /// Opens a session; it is attached when this answers. On a shard's thread it belongs to that shard, else to each
    /// in turn. Waits at the door.
    ///
    /// # Errors
    /// [`OpenError::TooMany`] at the limit; [`Closed`].
    pub async fn open(&self, mut options: SessionOptions) -> Result<Session, OpenError> {
        let inner = &self.inner;
        let place = inner.places.clone().try_acquire_owned();
        let place = place.map_err(|_full| OpenError::TooMany(inner.limits.sessions_max))?;
        let (attach, attached) = inner.door.enter().await?.ticket();
        options.subscriptions_max = options.subscriptions_max.min(inner.limits.subscriptions_max);
        let in_turn = || inner.next_shard.fetch_add(1, Ordering::Relaxed) % inner.actors.shards.len();
        let shard = current_shard()
            .filter(|shard| *shard < inner.actors.shards.len())
            .unwrap_or_else(in_turn);
        let id = SubscriberId(inner.next_id.fetch_add(1, Ordering::Relaxed));
        let outbox = Arc::new(Outbox::new(id, shard, options.kind, options.label.clone()));
        let (active, opened) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let actor = SessionActor {
            outbox: outbox.clone(),
            attach: Some(attach),
            registry: inner.actors.registry.clone(),
            options,
            active: active.clone(),
            opened,
            metrics: inner.metrics.clone(),
            place: Some(place),
            life: inner.actors.life.subscribe(),
        };
        let mailbox = inner.limits.in_flight_max + 8;
        let actor = SessionActor::start_in_arbiter(&inner.actors.shards[shard].arbiter, move |ctx| {
            ctx.set_mailbox_capacity(mailbox);
            actor
        });
        let session = Session {
            outbox,
            actor,
            door: inner.door.clone(),
            active,
            opened,
            drain_max: inner.limits.drain_max,
            ending: AtomicBool::new(false),
            metrics: inner.metrics.clone(),
        };
        // Nothing is asked of it before it runs: until then its mailbox would hold 16 messages.
        attached.await.map_err(|_dropped| Closed)?;
        Ok(session)
    }

    /// Every session and stream, with what it has not been told yet; those with the oldest untold notice first.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn sessions(&self) -> Result<Vec<SubscriberInfo>, Closed> {
        self.survey(None).await
    }

    /// Who is subscribed to `uri`.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn subscribers(&self, uri: &ResourceUri) -> Result<Vec<SubscriberInfo>, Closed> {
        self.survey(Some(uri.clone())).await
    }

    async fn survey(&self, uri: Option<ResourceUri>) -> Result<Vec<SubscriberInfo>, Closed> {
        let mut found = Vec::new();
        for publisher in &self.inner.actors.publishers {
            let uri = uri.clone();
            found.extend(self.ask_at(publisher, |ticket| Survey { uri, ticket }).await?);
        }
        found.sort_by_key(|info| (std::cmp::Reverse(info.pending.oldest), info.id));
        Ok(found)
    }

    /// The shards' threads, for those who carry connections.
    pub fn shards(&self) -> &[Shard] {
        &self.inner.actors.shards
    }

    // ── Life ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Its counters.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn stats(&self) -> Result<Stats, Closed> {
        let [resources, templates, tools, prompts] = self.ask(Find::Counts).await?;
        let Inner {
            metrics,
            door,
            limits,
            places,
            ..
        } = &*self.inner;
        Ok(Stats {
            resources,
            templates,
            tools,
            prompts,
            sessions: limits.sessions_max - places.available_permits(),
            in_flight: door.inside(),
            changes: metrics.changes.get(),
            unchanged: metrics.unchanged.get(),
            refused: metrics.refused.get(),
            notices: metrics.notices.get(),
            list_changes: metrics.list_changes.get(),
            told: metrics.told.get(),
            conflated: metrics.conflated.get(),
            sessions_opened: metrics.sessions_opened.get(),
            mailbox_refused: metrics.mailbox_refused.get(),
        })
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        *self.inner.actors.life.borrow() == Life::Running
    }

    /// Waits until it has stopped; answers the name of the actor that died, if that was why.
    pub async fn stopped(&self) -> Option<&'static str> {
        let mut life = self.inner.actors.life.subscribe();
        match life
            .wait_for(|life| *life != Life::Running)
            .await
            .map(|life| *life)
        {
            Ok(Life::Dead(actor)) => Some(actor),
            _ => None,
        }
    }

    /// Shuts down: lets nobody in any more, finishes what is in flight, has every stream told what is pending and
    /// ended gracefully, waiting at most `drain_timeout` for the streams; then stops the actors and waits for their
    /// threads, the store's included, for the rest of that time but at least half a second.
    pub async fn shutdown(&self, drain_timeout: Duration) -> DrainReport {
        let deadline = tokio::time::Instant::now() + drain_timeout;
        let inner = &self.inner;
        inner.door.close();
        while inner.door.inside() > 0 && self.is_running() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for publisher in &inner.actors.publishers {
            post(publisher, EndAll(EndReason::Shutdown), &inner.metrics);
        }
        let mut streams_cut = self.open_streams().await;
        while streams_cut > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
            streams_cut = self.open_streams().await;
        }
        if streams_cut > 0 {
            tracing::warn!(streams_cut, "drain timed out; streams are cut");
        }
        self.stop(deadline).await;
        DrainReport { streams_cut }
    }

    /// Stops the actors and waits until their threads have ended, or until `deadline` and a little longer.
    async fn stop(&self, deadline: tokio::time::Instant) {
        let (stopped, ended) = oneshot::channel();
        let bus = self.clone();
        // A thread of its own: one of the caller's runtime would keep that from ending when it is a shard's own.
        let stop = move || {
            bus.inner.actors.stop();
            // A shutdown that lost patience no longer listens.
            stopped.send(()).unwrap_or_default();
        };
        let spawned = std::thread::Builder::new()
            .name("tidings-stop".into())
            .spawn(stop);
        let patience = deadline.max(tokio::time::Instant::now() + STOP_PATIENCE);
        let waited = tokio::time::timeout_at(patience, ended).await;
        if spawned.is_err() || !matches!(waited, Ok(Ok(()))) {
            tracing::warn!("the threads of the bus have not ended yet; a store or a stream holds one up");
        }
    }

    /// How many streams are open, by a way that does not need the closed door.
    async fn open_streams(&self) -> usize {
        let drain = Door::new(1);
        let mut open = 0;
        for publisher in &self.inner.actors.publishers {
            let Ok(permit) = drain.enter().await else { continue };
            let (ticket, answer) = permit.ticket();
            post(publisher, Survey { uri: None, ticket }, &self.inner.metrics);
            open += answer
                .await
                .map_or(0, |infos| infos.iter().map(|info| info.pending.streams).sum());
        }
        open
    }

    fn to_registry<M>(&self, message: M)
    where
        M: Message<Result = ()> + Send + 'static,
        Registry: Handler<M>,
    {
        post(&self.inner.actors.registry, message, &self.inner.metrics);
    }

    async fn ask<T, M>(&self, message: impl FnOnce(Ticket<T>) -> M) -> Result<T, Closed>
    where
        M: Message<Result = ()> + Send + 'static,
        Registry: Handler<M>,
    {
        self.ask_at(&self.inner.actors.registry, message).await
    }

    async fn ask_at<A, T, M>(&self, to: &Addr<A>, message: impl FnOnce(Ticket<T>) -> M) -> Result<T, Closed>
    where
        A: Actor<Context = actix::Context<A>> + Handler<M>,
        M: Message<Result = ()> + Send + 'static,
    {
        let (ticket, answer): (_, oneshot::Receiver<T>) = self.inner.door.enter().await?.ticket();
        post(to, message(ticket), &self.inner.metrics);
        answer.await.map_err(|_dropped| Closed)
    }
}

/// A handle that does not keep the bus running: for tools and readers that the bus itself holds.
#[derive(Clone)]
pub struct WeakBus {
    inner: Weak<Inner>,
}

impl WeakBus {
    /// The bus, while somebody else keeps it running.
    ///
    /// # Errors
    /// [`Closed`] when nobody does any more.
    pub fn upgrade(&self) -> Result<Bus, Closed> {
        self.inner.upgrade().map(|inner| Bus { inner }).ok_or(Closed)
    }
}

impl std::fmt::Debug for WeakBus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakBus")
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus")
            .field("running", &self.is_running())
            .finish_non_exhaustive()
    }
}

/// Fetches the body of what was found; the last value says whether a callback did.
async fn fetch(uri: &ResourceUri, found: &Found) -> Result<(Descriptor, Body, Option<u64>, bool), ReadError> {
    let failed = |source| ReadError::Reader {
        uri: uri.clone(),
        source,
    };
    match found {
        Found::Resource(resource, revision) => {
            let (body, lazy) = match resource.content() {
                Content::Held(body) => (body.clone(), false),
                Content::Lazy(reader) => (callback::run(|| reader.read()).await.map_err(failed)?, true),
            };
            Ok((resource.descriptor().clone(), body, Some(*revision), lazy))
        }
        Found::Member(template, variables, _) => {
            let read = || template.reader().read(uri.clone(), variables.clone());
            let read = callback::run(read).await.map_err(failed)?;
            let body = read.ok_or_else(|| ReadError::NotFound(uri.clone()))?;
            let descriptor = Descriptor {
                media_type: template.body_media_type().map(str::to_owned),
                subscribable: template.subscribable,
                ..Descriptor::new(uri.clone())
            };
            Ok((descriptor, body, None, true))
        }
    }
}

/// Runs the lister of `template`, if it has one; answers its members and their digest.
async fn list_members(
    template: &ResourceTemplate,
    max: usize,
) -> Result<Option<(Vec<Descriptor>, Digest)>, PublishError> {
    let Some(lister) = template.lister() else {
        return Ok(None);
    };
    let name = template.uri_template().as_str();
    let failed = |message: String| PublishError::Lister {
        template: name.to_owned(),
        message,
    };
    let listed = callback::run(|| lister.list()).await;
    let mut members = listed.map_err(|error| failed(error.to_string()))?;
    if members.len() > max {
        return Err(failed(format!(
            "it lists {} members and the limit is {max}",
            members.len()
        )));
    }
    members.sort_by(|a, b| a.uri.cmp(&b.uri));
    let digests: Vec<[u8; 16]> = members
        .iter()
        .map(|member| member.digest().0.to_le_bytes())
        .collect();
    let parts: Vec<&[u8]> = digests.iter().map(<[u8; 16]>::as_slice).collect();
    Ok(Some((members, Digest::of(&parts))))
}

/// Cuts the one item too many that tells whether there is a next page.
fn page<T>(mut items: Vec<T>, limit: usize, key: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = if more { items.last().map(key) } else { None };
    Page { items, next }
}
