//! The servers behind a gateway: `GET /v1/upstreams`.
//!
//! The service hands in a function that reads their state, since the API knows no gateway.

use std::fmt;
use std::sync::Arc;

use ::http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Api, ApiResponse, json};
use crate::auth::{Object, Right};
use crate::http::problem::Problem;
use crate::http::rights::{caller, require};

/// The way in which a server behind a gateway is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamKind {
    /// A program, on its standard input and output.
    Stdio,
    /// An address, over streamable HTTP.
    Http,
}

/// The connection from which a gateway gets resources and lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamState {
    /// There is one.
    Up,
    /// There is none, and the gateway connects again.
    Down,
}

/// The state of a server behind a gateway.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct UpstreamReport {
    /// The name that the configuration gives the server; without one the name that it gives itself, else its
    /// address or program.
    pub name: String,
    /// The way in which it is reached.
    pub kind: UpstreamKind,
    /// The protocol revision of the connection; without one, that of the last.
    pub revision: String,
    /// The state of the connection.
    pub state: UpstreamState,
    /// The id of the server's process; null over HTTP, and while there is no connection.
    #[schemars(required)]
    pub pid: Option<u32>,
    /// The number of times that the connection ended and was made anew.
    pub restarts: u64,
    /// The reason that the connection was lost or could not be made, the last time that this happened.
    #[schemars(required)]
    pub last_error: Option<String>,
    /// The resources of which the server is asked to announce changes.
    pub subscriptions: usize,
    /// The connections that are a single client's.
    pub speakers: usize,
    /// The requests of clients that are under way.
    pub inflight: usize,
    /// The calls that wait for input of their client.
    pub parked: usize,
    /// The connections over which calls are sent, as the gateway was told.
    pub isolation: &'static str,
}

/// The answer.
#[derive(Serialize, JsonSchema)]
pub(super) struct UpstreamItems {
    items: Vec<UpstreamReport>,
}

/// The servers behind a gateway, as the HTTP side sees them. Clones share it.
#[derive(Clone)]
pub struct UpstreamView(Arc<dyn Fn() -> Vec<UpstreamReport> + Send + Sync>);

impl fmt::Debug for UpstreamView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamView").finish_non_exhaustive()
    }
}

impl UpstreamView {
    /// Makes a view of the state that `read` returns.
    pub fn new(read: impl Fn() -> Vec<UpstreamReport> + Send + Sync + 'static) -> UpstreamView {
        UpstreamView(Arc::new(read))
    }
}

impl Api {
    /// Lists the servers behind a gateway, for callers with the right to metrics or to administration. A
    /// service that is no gateway has none.
    pub(super) fn list_upstreams(&self, head: &Parts) -> Result<ApiResponse, Problem> {
        if !caller(&head.extensions)?.sees(Right::Metrics, Object::Service) {
            require(&head.extensions, Right::Admin, Object::Service)?;
        }
        let items = match &self.upstreams {
            Some(upstreams) => (upstreams.0)(),
            None => Vec::new(),
        };
        Ok(json(&UpstreamItems { items }))
    }
}
