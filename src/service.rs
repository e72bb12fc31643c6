//! The service: starts a bus with its sinks, listeners and sources as the configuration says, and stops them
//! in reverse order. This is the only module that knows HTTP, MCP, sources and sinks at once.

mod check;
#[cfg(feature = "nats")]
mod cluster;
#[cfg(not(feature = "nats"))]
#[path = "service/cluster_absent.rs"]
mod cluster;
mod running;
mod sources;
mod routes;
mod listening;
mod reload;
mod rights;
mod signals;
mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::io::AsyncRead;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::config::{ClusterRead, Config};
use crate::gateway::{Gateway, GatewayOptions, SoleClient};
use crate::http::api;
use crate::http::{ServiceRoute, events, ws};
use crate::mcp::{McpOptions, serve_stdio};
use crate::metrics::{self, Exporter};
use crate::open_files;
use crate::sink::Sinks;
use crate::store::{RedbStore, StoreReader};
use crate::{Bus, Limits};

pub use check::{check_files, is_misconfiguration};
use cluster::NodeCluster;
#[cfg(feature = "nats")]
pub use cluster::import_store;
use listening::Listening;
use reload::Kept;
pub use reload::Reload;
use routes::Mounted;
use running::{Running, ServiceParts};
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
    /// Stands in front of another server, whose clients it serves in place of the bus's own.
    pub gateway: Option<GatewayOptions>,
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
        gateway,
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
    let mut cluster = NodeCluster::prepare(&config)?;
    let (bus, store) = start_bus(&config, cluster.as_ref())?;
    if let Some(cluster) = &mut cluster {
        cluster.join(&bus, &listening.limits);
    }
    // Before anything is registered, so that every registration reaches the sinks.
    let sinks = attach_sinks(&bus, &config, cluster.as_ref()).await?;
    if let Some(border) = listening.border.border() {
        rights::follow(&bus, &border);
    }
    let (client, stdin) = open_stdin(stdio, gateway.as_ref(), &config).await;
    let gateway = start_gateway(gateway, &config, &bus, client).await?;
    let supervisor = Supervisor::default();
    let kept = Kept::new(sinks, listening.reloaded(), config.clone());
    let sinks = tokio::spawn(kept.keep(hangup, supervisor.clone()));
    let parts = ServiceParts {
        store,
        exporter,
        listening,
        cluster,
        gateway: gateway.clone(),
    };
    let Some(running) = Running::start(&config, &bus, parts, &mut signals).await? else {
        // Nothing was published, so there is nothing to deliver.
        bus.shutdown(Duration::ZERO).await;
        return Ok(());
    };
    let serving = Serving {
        config,
        bus,
        gateway,
        stdin,
        supervisor,
        sinks,
    };
    serving.until_end(running, signals).await
}

/// A service that has started.
struct Serving {
    config: Config,
    bus: Bus,
    gateway: Option<Arc<Gateway>>,
    /// The input of the client on stdin, if there is one.
    stdin: Option<Stdin>,
    supervisor: Supervisor,
    /// Keeps the sinks as the configuration says.
    sinks: JoinHandle<()>,
}

impl Serving {
    /// Serves until the end, then drains and stops.
    async fn until_end(self, running: Running, mut signals: Signals) -> anyhow::Result<()> {
        let Serving {
            config,
            bus,
            gateway,
            stdin,
            supervisor,
            sinks,
        } = self;
        supervisor.ready().await;
        let mut speaking = stdin.is_some();
        running.announce(speaking);
        let served = serve_stdio_if(stdin, &config, &bus, gateway.as_deref());
        tokio::pin!(served);
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
        // The shutdown has delivered everything to the sinks and closed them; only the wait for SIGHUP is
        // left.
        sinks.abort();
        // The end of the bus ends the stdio session, whose last answers may still be on their way.
        if speaking && tokio::time::timeout(LAST_ANSWERS_TIMEOUT, served).await.is_err() {
            warn!("the client does not read stdout; the last answers are dropped");
        }
        info!(streams_cut, "stopped");
        ended.map(|_reason| ())
    }
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
    let cluster = running.stop().await;
    let report = bus.shutdown(timeout).await;
    // After the sinks, which have delivered by then what was this node's to deliver.
    if let Some(cluster) = cluster {
        cluster.leave().await;
    }
    if report.streams_cut > 0 {
        metrics::limit_reached(metrics::Limit::Drain);
    }
    report.streams_cut
}

