//! Learning: the bus's versions and list hashes are moved by the wrapped server's answers.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, ReadResourceResult};
use serde_json::Value;

use super::client_view::{self, ClientView, ServerList};
use super::content::{KnownContent, ReadAnswer, ReadDecision, decide};
use super::{CALLING_CLIENT, Wrap, WrapState, listed};
use crate::{Body, CallbackError, Content, Descriptor, Digest, Etag, PublishError, Resource, ResourceUri};

/// The number of resources that the wrapper reads at once when it reads several by itself.
const READS_AT_ONCE: usize = 16;

impl Wrap {
    /// Reads resources of the wrapped server and learns from the answers.
    pub(super) async fn learn_all(
        &self,
        client: &ClientView,
        uris: Vec<ResourceUri>,
    ) -> Result<(), PublishError> {
        let reads = uris.into_iter().map(|uri| async move {
            let before = self.etag(&uri).await?;
            let read = client.read(uri.as_str()).await;
            self.learn(&uri, before, &read).await.map(drop)
        });
        // Bounded: a client may name as many resources as it may subscribe to.
        let mut reads = futures_util::stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        while let Some(learned) = reads.next().await {
            learned?;
        }
        Ok(())
    }

    /// Learns from the wrapped server's answer to a read. `before` is the bus's etag from before the server
    /// was asked. Returns the etag that belongs to the answer; none when the answer has no version.
    pub(super) async fn learn(
        &self,
        uri: &ResourceUri,
        before: Option<Etag>,
        read: &Result<ReadResourceResult, ErrorData>,
    ) -> Result<Option<Etag>, PublishError> {
        let answer = match read {
            Ok(result) => ReadAnswer::Body(client_view::digest(result)),
            Err(refusal) if is_gone(refusal) => ReadAnswer::Gone,
            Err(_) => ReadAnswer::Failed,
        };
        // Held to the end: two answers with the same new content would otherwise move the version twice.
        let mut known = self.state.known.lock().await;
        let now = self.etag(uri).await?;
        match decide(known.get(uri).copied(), before, now, answer) {
            ReadDecision::Keep(etag) => Ok(etag),
            ReadDecision::Record(digest, etag) => {
                known.insert(uri.clone(), KnownContent::Body(digest, etag));
                Ok(Some(etag))
            }
            ReadDecision::Register(digest) => {
                let media_type = match read {
                    Ok(result) => client_view::media_type(result),
                    Err(_) => None,
                };
                let etag = self.register(uri, media_type).await?;
                if let Some(etag) = etag {
                    known.insert(uri.clone(), KnownContent::Body(digest, etag));
                }
                Ok(etag)
            }
            ReadDecision::Touch(digest, held) => {
                let Some(etag) = self.touch(uri).await? else {
                    return Ok(None);
                };
                // Another publisher may have changed the resource in between. It is then unknown which
                // content is the newest: the next read decides, and this one gets the etag from before.
                if etag.version != held.version + 1 {
                    return Ok(Some(held));
                }
                known.insert(uri.clone(), KnownContent::Body(digest, etag));
                Ok(Some(etag))
            }
            ReadDecision::Remove => {
                let has_subscribers = self.remove(uri).await?;
                // Remembered for them, so that the resource is read again when it may have returned.
                if has_subscribers {
                    known.insert(uri.clone(), KnownContent::Gone);
                } else {
                    known.remove(uri);
                }
                Ok(None)
            }
        }
    }

    /// Registers a resource that the wrapped server answered for the first time. Returns none when it gets no
    /// version.
    async fn register(
        &self,
        uri: &ResourceUri,
        media_type: Option<String>,
    ) -> Result<Option<Etag>, PublishError> {
        match self.state.bus.register(self.lazy_resource(uri, media_type)).await {
            Ok(outcome) => Ok(Some(outcome.etag)),
            Err(PublishError::Closed(closed)) => Err(closed.into()),
            // The bus is full, or another publisher registered the URI just now: the server's answer stands
            // as it is.
            Err(refusal) => {
                tracing::debug!(%uri, %refusal, "a resource of the wrapped server has no version");
                Ok(None)
            }
        }
    }

