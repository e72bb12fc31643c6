//! The listeners of the service: their addresses, TLS before them, and the callers that they let in.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tracing::{info, warn};

use super::cluster::NodeCluster;
use super::mcp_options;
use super::reload::Reloaded;
use super::routes::{McpEndpoint, Mounted, Routes};
use crate::Bus;
use crate::auth::{ConfiguredBorder, ProtectedResource};
use crate::config::Config;
use crate::gateway::Gateway;
use crate::http::api::{Api, ClusterView, StatsHistory};
use crate::http::{Access, HttpServer, Listener, Page, PageTransport, SharedLimits, Tls};
use crate::mcp::{Endpoint, SessionRecords};
use crate::store::position_key;

/// The way in which the service listens.
pub(super) struct Listening {
    /// Listens on `http.listen`.
    pub(super) http: bool,
    /// Stands before every listener.
    pub(super) tls: Option<Tls>,
    /// The limits that all transports share.
    pub(super) limits: SharedLimits,
    /// The credentials and rights, which may be replaced while the service runs.
    pub(super) border: ConfiguredBorder,
    /// The callers that every listener lets in.
    pub(super) access: Access,
}

impl Listening {
    /// Reads the files of TLS, if it is on, and of credentials, and follows their changes.
    pub(super) fn prepare(config: &Config, http: bool) -> anyhow::Result<Listening> {
        // Files are read before a port is open, so a mistake in them ends the start and lets in no caller.
        let tls = Tls::load(&config.tls).context("TLS cannot be set up")?;
        if let Some(tls) = &tls {
            tls.follow_files();
        }
        let limits = SharedLimits::new(&config.http, &config.session, &config.quota);
        let node = NodeCluster::name_of(config);
        let border = ConfiguredBorder::new(&config.auth, &config.audit, node)
            .context("the section [auth] cannot be used")?;
        border.watch(tls.as_ref().map(Tls::generation));
        let access = Access {
            allowed_hosts: config.http.allowed_hosts.clone(),
            allowed_origins: config.http.allowed_origins.clone(),
            border: border.border(),
        };
        Ok(Listening {
            http,
            tls,
            limits,
            border,
            access,
        })
    }

    /// Takes the key of event ids from the folder of the store, once the store has it, so that the ids of
    /// callers with rights stay good after a restart. Without a store all ids end with the process.
    pub(super) fn keep_event_ids(&self, config: &Config) -> anyhow::Result<()> {
        let (Some(dir), Some(_)) = (&config.store.dir, self.border.border()) else {
            return Ok(());
        };
        // Only where ids are encrypted: a service without rules leaves no such file behind.
        let key = position_key(dir)
            .with_context(|| format!("the key of event ids in {} cannot be used", dir.display()))?;
        self.border.use_position_key(&key);
        Ok(())
    }

    /// Returns the parts that are read again on a signal.
    pub(super) fn reloaded(&self) -> Reloaded {
        Reloaded {
            tls: self.tls.clone(),
            border: self.border.clone(),
        }
    }

    /// Returns the scheme of the listeners' addresses.
    pub(super) fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https",
            None => "http",
        }
    }
}

/// Returns the error of an address that cannot be listened on, with the remedy; `key` sets the address.
fn cannot_listen(listen: SocketAddr, key: &str, error: &std::io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => "another program listens there; choose another port, or 0 for any free one",
        ErrorKind::AddrNotAvailable => "this machine has no such address; use one of its own, or 0.0.0.0",
        ErrorKind::PermissionDenied => "ports below 1024 need a privilege; choose a higher one",
        _ => "choose another address",
    };
    anyhow::anyhow!("cannot listen on {listen}: {error}; {remedy} ({key})")
}

