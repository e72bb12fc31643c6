//! The service: starts a bus with its sinks, listeners and sources as the configuration says, and stops them
//! in reverse order. This is the only module that knows HTTP, MCP, sources and sinks at once.

mod check;
mod routes;
mod listening;
mod reload;
mod rights;
mod signals;
mod supervisor;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tracing::{debug, info, warn};

use crate::config::Config;
use crate::etag_tools;
use crate::http::api;
use crate::http::{Listener, ServiceRoute, events, ws};
use crate::mcp::{McpOptions, serve_stdio};
use crate::metrics::{self, Exporter};
use crate::open_files;
use crate::sink::Sinks;
use crate::source::collection::Collection;
use crate::source::workspace::Workspace;
use crate::store::{RedbStore, StoreReader};
use crate::{Bus, Limits};

pub use check::{check_files, is_misconfiguration};
use listening::{Listening, Served, bind, bind_metrics};
use reload::Kept;
pub use reload::Reload;
use routes::{MCP_PATH, Mounted};
use signals::{Signals, hangup};
use supervisor::Supervisor;

/// Time for the client on stdout to read its last answers when the service stops.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);

/// Open files that are not connections: folders, files of sinks and of the store, pipes of tools.
const SPARE_FILES: usize = 64;

/// The parts of a service that are to run, and their configuration.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The configuration of all parts.
    pub config: Config,
    /// Speaks MCP on stdin and stdout; the service then ends with its input.
    pub stdio: bool,
    /// Listens on HTTP.
    pub http: bool,
    /// Reads the configuration again on SIGHUP, to replace the sinks. Without it, the signal ends the
    /// process.
    pub reload: Option<Reload>,
}

/// Runs the service until SIGTERM, SIGINT or, with `stdio`, the end of stdin; then drains and stops it. A
/// signal during the drain ends it at once.
///
/// # Errors
/// A store or folder that cannot be used, an address that cannot be bound, an actor that died, a drain that
/// was cut short by a signal.
pub async fn run(options: ServeOptions) -> anyhow::Result<()> {
    let ServeOptions {
        config,
        stdio,
        http,
        reload,
    } = options;
    // Before the address is announced: a script that reads it may send a signal at once.
    let mut signals = Signals::new()?;
    // A metric that is registered before the recorder is installed goes nowhere.
    let exporter = install_exporter(&config);
    let hangup = match reload {
        Some(reload) => Some((hangup()?, reload)),
        None => None,
    };
    if http {
        make_room_for(config.http.connections_max);
    }
    // Before anything else starts, so that a wrong path leaves nothing behind.
    let listening = Listening::prepare(&config, http)?;
    let (bus, store) = start_bus(&config)?;
    // Before anything is registered, so that every registration reaches the sinks.
    let sinks = Sinks::attach(&bus, &config).await?;
    if let Some(border) = listening.border.border() {
        rights::follow(&bus, &border);
    }
    let supervisor = Supervisor::default();
    let kept = Kept::new(sinks, listening.reloaded(), config.clone());
    let sinks = tokio::spawn(kept.keep(hangup, supervisor.clone()));
    let running = Running::start(&config, &bus, store, exporter, listening).await?;
    supervisor.ready().await;
    running.announce(stdio);
    let served = serve_stdio_if(stdio, &config, &bus);
    tokio::pin!(served);
    let mut speaking = stdio;
    let ended = tokio::select! {
        reason = signals.received() => Ok(reason),
        died = bus.stopped() => Err(anyhow!("the actor {} died", died.unwrap_or("of the bus"))),
        served = &mut served => {
            speaking = false;
            served.map(|()| "stdin ended")
        }
    };
    tell_stop(&ended, &supervisor).await;
    let streams_cut = tokio::select! {
        streams_cut = drain(running, &bus, config.shutdown.drain_timeout) => streams_cut,
        // The operator wants it gone now, whatever still waits to be delivered.
        reason = signals.received() => {
            return Err(anyhow!("{reason} while the service was stopping: it ended at once, without the rest of the drain"));
        }
    };
    // The shutdown has delivered everything to the sinks and closed them; only the wait for SIGHUP is left.
    sinks.abort();
    // The end of the bus ends the stdio session, whose last answers may still be on their way.
    if speaking && tokio::time::timeout(LAST_ANSWERS_TIMEOUT, served).await.is_err() {
        warn!("the client does not read stdout; the last answers are dropped");
    }
    info!(streams_cut, "stopped");
    ended.map(|_reason| ())
}

/// Tells the log and the supervisor that the service stops, and why.
async fn tell_stop(ended: &anyhow::Result<&str>, supervisor: &Supervisor) {
    match ended {
        Ok(reason) => info!(reason, "stopping"),
        Err(error) => warn!(%error, "stopping"),
    }
    supervisor.stopping().await;
}

