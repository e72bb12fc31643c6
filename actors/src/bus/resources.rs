//! Requests about resources. Callbacks that fetch bodies run on the task of the caller.

use std::sync::Arc;
use std::time::Instant;

use super::Bus;
use crate::messages::{FinishStart, Found, Lookup, Publish, PublishMany, RegistryRequest, RemoveUnclaimed};
use crate::model::{
    Body, Change, Closed, Condition, Content, Descriptor, Etag, InvalidUri, Outcome, PublishError, ReadError,
    Resource, ResourceUri, run_callback,
};
use crate::runtime::Permit;

/// The most reads of a lazy body whose resource is touched meanwhile.
const READ_ATTEMPTS: usize = 4;

/// A resource at one version.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The description that clients see in the list.
    pub descriptor: Descriptor,
    /// The body.
    pub body: Body,
    /// The etag of this body.
    pub etag: Etag,
}

impl Bus {
    /// Makes `change` if `condition` holds. Waits while the limit of requests in flight is reached.
    ///
    /// # Errors
    /// [`PublishError`]; nothing changed then.
    pub async fn publish(&self, change: Change, condition: Condition) -> Result<Outcome, PublishError> {
        let permit = self.inner.admission.enter_change().await?;
        self.send_change(permit, change, condition).await
    }

    /// Makes a change like [`publish`](Self::publish), but does not wait for admission.
    ///
    /// # Errors
    /// [`PublishError::Busy`] at the limit of requests in flight, else those of `publish`.
    pub async fn try_publish(&self, change: Change, condition: Condition) -> Result<Outcome, PublishError> {
        let permit = self.inner.admission.try_enter_change()?;
        let permit = permit.ok_or(PublishError::Busy(self.inner.limits.in_flight_max))?;
        self.send_change(permit, change, condition).await
    }

    async fn send_change(
        &self,
        permit: Permit,
        change: Change,
        condition: Condition,
    ) -> Result<Outcome, PublishError> {
        let (reply, answer) = permit.reply();
        let now = (self.inner.clock)();
        let publish = Publish {
            change,
            condition,
            owner: self.owner.clone(),
            now,
            reply,
        };
        let registry = &self.inner.actors.registry;
        registry.push_batched(RegistryRequest::Publish(publish)).await;
        answer.await.map_err(|_dropped| Closed)?
    }

    /// Makes each change whose condition holds, in order, and returns their results in the same order. A
    /// refused change has no effect and does not affect the others; a condition sees the changes before it.
    ///
    /// All of them are one request inside the bus, one step of the store, and at most one change of the
    /// resource list, which is told after the last of them. Returns when all are durable and every outbox
    /// is marked.
    ///
    /// # Errors
    /// [`PublishError::BatchTooLarge`] for more changes than [`Limits::batch_max`](crate::Limits::batch_max)
    /// and [`PublishError::Closed`]; nothing changed then.
    pub async fn update_many(
        &self,
        changes: Vec<(Change, Condition)>,
    ) -> Result<Vec<Result<Outcome, PublishError>>, PublishError> {
        self.send_many(changes, false, None).await
    }

    /// Makes the changes of a batch; `in_burst` leaves the announcement of the resource list to its end. A
    /// shared log takes none of them after `deadline`.
    pub(super) async fn send_many(
        &self,
        changes: Vec<(Change, Condition)>,
        in_burst: bool,
        deadline: Option<Instant>,
    ) -> Result<Vec<Result<Outcome, PublishError>>, PublishError> {
        let len = changes.len();
        let max = self.inner.limits.batch_max;
        if len > max {
            let error = PublishError::BatchTooLarge { len, max };
            self.inner.metrics.count_refusal(&error);
            return Err(error);
        }
        let permit = self.inner.admission.enter_change().await?;
        let (reply, answer) = permit.reply();
        let publish = PublishMany {
            changes,
            owner: self.owner.clone(),
            in_burst,
            deadline,
            now: (self.inner.clock)(),
            reply,
        };
        let registry = &self.inner.actors.registry;
        registry.push_batched(RegistryRequest::PublishMany(publish)).await;
        Ok(answer.await.map_err(|_dropped| Closed)?)
    }

