//! The listeners of the service: their addresses, TLS before them, and the callers that they let in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use axum::Router;
use tokio::net::TcpListener;
use tracing::{info, warn};

use super::mcp_options;
use super::reload::Reloaded;
use super::routes::Routes;
use crate::Bus;
use crate::auth::{ConfiguredBorder, ProtectedResource};
use crate::config::Config;
use crate::http::api::Api;
use crate::http::{Access, HttpServer, Listener, SharedLimits, Tls};
use crate::mcp::Endpoint;

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
        let border = ConfiguredBorder::new(&config.auth, &config.audit)
            .context("the section [auth] cannot be used")?;
        border.watch();
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

/// Binds the listener of `metrics.listen`, which serves `/metrics` alone.
pub(super) async fn bind_metrics(
    config: &Config,
    listen: SocketAddr,
    bus: &Bus,
    router: &Router,
    listening: &Listening,
) -> anyhow::Result<Listener> {
    let socket = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen} (metrics.listen)"))?;
    let server = HttpServer::new(
        bus,
        Routes::only(listening.access.clone(), listening.limits.clone(), router.clone()),
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

/// Binds the listener of `http.listen`, which serves MCP, the HTTP API and `routes`.
pub(super) async fn bind(
    config: &Config,
    bus: &Bus,
    ready: &Arc<AtomicBool>,
    routes: Router,
    listening: &Listening,
) -> anyhow::Result<Listener> {
    let http = &config.http;
    let socket = TcpListener::bind(http.listen)
        .await
        .with_context(|| format!("cannot listen on {}", http.listen))?;
    // The configuration allows it only on request, yet the log must show it at each start.
    if !http.listen.ip().is_loopback() && listening.access.border.is_none() {
        warn!(listen = %http.listen, "listening beyond this machine, and every caller may do everything");
    }
    let limits = listening.limits.clone();
    // One rule for every endpoint: a caller that one refuses does not get in by another.
    let access = || listening.access.clone();
    let endpoint = Endpoint::with_limits(bus.clone(), mcp_options(config), access(), limits.clone());
    let api = Api::new(bus.clone(), access(), ready.clone())
        .batch_bytes_max(http.body_bytes_max)
        .limits(limits);
    let routes = Routes::new(access(), listening.limits.clone(), endpoint, api, routes)
        .with_metadata(ProtectedResource::new(&config.auth));
    let server = HttpServer::new(bus, routes, http).with_joined_puts();
    let server = server.with_tls(listening.tls.clone());
    Listener::start(socket, server).context("the listener could not be started")
}