    /// Moves the version of a resource. Returns none when the bus does not hold it any more.
    async fn touch(&self, uri: &ResourceUri) -> Result<Option<Etag>, PublishError> {
        match self.state.bus.touch(uri).await {
            Ok(outcome) => Ok(Some(outcome.etag)),
            Err(PublishError::NotFound(_)) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Removes a resource that is gone. Returns true when clients are subscribed to it.
    async fn remove(&self, uri: &ResourceUri) -> Result<bool, PublishError> {
        let has_subscribers = !self.state.bus.subscribers(uri).await?.is_empty();
        match self.state.bus.remove(uri).await {
            Ok(_) | Err(PublishError::NotFound(_)) => Ok(has_subscribers),
            Err(refusal) => Err(refusal),
        }
    }

    /// Makes the bus's view of a resource that the wrapped server holds and lists itself.
    fn lazy_resource(&self, uri: &ResourceUri, media_type: Option<String>) -> Resource {
        // Weak: the bus holds the reader, and the state holds the bus.
        let weak = Arc::downgrade(&self.state);
        let owned = uri.clone();
        let content = Content::Lazy(Arc::new(move || {
            let state = weak.upgrade();
            let uri = owned.clone();
            async move { read_body(state, &uri).await }
        }));
        let mut descriptor = Descriptor::new(uri.clone());
        descriptor.media_type = media_type.map(Cow::Owned);
        // Not listed by the bus: the wrapped server lists it, with its own title and description.
        Resource::new(descriptor, content).listed(false)
    }

    pub(super) async fn learn_lists(&self, client: &ClientView) -> Result<(), PublishError> {
        for list in ServerList::ALL {
            match client.list(list).await {
                Ok(items) => self.learn_list(list, &items, listed::digest(&items)).await?,
                // A server without the method has no such items.
                Err(refusal) if refusal.code == ErrorCode::METHOD_NOT_FOUND => {
                    self.learn_list(list, &[], None).await?;
                }
                Err(refusal) => tracing::debug!(?list, %refusal, "a list of the wrapped server is not known"),
            }
        }
        Ok(())
    }

    /// Learns from a list that the wrapped server answered in full.
    pub(super) async fn learn_list(
        &self,
        list: ServerList,
        items: &[Value],
        digest: Option<Digest>,
    ) -> Result<(), PublishError> {
        let kind = list.kind();
        let mut listed = self.state.listed.lock().await;
        let changed = listed.put(list, items, digest);
        let whole = listed.of_kind(kind);
        self.state.bus.set_foreign_list(kind, whole).await?;
        if changed {
            self.state.list_changes[kind as usize].fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Returns true when the wrapped server has a tool or prompt of that name.
    pub(super) async fn has_item(
        &self,
        client: &ClientView,
        list: ServerList,
        name: &str,
    ) -> Result<bool, PublishError> {
        let known = self.state.listed.lock().await.has(list, name);
        if let Some(known) = known {
            return Ok(known);
        }
        // A server that fails to list its items counts as one without any: the bus's own item then answers.
        let items = client.list(list).await.unwrap_or_default();
        self.learn_list(list, &items, listed::digest(&items)).await?;
        Ok(items.iter().any(|item| item["name"] == name))
    }
}

/// Reads a resource of the wrapped server for the bus, in the name of the calling client or else of the
/// oldest one.
async fn read_body(state: Option<Arc<WrapState>>, uri: &ResourceUri) -> Result<Body, CallbackError> {
    let no_client = "the wrapped server has no client to be asked for";
    let Some(state) = state else {
        return Err(no_client.into());
    };
    let client = match CALLING_CLIENT.try_with(ClientView::clone) {
        Ok(caller) => Some(caller),
        Err(_) => Wrap { state }.oldest_client(),
    };
    let Some(client) = client else {
        return Err(no_client.into());
    };
    let read = client.read(uri.as_str()).await?;
    match client_view::body(&read) {
        Some(body) => Ok(body),
        None => Err("the wrapped server answered no content".into()),
    }
}

/// Returns true when a server says that a resource does not exist, rather than that it cannot answer.
fn is_gone(refusal: &ErrorData) -> bool {
    matches!(
        refusal.code,
        ErrorCode::RESOURCE_NOT_FOUND | ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND
    )
}