    /// Creates a resource.
    ///
    /// # Errors
    /// [`PublishError::AlreadyExists`] if the URI is registered, and those of the limits.
    pub async fn register(&self, resource: Resource) -> Result<Outcome, PublishError> {
        self.publish(Change::Register(resource), Condition::Always).await
    }

    /// Replaces a resource. The same content again is no change, and no subscriber is notified.
    ///
    /// # Errors
    /// [`PublishError::NotFound`] if the URI is not registered, and those of the limits.
    pub async fn update(&self, resource: Resource) -> Result<Outcome, PublishError> {
        self.publish(Change::Update(resource), Condition::Always).await
    }

    /// Creates or replaces a resource.
    ///
    /// # Errors
    /// Those of the limits.
    pub async fn upsert(&self, resource: Resource) -> Result<Outcome, PublishError> {
        self.publish(Change::Upsert(resource), Condition::Always).await
    }

    /// Announces a change that the bus cannot see: of a resource that a callback reads, or of a member of a
    /// template. This is the only change that is not checked against a digest.
    ///
    /// # Errors
    /// [`PublishError::NotFound`] if the URI is unknown.
    pub async fn touch<U>(&self, uri: U) -> Result<Outcome, PublishError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let uri = uri.try_into().map_err(InvalidUri::from)?;
        self.publish(Change::Touch(uri), Condition::Always).await
    }

    /// Announces a change like [`touch`](Self::touch), under the name that other SDKs use.
    ///
    /// # Errors
    /// Those of `touch`.
    pub async fn notify_resource_changed<U>(&self, uri: U) -> Result<Outcome, PublishError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        self.touch(uri).await
    }

    /// Removes a resource. Its subscribers get one last notice, and their next read fails.
    ///
    /// # Errors
    /// [`PublishError::NotFound`] if the URI is not registered.
    pub async fn remove<U>(&self, uri: U) -> Result<Outcome, PublishError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let uri = uri.try_into().map_err(InvalidUri::from)?;
        self.publish(Change::Remove(uri), Condition::Always).await
    }

    /// Says that the owner of this handle has registered everything that it has. Its resources of a former
    /// life that are not registered again are removed, and their subscribers are notified. Returns their
    /// number; 0 without a store.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_unclaimed(&self) -> Result<usize, Closed> {
        let owner = self.owner.clone();
        let now = (self.inner.clock)();
        self.ask_change(|reply| RemoveUnclaimed {
            owner,
            now,
            reply: Some(reply),
        })
        .await
    }

    /// Says that every owner has registered what it has. In a life with a store, changes of lists are
    /// announced from here on, and before that at most once per list that differs from the life before.
    /// Without this call the start ends after 10 seconds.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn finish_start(&self) -> Result<(), Closed> {
        self.ask_change(|reply| FinishStart(Some(reply))).await
    }

    /// Reads the body and the etag of one version. A lazy body is read by its callback, and a few times
    /// again while the resource is touched; the etag is never newer than the body.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read<U>(&self, uri: U) -> Result<Snapshot, ReadError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let uri = uri.try_into().map_err(InvalidUri::from)?;
        let mut current = self.find(&uri).await?;
        for attempt in 1.. {
            let Some((found, etag)) = current else {
                break;
            };
            let (descriptor, body, lazy) = fetch(&uri, &found).await?;
            let snapshot = Snapshot {
                descriptor,
                body,
                etag,
            };
            if !lazy || attempt == READ_ATTEMPTS {
                return Ok(snapshot);
            }
            current = self.find(&uri).await?;
            match &current {
                // The resource was touched meanwhile, so the body may be of either version.
                Some((_, now)) if *now != etag => {}
                _ => return Ok(snapshot),
            }
        }
        Err(ReadError::NotFound(uri))
    }

    async fn find(&self, uri: &ResourceUri) -> Result<Option<(Found, Etag)>, Closed> {
        if !self.inner.admission.is_open() {
            return Err(Closed);
        }
        if let Some(entry) = self.inner.etag_index.get(uri.as_str()) {
            return Ok(Some((Found::Resource(entry.resource), entry.etag)));
        }
        // A member of a template, which the index does not have, or an unknown URI.
        let uris = vec![uri.clone()];
        let found = self.ask(|reply| Lookup::Resources(uris, reply)).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// Returns the etag of a resource; version 0 if the URI is unknown.
    ///
    /// # Errors
    /// [`ReadError::InvalidUri`] and [`ReadError::Closed`].
    pub async fn etag<U>(&self, uri: U) -> Result<Etag, ReadError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let uri = uri.try_into().map_err(InvalidUri::from)?;
        if let Some(etag) = self.cached_etag(uri.as_str())? {
            return Ok(etag);
        }
        let etags = self.etags(vec![uri]).await?;
        Ok(etags.into_iter().next().flatten().unwrap_or(Etag::UNKNOWN))
    }

    /// Returns the etags of several resources at one point in the order of changes; none for an unknown
    /// URI.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn etags(&self, uris: Vec<ResourceUri>) -> Result<Vec<Option<Etag>>, Closed> {
        let found = self.ask(|reply| Lookup::Resources(uris, reply)).await?;
        let etags = found.into_iter().map(|found| found.map(|(_, etag)| etag));
        Ok(etags.collect())
    }

    /// Returns the etag of a registered resource without a request to the actors. Every version whose
    /// publisher was answered, or of which a subscriber was notified, is visible. A member of a template
    /// has none here; [`etags`](Self::etags) finds it.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn cached_etag(&self, uri: &str) -> Result<Option<Etag>, Closed> {
        if self.inner.admission.is_open() {
            Ok(self.inner.etag_index.etag(uri))
        } else {
            Err(Closed)
        }
    }

    /// Returns a registered resource with its etag, as [`cached_etag`](Self::cached_etag) does: its content
    /// is the one of that etag.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn cached_resource(&self, uri: &str) -> Result<Option<(Arc<Resource>, Etag)>, Closed> {
        if !self.inner.admission.is_open() {
            return Err(Closed);
        }
        let entry = self.inner.etag_index.get(uri);
        Ok(entry.map(|entry| (entry.resource, entry.etag)))
    }

    /// Returns true if a client that holds `client_etag` must read again.
    ///
    /// # Errors
    /// Those of [`etag`](Self::etag).
    pub async fn is_stale<U>(&self, uri: U, client_etag: Option<&str>) -> Result<bool, ReadError>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        Ok(self.etag(uri).await?.is_stale(client_etag))
    }
}

/// Fetches the body. The last value is true if a callback returned it.
async fn fetch(uri: &ResourceUri, found: &Found) -> Result<(Descriptor, Body, bool), ReadError> {
    let result = match found {
        Found::Resource(resource) => match resource.content() {
            Content::Held(body) => return Ok((resource.descriptor().clone(), body.clone(), false)),
            Content::Lazy(reader) => run_callback(|| reader.read()).await.map(Some),
        },
        Found::Member(template, variables, _) => {
            run_callback(|| template.reader().read(uri.clone(), variables.clone())).await
        }
    };
    let body = match result {
        Ok(Some(body)) => body,
        Ok(None) => return Err(ReadError::NotFound(uri.clone())),
        Err(source) => {
            let uri = uri.clone();
            return Err(ReadError::Reader { uri, source });
        }
    };
    let descriptor = match found {
        Found::Resource(resource) => resource.descriptor().clone(),
        Found::Member(template, ..) => Descriptor {
            media_type: template.media_type.clone(),
            subscribable: template.subscribable,
            ..Descriptor::new(uri.clone())
        },
    };
    Ok((descriptor, body, true))
}
