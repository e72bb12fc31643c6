//! The listeners and sources that run beside the bus, and the order in which they start and stop.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{debug, info};

use super::cluster::NodeCluster;
use super::listening::{Listening, Served, bind, bind_metrics};
use super::routes::MCP_PATH;
use super::signals::Signals;
use super::sources::ServedSources;
use super::{backup_router, metrics_routes, render_metrics, start_events, start_stats, transports};
use crate::config::Config;
use crate::gateway::Gateway;
use crate::http::{Listener, ServiceRoute};
use crate::metrics::Exporter;
use crate::store::StoreReader;
use crate::{Bus, etag_tools};

/// The parts from which a service starts.
pub(super) struct ServiceParts {
    pub(super) store: Option<StoreReader>,
    pub(super) exporter: Option<Exporter>,
    pub(super) listening: Listening,
    pub(super) cluster: Option<NodeCluster>,
    pub(super) gateway: Option<Arc<Gateway>>,
}

/// The listeners and sources that run beside the bus.
pub(super) struct Running {
    /// The answer of `/readyz`.
    ready: Arc<AtomicBool>,
    listener: Option<Listener>,
    scheme: &'static str,
    /// The listener of `metrics.listen`, if it is set.
    metrics_listener: Option<Listener>,
    sources: ServedSources,
    cluster: Option<NodeCluster>,
}

impl Running {
    /// Starts all of them. The listener accepts at once, and `/readyz` answers 503 until the sources have
    /// been read. Returns none after a signal while this node had not caught up with its cluster.
    pub(super) async fn start(
        config: &Config,
        bus: &Bus,
        parts: ServiceParts,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<Running>> {
        let border = parts.listening.border.clone();
        let mut running = Running::listen(config, bus, parts).await?;
        if let Some(cluster) = &running.cluster {
            tokio::select! {
                () = cluster.caught_up(bus) => {}
                reason = signals.received() => {
                    info!(reason, "stopped before this node had caught up with its cluster");
                    return Ok(None);
                }
            }
            cluster.share_event_ids(&border).await?;
        }
        running.sources = ServedSources::start(config, bus, running.cluster.as_ref()).await?;
        bus.finish_start().await?;
        running.ready.store(true, Ordering::Release);
        Ok(Some(running))
    }

    /// Starts the listeners.
    async fn listen(config: &Config, bus: &Bus, parts: ServiceParts) -> anyhow::Result<Running> {
        let ServiceParts {
            store,
            exporter,
            listening,
            cluster,
            gateway,
        } = parts;
        // Before anything is published, so that the history of `/v1/events` is complete.
        let hub = match listening.http {
            true => start_events(config, bus).await?,
            false => None,
        };
        if gateway.is_none() {
            etag_tools::install(bus, config.mcp.clone()).await?;
        }
        listening.keep_event_ids(config)?;
        let ready = Arc::new(AtomicBool::new(false));
        let render = exporter.map(|exporter| render_metrics(bus, exporter));
        let stats = start_stats(render.as_ref(), listening.http);
        let metrics = render.map(|render| metrics_routes(render, &listening));
        let metrics_listener = match (&metrics, config.metrics.listen) {
            (Some(routes), Some(listen)) => {
                Some(bind_metrics(config, listen, bus, routes, &listening).await?)
            }
            _ => None,
        };
        let mut routes = transports(config, bus, hub, &listening);
        if let Some(store) = store {
            routes = routes.with(ServiceRoute::Backup, backup_router(store, &listening));
        }
        if let (Some(others), None) = (metrics, &metrics_listener) {
            routes = routes.merge(others);
        }
        // Before the sources, whose first scan may take long: probes and early clients get an answer
        // meanwhile.
        let served = Served {
            routes,
            stats,
            cluster: cluster.as_ref().map(|cluster| cluster.view(bus)),
            records: cluster.as_ref().and_then(NodeCluster::session_records),
            gateway,
        };
        let listener = match listening.http {
            true => Some(bind(config, bus, &ready, served, &listening).await?),
            false => None,
        };
        if let (Some(cluster), Some(listener)) = (&cluster, &listener) {
            cluster.listens(listener.address().to_string());
        }
        Ok(Running {
            ready,
            listener,
            scheme: listening.scheme(),
            metrics_listener,
            sources: ServedSources::default(),
            cluster,
        })
    }

    /// Prints the address of MCP on stdout, or on stderr where stdout carries the protocol.
    pub(super) fn announce(&self, stdio: bool) {
        let Some(listener) = &self.listener else {
            return;
        };
        let scheme = self.scheme;
        let line = format!(
            "tidings listening on {scheme}://{}{MCP_PATH}\n",
            listener.address()
        );
        let written = match stdio {
            true => write_line(std::io::stderr().lock(), &line),
            false => write_line(std::io::stdout().lock(), &line),
        };
        if let Err(error) = written {
            debug!(%error, "the address could not be announced");
        }
    }

    /// Stops the sources and accepts no connection any more. Open streams stay until the bus ends them, so
    /// that they get their last notices.
    pub(super) async fn stop(self) -> Option<NodeCluster> {
        self.ready.store(false, Ordering::Release);
        self.sources.stop().await;
        if let Some(cluster) = &self.cluster {
            cluster.stop_sources().await;
        }
        for listener in self.listener.iter().chain(&self.metrics_listener) {
            listener.close();
        }
        self.cluster
    }
}

fn write_line(mut out: impl Write, line: &str) -> std::io::Result<()> {
    out.write_all(line.as_bytes())?;
    out.flush()
}