/// Stops the sources and the bus. Returns the number of streams that were cut.
async fn drain(running: Running, bus: &Bus, timeout: Duration) -> usize {
    running.stop().await;
    let report = bus.shutdown(timeout).await;
    if report.streams_cut > 0 {
        metrics::limit_reached(metrics::Limit::Drain);
    }
    report.streams_cut
}

/// The listeners and sources that run beside the bus.
struct Running {
    /// The answer of `/readyz`.
    ready: Arc<AtomicBool>,
    listener: Option<Listener>,
    scheme: &'static str,
    /// The listener of `metrics.listen`, if it is set.
    metrics_listener: Option<Listener>,
    workspace: Option<Workspace>,
    collections: Vec<Collection>,
}

impl Running {
    /// Starts all of them. The listener accepts at once, and `/readyz` answers 503 until the sources have
    /// been read.
    async fn start(
        config: &Config,
        bus: &Bus,
        store: Option<StoreReader>,
        exporter: Option<Exporter>,
        listening: Listening,
    ) -> anyhow::Result<Running> {
        // Before anything is published, so that the history of `/v1/events` is complete.
        let hub = match listening.http {
            true => start_events(config, bus).await?,
            false => None,
        };
        etag_tools::install(bus, config.mcp.clone()).await?;
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
            let router = api::backup_router(backup_of(store), listening.access.clone());
            routes = routes.with(ServiceRoute::Backup, router);
        }
        if let (Some(others), None) = (metrics, &metrics_listener) {
            routes = routes.merge(others);
        }
        // Before the sources, whose first scan may take long: probes and early clients get an answer
        // meanwhile.
        let listener = match listening.http {
            true => {
                let served = Served { routes, stats };
                Some(bind(config, bus, &ready, served, &listening).await?)
            }
            false => None,
        };
        let workspace = match &config.workspace.dir {
            Some(_) => {
                let start = Workspace::start(bus.clone(), &config.workspace, &config.tools, &config.register);
                Some(start.await?)
            }
            None => None,
        };
        let collections = start_collections(config, bus).await?;
        bus.finish_start().await?;
        ready.store(true, Ordering::Release);
        Ok(Running {
            ready,
            listener,
            scheme: listening.scheme(),
            metrics_listener,
            workspace,
            collections,
        })
    }

    /// Prints the address of MCP on stdout, or on stderr where stdout carries the protocol.
    fn announce(&self, stdio: bool) {
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
    async fn stop(self) {
        self.ready.store(false, Ordering::Release);
        for collection in self.collections {
            collection.stop().await;
        }
        if let Some(workspace) = self.workspace {
            workspace.stop().await;
        }
        for listener in self.listener.iter().chain(&self.metrics_listener) {
            listener.close();
        }
    }
}

fn write_line(mut out: impl Write, line: &str) -> std::io::Result<()> {
    out.write_all(line.as_bytes())?;
    out.flush()
}

async fn start_collections(config: &Config, bus: &Bus) -> anyhow::Result<Vec<Collection>> {
    let mut started = Vec::new();
    for collection in &config.collection {
        let start = Collection::start(bus.clone(), collection, &config.workspace).await;
        started.push(start.with_context(|| format!("the collection {} cannot be served", collection.name))?);
    }
    Ok(started)
}

/// Serves stdin and stdout until they end. Without `stdio` it never returns, as `select!` needs.
async fn serve_stdio_if(stdio: bool, config: &Config, bus: &Bus) -> anyhow::Result<()> {
    if !stdio {
        return std::future::pending().await;
    }
    let options = mcp_options(config);
    serve_stdio(bus.clone(), options, tokio::io::stdin(), tokio::io::stdout())
        .await
        .context("MCP on stdin and stdout failed")
}

/// Starts the bus, and returns the reader of its store, if it has one.
fn start_bus(config: &Config) -> anyhow::Result<(Bus, Option<StoreReader>)> {
    let mut builder = Bus::builder().limits(limits(config));
    let mut reader = None;
    match &config.store.dir {
        Some(dir) => {
            let store = RedbStore::open(dir, config.bus.removed_max)
                .with_context(|| format!("the store in {} cannot be used", dir.display()))?;
            reader = Some(store.reader());
            builder = builder.store(store);
        }
        None => warn!(
            "nothing is kept when this process ends: no content, version or cursor; keep them with --data DIR"
        ),
    }
    let bus = builder.start().context("the bus could not be started")?;
    Ok((bus, reader))
}

