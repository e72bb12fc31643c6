//! The etags that we hold, handed to a server that compares them, and the current ones out of its answer.
//!
//! rmcp has no room for them in its listen calls, so a transport adds them to the request on its way out and
//! takes them out of the acknowledgement on its way in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, GetMeta, MetaObject, ServerNotification, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Map, Value};

use super::version::{ETAG_KEY, etag_of};
use crate::Etag;

/// Etags by URI; none where no version is held.
pub(super) type HeldEtags = BTreeMap<String, Option<String>>;

/// Returns true for the etag that our servers give a resource which they never had.
pub(super) fn is_of_no_version(etag: &str) -> bool {
    match etag.parse::<Etag>() {
        Ok(etag) => etag.version == 0,
        Err(_) => false,
    }
}

/// Returns the current etag in the result of a subscription; none of a server that ignores ours.
pub(super) fn current_etag(result: &ServerResult) -> Option<String> {
    // rmcp reads a result of its own shape into one of many types.
    let result = serde_json::to_value(result).ok()?;
    let meta: MetaObject = serde_json::from_value(result.get("_meta")?.clone()).ok()?;
    etag_of(&meta)
}

/// The etags of the listen request that is under way on a connection.
#[derive(Debug, Default)]
pub(super) struct ListenEtags {
    exchange: Mutex<Exchange>,
}

#[derive(Debug, Default)]
struct Exchange {
    /// The value for the next request.
    held: Option<Value>,
    /// The current etags in the last acknowledgement.
    current: Map<String, Value>,
}

impl ListenEtags {
    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the etags for the next listen request.
    pub(super) fn hand_over(&self, held: &HeldEtags) {
        let held = held.iter().map(|(uri, etag)| (uri.clone(), etag.clone().into()));
        *self.lock() = Exchange {
            held: Some(Value::Object(held.collect())),
            current: Map::new(),
        };
    }

    /// Returns the current etag of `uri` in the last acknowledgement.
    pub(super) fn current(&self, uri: &str) -> Option<String> {
        let exchange = self.lock();
        Some(exchange.current.get(uri)?.as_str()?.to_owned())
    }

    fn add_to(&self, message: &mut TxJsonRpcMessage<RoleClient>) {
        if let TxJsonRpcMessage::<RoleClient>::Request(request) = message
            && let ClientRequest::SubscriptionsListenRequest(_) = request.request
            && let Some(held) = self.lock().held.take()
        {
            request.request.get_meta_mut().insert(ETAG_KEY.to_owned(), held);
        }
    }

    fn take_from(&self, message: &RxJsonRpcMessage<RoleClient>) {
        if let RxJsonRpcMessage::<RoleClient>::Notification(notification) = message
            && let ServerNotification::SubscriptionsAcknowledgedNotification(_) = notification.notification
            && let Some(Value::Object(current)) = notification.notification.get_meta().get(ETAG_KEY)
        {
            self.lock().current.clone_from(current);
        }
    }
}

/// A transport that exchanges the etags of listen requests.
pub(super) struct EtagTransport<T> {
    pub(super) inner: T,
    pub(super) etags: Arc<ListenEtags>,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for EtagTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.etags.add_to(&mut item);
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        self.etags.take_from(&message);
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CustomResult, EmptyResult};
    use serde_json::json;

    use super::*;

    #[test]
    fn etag_is_found_in_a_result_of_any_type() {
        let answer = json!({ "_meta": { ETAG_KEY: "v2-5" } });
        // As rmcp reads it from the wire.
        let read: ServerResult = serde_json::from_value(answer.clone()).unwrap();
        let custom = ServerResult::CustomResult(CustomResult(answer));
        for result in [read, custom] {
            assert_eq!(current_etag(&result).as_deref(), Some("v2-5"));
        }
        let empty = ServerResult::EmptyResult(EmptyResult {});
        assert_eq!(current_etag(&empty), None);
    }

    #[test]
    fn only_version_0_is_of_no_version() {
        assert!(is_of_no_version("v0-0"));
        assert!(!is_of_no_version("v1-0") && !is_of_no_version("other"));
    }
}
