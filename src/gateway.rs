//! The gateway: stands in front of one MCP server of any language and revision, and gives its clients
//! everything that the server has, with etags, subscriptions and list changes beside it.
//!
//! [`Wrap`] adds the bus to an `UpstreamServer`, which forwards every request. Nothing that the server
//! announces is passed on as such: a notice makes the gateway read again, and the bus tells what differs.
//! Resources and lists come from one connection for all clients, the watcher; calls go over connections of
//! their client, the speakers, wherever the server keeps a state for each connection.

mod options;
mod failure;
mod hearing;
mod lists;
mod foreign_etags;
mod inbound;
mod connect;
mod connection;
mod call;
mod capabilities;
mod speakers;
mod parked;
mod rounds;
mod road;
mod relay;
mod exchange;
mod report;
mod server;
mod methods;
mod change_notices;
mod upstream;
mod watcher;

use std::sync::Arc;

pub use options::{GatewayOptions, Isolation};
pub(crate) use server::UpstreamServer;
use upstream::Upstream;
use watcher::UpstreamWatcher;

use crate::Bus;
use crate::http::api::UpstreamView;
use crate::http::{Access, SharedLimits};
use crate::mcp::{Endpoint, McpOptions, Wrap, WrappedServers};

/// A running gateway.
pub(crate) struct Gateway {
    wrap: Wrap,
    upstream: Arc<Upstream>,
}

impl Gateway {
    /// Connects to the server, and keeps a connection to it from then on.
    ///
    /// # Errors
    /// The reason that the server cannot be reached now.
    pub(crate) async fn start(
        bus: Bus,
        options: GatewayOptions,
        mut mcp: McpOptions,
    ) -> anyhow::Result<Gateway> {
        // The gateway ends calls by its own limit, which progress of the call restarts.
        mcp.mcp.handler_timeout = None;
        let wrap = Wrap::new(bus, mcp).await?;
        let upstream = Upstream::new(options);
        let watcher = UpstreamWatcher::connect(wrap.clone(), upstream.clone()).await?;
        wrap.follow_subscriptions(watcher.follower(), UpstreamServer::new(upstream.clone()));
        // Before the first client, whose notices are about changes from here on.
        wrap.refresh_lists().await?;
        // Never awaited: it ends with the bus.
        tokio::spawn(watcher.keep());
        Ok(Gateway { wrap, upstream })
    }

    /// The wrapper that serves the clients.
    pub(crate) fn wrap(&self) -> &Wrap {
        &self.wrap
    }

    /// Returns the server for one client.
    pub(crate) fn server(&self) -> UpstreamServer {
        UpstreamServer::new(self.upstream.clone())
    }

    /// Returns the state of the server behind the gateway, for the HTTP API.
    pub(crate) fn view(&self) -> UpstreamView {
        let upstream = self.upstream.clone();
        UpstreamView::new(move || vec![upstream.report()])
    }

    /// Returns the endpoint at which clients are served over HTTP.
    pub(crate) fn endpoint(
        &self,
        access: Access,
        limits: SharedLimits,
    ) -> Endpoint<WrappedServers<UpstreamServer>> {
        let upstream = self.upstream.clone();
        self.wrap
            .endpoint_with_limits(move || UpstreamServer::new(upstream.clone()), access, limits)
    }
}