/// Hands the store's backup to the HTTP API, which knows no store.
fn backup_of(store: StoreReader) -> api::WriteBackup {
    Arc::new(move |out| match store.backup(out) {
        Ok(_counts) => Ok(()),
        Err(error) => Err(error.to_string()),
    })
}

/// Copies the limits of the bus, which four sections hold: the crate of the bus knows no configuration.
fn limits(config: &Config) -> Limits {
    let mut limits = Limits::default();
    limits.in_flight_max = config.bus.in_flight_max;
    limits.batch_max = config.http.batch_max;
    limits.resources_max = config.bus.resources_max;
    limits.list_items_max = config.bus.list_items_max;
    limits.body_bytes_max = config.bus.body_bytes_max;
    limits.bytes_max = config.bus.bytes_max;
    limits.removed_max = config.bus.removed_max;
    limits.unclaimed_after = config.store.unclaimed_after;
    limits.change_log_max = config.store.change_log_max;
    limits.sessions_max = config.session.max;
    limits.subscriptions_max = config.session.subscriptions_max;
    limits.pending_subscriptions = config.session.pending_subscriptions;
    limits.shards = config.bus.shards;
    limits.keep_alive = config.http.keep_alive;
    limits
}

/// Collects the options of MCP from three sections.
fn mcp_options(config: &Config) -> McpOptions {
    McpOptions {
        mcp: config.mcp.clone(),
        session: config.session.clone(),
        body_bytes_max: config.http.body_bytes_max,
        ..McpOptions::default()
    }
}

/// Starts the hub of `/v1/events`, unless it is turned off.
async fn start_events(config: &Config, bus: &Bus) -> anyhow::Result<Option<events::Hub>> {
    if config.events.streams_max == 0 {
        return Ok(None);
    }
    let hub = events::Hub::start(bus, &config.events, config.shutdown.drain_timeout).await;
    hub.map(Some).context("the event streams could not be started")
}

/// Returns the routes of `/v1/events` and `/v1/ws`, as far as they are turned on.
fn transports(config: &Config, bus: &Bus, hub: Option<events::Hub>, listening: &Listening) -> Mounted {
    let access = || listening.access.clone();
    let shared = &listening.limits;
    let mut routes = Mounted::default();
    if let Some(hub) = hub {
        let router = events::router(hub, access(), shared.clone());
        routes = routes.with(ServiceRoute::Events, router);
    }
    if config.ws.connections_max > 0 {
        let router = ws::router(
            bus.clone(),
            config.ws.clone(),
            config.http.write_timeout,
            access(),
            shared.clone(),
        );
        routes = routes.with(ServiceRoute::Socket, router);
    }
    routes
}

/// Returns the route of `/metrics`, on whichever listener it is served.
fn metrics_routes(render: api::Render, listening: &Listening) -> Mounted {
    let router = api::metrics_router(render, listening.access.clone());
    Mounted::default().with(ServiceRoute::Metrics, router)
}

/// Installs the recorder behind `/metrics`, unless metrics are turned off.
fn install_exporter(config: &Config) -> Option<Exporter> {
    if !config.metrics.enabled {
        return None;
    }
    // A process has one recorder, and a program that embeds the service may have installed another.
    let Some(exporter) = Exporter::install() else {
        info!("the process has a metrics recorder already, so /metrics is not served");
        return None;
    };
    tokio::spawn(exporter.clone().keep_up());
    Some(exporter)
}

/// Begins the history of figures, if there are metrics and a listener that shows it.
fn start_stats(render: Option<&api::Render>, http: bool) -> Option<api::StatsHistory> {
    let render = render.filter(|_| http)?;
    Some(api::StatsHistory::start(render.clone()))
}

/// Returns the text of the metrics, for `/metrics` and for the history of figures.
fn render_metrics(bus: &Bus, exporter: Exporter) -> api::Render {
    // The history has a timer of its own, which must not keep the bus running.
    let bus = bus.downgrade();
    Arc::new(move || {
        // The bus counts on its own, so that its hot paths share no counter; a scrape reads the current
        // values.
        if let Ok(bus) = bus.upgrade() {
            bus.export_metrics();
        }
        exporter.render()
    })
}

/// Raises the limit of open files so that all connections fit, and warns where that is not possible.
fn make_room_for(connections: usize) {
    let needed = (connections + SPARE_FILES) as u64;
    if let Err(limit) = open_files::make_room(needed) {
        warn!(
            limit = limit.soft,
            hard_limit = limit.hard,
            needed,
            "the limit of open files is lower than http.connections_max needs, so connections may wait unaccepted; \
             raise it (ulimit -n, LimitNOFILE=), or lower http.connections_max"
        );
    }
}
