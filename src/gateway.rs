//! The gateway: stands in front of MCP servers of any language and revision, and gives its clients
//! everything that these have, with etags, subscriptions and list changes beside it.
//!
//! [`Wrap`] adds the bus to a `GatewayServer`, which forwards every request to the server that it belongs to.
//! Nothing that a server announces is passed on as such: a notice makes the gateway read again, and the bus
//! tells what differs. Resources and lists of a server come from one connection for all clients, the watcher;
//! calls go over connections of their client, the speakers, wherever the server keeps a state for each
//! connection.

mod options;
mod sole_client;
mod failure;
mod strays;
mod tool_names;
mod hearing;
mod prefix;
mod known_lists;
mod lists;
mod foreign_etags;
mod introduction;
mod one_client;
mod inbound;
mod program;
mod connect;
mod connection;
mod call;
mod capabilities;
mod client_log_level;
mod distinct_lists;
mod own_speaker;
mod speakers;
mod views;
mod task_ids;
mod tasks;
mod parked;
mod rounds;
mod road;
mod relay;
mod exchange;
mod report;
mod server;
mod client_lists;
mod lists_watch;
mod methods;
mod merged_info;
mod merged;
mod change_notices;
mod upstream;
mod announcements;
mod rated_polls;
mod watcher;
mod followers;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::bail;
use futures_util::future::join_all;

use followers::Followers;
pub(crate) use merged::GatewayServer;
pub use options::{GatewayOptions, Isolation, UpstreamOptions};
use server::{ListSource, UpstreamServer};
pub(crate) use sole_client::SoleClient;
use upstream::Upstream;
use watcher::UpstreamWatcher;

use crate::Bus;
use crate::http::api::UpstreamView;
use crate::http::{Access, SharedLimits};
use crate::mcp::{Endpoint, McpOptions, Wrap, WrappedServers};

/// A running gateway.
pub(crate) struct Gateway {
    wrap: Wrap,
    upstreams: Arc<Vec<Arc<Upstream>>>,
}

impl Gateway {
    /// Connects to the servers, and keeps a connection to each from then on. Those that have one client alone
    /// are told that it is `client`.
    ///
    /// # Errors
    /// The reason that no server can be reached now; two tools or prompts that clients could not tell apart.
    pub(crate) async fn start(
        bus: Bus,
        options: GatewayOptions,
        mut mcp: McpOptions,
        client: Option<SoleClient>,
    ) -> anyhow::Result<Gateway> {
        // The gateway ends calls by its own limit, which progress of the call restarts.
        mcp.mcp.handler_timeout = None;
        let wrap = Wrap::new(bus, mcp).await?;
        let are_several = options.upstreams.len() > 1;
        let mut upstreams = Vec::new();
        for server in options.upstreams {
            upstreams.push(Upstream::new(server, are_several, client.clone()));
        }
        let watchers = upstreams
            .iter()
            .map(|upstream| UpstreamWatcher::new(wrap.clone(), upstream.clone()));
        let watchers: Vec<UpstreamWatcher> = watchers.collect();
        connect(&watchers).await?;
        join_all(upstreams.iter().map(|upstream| lists::renew(upstream))).await;
        refuse_equal_names(&upstreams)?;
        let gateway = Gateway {
            wrap,
            upstreams: Arc::new(upstreams),
        };
        // The watchers ask their servers themselves, so that one look does not ask all of them.
        let followers = Followers::new(watchers.iter().map(UpstreamWatcher::follower).collect());
        let known = server(&gateway.upstreams, ListSource::Known);
        gateway.wrap.follow_subscriptions(Arc::new(followers), known);
        // Before the first client, whose notices are about changes from here on.
        gateway.wrap.refresh_lists().await?;
        for watcher in watchers {
            // Never awaited: it ends with the bus.
            tokio::spawn(watcher.keep());
        }
        Ok(gateway)
    }

    /// The wrapper that serves the clients.
    pub(crate) fn wrap(&self) -> &Wrap {
        &self.wrap
    }

    /// Returns the servers for one client.
    pub(crate) fn server(&self) -> GatewayServer {
        server(&self.upstreams, ListSource::Server)
    }

    /// Returns the state of the servers behind the gateway, for the HTTP API.
    pub(crate) fn view(&self) -> UpstreamView {
        let upstreams = self.upstreams.clone();
        UpstreamView::new(move || upstreams.iter().map(|upstream| upstream.report()).collect())
    }

    /// Returns the endpoint at which clients are served over HTTP.
    pub(crate) fn endpoint(
        &self,
        access: Access,
        limits: SharedLimits,
    ) -> Endpoint<WrappedServers<GatewayServer>> {
        let upstreams = self.upstreams.clone();
        self.wrap
            .endpoint_with_limits(move || server(&upstreams, ListSource::Server), access, limits)
    }
}

fn server(upstreams: &[Arc<Upstream>], source: ListSource) -> GatewayServer {
    let servers = upstreams
        .iter()
        .map(|upstream| UpstreamServer::new(upstream.clone(), source));
    GatewayServer::new(servers.collect())
}

/// Connects to all servers at once. Those of several that cannot be reached are tried again later.
///
/// # Errors
/// The reason that none can be reached.
async fn connect(watchers: &[UpstreamWatcher]) -> anyhow::Result<()> {
    let mut first_failure = None;
    let mut is_connected = false;
    for connected in join_all(watchers.iter().map(UpstreamWatcher::connect)).await {
        match connected {
            Ok(()) => is_connected = true,
            Err(error) => {
                if watchers.len() > 1 {
                    tracing::warn!(%error, "a server behind the gateway cannot be reached");
                }
                // The others are in the log.
                first_failure.get_or_insert(error);
            }
        }
    }
    match first_failure {
        Some(error) if !is_connected => Err(error.into()),
        _ => Ok(()),
    }
}

/// Refuses tools, and prompts, of two servers that have the same name for clients.
fn refuse_equal_names(upstreams: &[Arc<Upstream>]) -> anyhow::Result<()> {
    let mut owners: [HashMap<String, &str>; 2] = Default::default();
    for upstream in upstreams {
        for ((owners, names), kind) in owners
            .iter_mut()
            .zip(upstream.lists.shown_names())
            .zip(["tool", "prompt"])
        {
            for name in names {
                if let Some(other) = owners.insert(name.clone(), upstream.label()) {
                    let name = crate::printable::line(&name);
                    bail!(
                        "the servers {other} and {} both have a {kind} that clients would see as {name:?}: give one of \
                         them another name in [gateway.upstream], or prefix = true",
                        upstream.label()
                    );
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use rmcp::model::{JsonObject, Tool};

    use super::*;
    use crate::client::Target;

    fn upstream(name: &str, has_prefix: bool, tool: &'static str) -> Arc<Upstream> {
        let mut options = UpstreamOptions::new(Target::Command(vec![OsString::from("none")]));
        options.name = Some(name.to_owned());
        options.has_prefix = has_prefix;
        let upstream = Upstream::new(options, true, None);
        upstream
            .lists
            .note_tools(&mut vec![Tool::new(tool, "", JsonObject::new())]);
        upstream
    }

    #[test]
    fn tools_that_look_the_same_are_refused() {
        let files = upstream("files", true, "read");
        let refusal = refuse_equal_names(&[files.clone(), upstream("notes", false, "files__read")]);
        let refusal = refusal.unwrap_err().to_string();
        assert!(
            refusal.contains("files and notes") && refusal.contains("files__read"),
            "{refusal}"
        );
        assert!(refuse_equal_names(&[files, upstream("notes", true, "read")]).is_ok());
    }
}
