//! Changing and reading resources. Callbacks that fetch bodies run here, on the caller's task.

use super::Bus;
use crate::messages::{Found, Lookup, Publish, RegistryRequest};
use crate::model::{
    Body, Change, Closed, Condition, Content, Descriptor, Etag, InvalidUri, Outcome, PublishError, ReadError,
    Resource, ResourceUri, run_callback,
};
use crate::runtime::Permit;

/// How often a lazy body is read again because its resource was touched meanwhile.
const READ_ATTEMPTS: usize = 4;

/// A resource at one version: body and etag belong together.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What clients see of it in a list.
    pub descriptor: Descriptor,
    /// Its body.
    pub body: Body,
    /// The version of that body.
    pub etag: Etag,
}

impl Bus {
    /// Makes `change` when `condition` holds. Waits at the door while as many requests as allowed are in flight.
    ///
    /// # Errors
    /// [`PublishError`], and nothing changed.
    pub async fn publish(&self, change: Change, condition: Condition) -> Result<Outcome, PublishError> {
        let permit = self.inner.admission.enter().await?;
        self.send_change(permit, change, condition).await
    }

    /// Like [`publish`](Self::publish), but refuses to wait.
    ///
    /// # Errors
    /// [`PublishError::Busy`] when it would have to, else as `publish`.
    pub async fn try_publish(&self, change: Change, condition: Condition) -> Result<Outcome, PublishError> {
        let permit = self.inner.admission.try_enter()?;
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
            now,
            reply,
        };
        let registry = &self.inner.actors.registry;
        registry.push_batched(RegistryRequest::Publish(publish)).await;
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
        if let Some(etag) = self.cached_etag(uri.as_str())? {
            return Ok(etag);
        }
        let etags = self.etags(vec![uri]).await?;
        Ok(etags.into_iter().next().flatten().unwrap_or(Etag::UNKNOWN))
    }

    /// The etags of several resources at one point in the order of changes; none for an unknown URI.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn etags(&self, uris: Vec<ResourceUri>) -> Result<Vec<Option<Etag>>, Closed> {
        let found = self.ask(|reply| Lookup::Resources(uris, reply)).await?;
        let etags = found.into_iter().map(|found| found.map(|(_, etag)| etag));
        Ok(etags.collect())
    }

    /// The etag of a registered resource, as far as publishers have been answered and subscribers may have been told,
    /// without waiting and without asking the actors. None for everything else, a member of a template among them:
    /// [`etags`](Self::etags) knows.
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
            media_type: template.body_media_type().map(str::to_owned),
            subscribable: template.subscribable,
            ..Descriptor::new(uri.clone())
        },
    };
    Ok((descriptor, body, true))
}