/// Binds the listener of `metrics.listen`, which serves `/metrics` alone.
pub(super) async fn bind_metrics(
    config: &Config,
    listen: SocketAddr,
    bus: &Bus,
    routes: &Mounted,
    listening: &Listening,
) -> anyhow::Result<Listener> {
    let socket = TcpListener::bind(listen)
        .await
        .map_err(|error| cannot_listen(listen, "metrics.listen", &error))?;
    let server = HttpServer::new(
        bus,
        Routes::only(listening.access.clone(), listening.limits.clone(), routes.clone()),
        &config.http,
    );
    let listener = Listener::start(socket, server.with_tls(listening.tls.clone()));
    let listener = listener.context("the listener of metrics could not be started")?;
    info!(
        "metrics on {}://{}/metrics",
        listening.scheme(),
        listener.address()
    );
    Ok(listener)
}

/// The parts of the listener of `http.listen` besides MCP and the HTTP API.
pub(super) struct Served {
    /// The paths of the other transports.
    pub(super) routes: Mounted,
    /// The figures that the API shows; none without metrics.
    pub(super) stats: Option<StatsHistory>,
    /// The cluster of this node; none where it is alone.
    pub(super) cluster: Option<ClusterView>,
    /// The records of sessions; none where each stays on its node.
    pub(super) records: Option<Arc<dyn SessionRecords>>,
    /// The gateway whose clients are served; none where they are the bus's own.
    pub(super) gateway: Option<Arc<Gateway>>,
}

/// Returns the page, if it is served.
fn page(config: &Config, listening: &Listening) -> Option<Page> {
    let listen = config.http.listen;
    if !config.page.is_served_on(listen) {
        return None;
    }
    let transport = match (&listening.tls, listen.ip().to_canonical().is_loopback()) {
        (Some(_), _) => PageTransport::Tls,
        (None, true) => PageTransport::Loopback,
        (None, false) => PageTransport::Plain,
    };
    Some(Page::of_node(
        listening.access.clone(),
        listening.limits.clone(),
        (transport, config.cluster.is_on()),
    ))
}

/// Binds the listener of `http.listen`, which serves MCP, the HTTP API, the page and what `served` has.
pub(super) async fn bind(
    config: &Config,
    bus: &Bus,
    ready: &Arc<AtomicBool>,
    served: Served,
    listening: &Listening,
) -> anyhow::Result<Listener> {
    let Served {
        routes,
        stats,
        cluster,
        records,
        gateway,
    } = served;
    let http = &config.http;
    let socket = TcpListener::bind(http.listen)
        .await
        .map_err(|error| cannot_listen(http.listen, "http.listen, or --listen", &error))?;
    // The configuration allows it only on request, yet the log must show it at each start.
    if !http.listen.ip().is_loopback() && listening.access.border.is_none() {
        warn!(listen = %http.listen, "listening beyond this machine, and every caller may do everything");
    }
    let limits = listening.limits.clone();
    // One rule for every endpoint: a caller that one refuses does not get in by another.
    let access = || listening.access.clone();
    let options = mcp_options(config);
    let upstreams = gateway.as_ref().map(|gateway| gateway.view());
    let endpoint = match (gateway, records) {
        (Some(gateway), _) => McpEndpoint::Gateway(gateway.endpoint(access(), limits.clone())),
        (None, Some(records)) => {
            let endpoint = Endpoint::with_records(bus.clone(), options, access(), limits.clone(), records);
            McpEndpoint::Bus(endpoint)
        }
        (None, None) => McpEndpoint::Bus(Endpoint::with_limits(
            bus.clone(),
            options,
            access(),
            limits.clone(),
        )),
    };
    let api = Api::new(bus.clone(), access(), ready.clone())
        .batch_bytes_max(http.body_bytes_max)
        .limits(limits)
        .handler_timeout(config.mcp.handler_timeout)
        .stats(stats)
        .cluster(cluster.clone())
        .upstreams(upstreams);
    let routes = Routes::new(access(), listening.limits.clone(), endpoint, api, routes)
        .with_metadata(ProtectedResource::new(&config.auth))
        .with_page(page(config, listening))
        .with_cluster(cluster);
    let server = HttpServer::new(bus, routes, http).with_joined_puts();
    let server = server.with_tls(listening.tls.clone());
    Listener::start(socket, server).context("the listener could not be started")
}