/// Attaches the sinks, which deliver in turns where other nodes have them too.
async fn attach_sinks(bus: &Bus, config: &Config, cluster: Option<&NodeCluster>) -> anyhow::Result<Sinks> {
    let attached = match cluster {
        Some(cluster) => Sinks::attach_in_turn(bus, config, cluster.sink_turns()).await,
        None => Sinks::attach(bus, config).await,
    };
    Ok(attached?)
}

/// The input of a client on stdin.
type Stdin = Box<dyn AsyncRead + Send + Unpin>;

/// Returns the input of the client on stdin, if there is to be one; and that client, as far as the servers of
/// a gateway are to know it.
async fn open_stdin(
    stdio: bool,
    gateway: Option<&GatewayOptions>,
    config: &Config,
) -> (Option<SoleClient>, Option<Stdin>) {
    if !stdio {
        return (None, None);
    }
    let input = tokio::io::stdin();
    match gateway {
        Some(options) if options.have_sole_client() => {
            let (client, input) = SoleClient::read(input, config.http.body_bytes_max).await;
            (client, Some(Box::new(input)))
        }
        _ => (None, Some(Box::new(input))),
    }
}

/// Serves stdin and stdout until they end. Without an input it never returns, as `select!` needs.
async fn serve_stdio_if(
    stdin: Option<Stdin>,
    config: &Config,
    bus: &Bus,
    gateway: Option<&Gateway>,
) -> anyhow::Result<()> {
    let Some(input) = stdin else {
        return std::future::pending().await;
    };
    let output = tokio::io::stdout();
    let served = match gateway {
        // Boxed: the compiler gives up on a service whose future has all requests of a gateway within.
        Some(gateway) => {
            let serving = gateway.wrap().serve_stdio(gateway.server(), input, output);
            Box::pin(serving).await
        }
        None => serve_stdio(bus.clone(), mcp_options(config), input, output).await,
    };
    served.context("MCP on stdin and stdout failed")
}

/// Connects to the servers behind the gateway, if there is one, for the client on stdin or for many.
async fn start_gateway(
    options: Option<GatewayOptions>,
    config: &Config,
    bus: &Bus,
    client: Option<SoleClient>,
) -> anyhow::Result<Option<Arc<Gateway>>> {
    match options {
        Some(options) => {
            let gateway = Gateway::start(bus.clone(), options, mcp_options(config), client).await?;
            Ok(Some(Arc::new(gateway)))
        }
        None => Ok(None),
    }
}

/// Starts the bus, and returns the reader of its store, if it has one.
fn start_bus(config: &Config, cluster: Option<&NodeCluster>) -> anyhow::Result<(Bus, Option<StoreReader>)> {
    let mut builder = Bus::builder().limits(limits(config));
    let mut reader = None;
    match (&config.store.dir, cluster) {
        (_, Some(cluster)) => {
            builder = builder.shared_log(cluster.log()?);
            builder = builder.ask_newest(cluster.newest());
            if config.cluster.read == ClusterRead::Latest {
                builder = builder.read_latest();
            }
        }
        (Some(dir), None) => {
            let store = RedbStore::open(dir, config.bus.removed_max)
                .with_context(|| format!("the store in {} cannot be used", dir.display()))?;
            reader = Some(store.reader());
            builder = builder.store(store);
        }
        (None, None) => warn!(
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

/// Returns the router of backups.
fn backup_router(store: StoreReader, listening: &Listening) -> axum::Router {
    api::backup_router(
        backup_of(store),
        listening.access.clone(),
        listening.limits.clone(),
    )
}

/// Returns the route of `/metrics`, on whichever listener it is served.
fn metrics_routes(render: api::Render, listening: &Listening) -> Mounted {
    let router = api::metrics_router(render, listening.access.clone(), listening.limits.clone());
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
