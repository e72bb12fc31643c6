//! Storms against a service of this program's own: connections, stalls, resets, updates, removals, files and a slow
//! receiver, in a disorder that a seed repeats, with exact expectations when it is over.
//!
//! Owns a run from its settings to its report: it starts the service, drives the storm, settles it and looks. What
//! must hold is said in [`StressReport`]. It prints nothing and reads no command line.
//!
//! One round is a storm and its settling; the memory that the service needs is learned in the first round and compared
//! in the last.

mod client;
mod exchange;
mod plan;
mod receiver;
mod service_process;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::bench::BenchError;
use client::{Client, Order};
use plan::{Size, Speech, Step};
use receiver::Receiver;
use service_process::{ServiceProcess, Standing};

/// Clients at once, at most.
pub const CLIENTS_MAX: usize = 2_000;
/// Steps of one round, at most.
pub const STEPS_MAX: usize = 1_000_000;
/// Requests under way at once, beside those of clients.
const WRITERS: usize = 8;
/// How long everything may take to come to rest after a storm.
const REST_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What the memory may grow by between the first round and the last: a quarter, or this many KiB.
const GROWTH_KIB: u64 = 16 * 1024;

/// What a run is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StressSettings {
    /// Makes the storm.
    pub seed: u64,
    /// No round begins after this long; at least two are run.
    pub time_limit: Duration,
    /// Clients at once (1 to [`CLIENTS_MAX`]).
    pub clients: usize,
    /// Resources that change (1 to 10,000).
    pub resources: usize,
    /// Steps of one round (1 to [`STEPS_MAX`]).
    pub steps: usize,
}

impl Default for StressSettings {
    fn default() -> StressSettings {
        StressSettings {
            seed: 1,
            time_limit: Duration::from_secs(20),
            clients: 60,
            resources: 24,
            steps: 1_500,
        }
    }
}

/// What came of it. It holds when there are no faults: every notice was asked for and newer than the one before it;
/// every client alive at the end of a round knew the newest version of everything it was subscribed to; after each
/// round no session, stream, thread or descriptor was left; after the last, the memory was what it was after the first.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct StressReport {
    /// The seed it can be repeated with.
    pub seed: u64,
    /// Rounds that were run.
    pub rounds: usize,
    /// Steps that were done.
    pub steps: usize,
    /// Clients that connected.
    pub connects: usize,
    /// Writes that were answered: updates, repetitions and removals.
    pub writes: u64,
    /// Notices that were read.
    pub notices: u64,
    /// Deliveries that the slow receiver took.
    pub received: u64,
    /// KiB resident after the first round and after the last.
    pub resident_kib: [u64; 2],
    /// What was wrong, in words; at most 100.
    pub faults: Vec<String>,
}

const FAULTS_MAX: usize = 100;

/// Runs storms until the time is up, `stopped` is set, or something is wrong. Starts `program serve …` as a process of
/// its own and ends it.
///
/// # Errors
/// [`BenchError`] when the settings make no sense or the service cannot be started; what is wrong with it is in the
/// report.
pub async fn stress(
    program: &std::path::Path,
    settings: &StressSettings,
    stopped: &AtomicBool,
) -> Result<StressReport, BenchError> {
    check(settings)?;
    let receiver = Receiver::start()
        .await
        .map_err(|error| BenchError::Failed(format!("the slow receiver could not be started: {error}")))?;
    let service = Arc::new(ServiceProcess::start(program, &receiver, settings.resources).await?);
    let mut report = StressReport {
        seed: settings.seed,
        ..StressReport::default()
    };
    let began = Instant::now();
    let mut rest: Option<Standing> = None;
    while report.rounds < 2 || began.elapsed() < settings.time_limit {
        if stopped.load(Ordering::Relaxed) || !report.faults.is_empty() {
            break;
        }
        // Each round is a storm of its own; the first one's seed is the run's.
        let seed = settings.seed.wrapping_add(report.rounds as u64);
        let size = Size {
            clients: settings.clients,
            resources: settings.resources,
            files: service_process::FILES,
            steps: settings.steps,
        };
        Storm::new(&service, &receiver, &mut report)
            .run(&plan::steps(seed, size))
            .await;
        let standing = service.at_rest(rest.as_ref(), &mut report.faults).await;
        report.resident_kib[1] = standing.resident_kib;
        let first = rest.get_or_insert_with(|| standing.clone());
        report.resident_kib[0] = first.resident_kib;
        report.rounds += 1;
    }
    let [first, last] = report.resident_kib;
    if last > first + (first / 4).max(GROWTH_KIB) {
        let fault =
            format!("memory grew from {first} KiB after the first round to {last} KiB after the last");
        report.faults.push(fault);
    }
    report.received = receiver.taken();
    if let Err(fault) = Arc::into_inner(service).map_or(Ok(()), ServiceProcess::end) {
        report.faults.push(fault);
    }
    report.faults.truncate(FAULTS_MAX);
    Ok(report)
}

fn check(settings: &StressSettings) -> Result<(), BenchError> {
    for (what, value, max) in [
        ("clients", settings.clients, CLIENTS_MAX),
        ("resources", settings.resources, 10_000),
        ("steps", settings.steps, STEPS_MAX),
    ] {
        if value == 0 || value > max {
            let text = format!("{value} {what}: choose 1 to {max}");
            return Err(BenchError::Arguments(text));
        }
    }
    Ok(())
}

/// One storm and its settling.
struct Storm<'r> {
    service: &'r Arc<ServiceProcess>,
    receiver: &'r Receiver,
    report: &'r mut StressReport,
    clients: BTreeMap<usize, Client>,
    /// Clients that are on their way out.
    leaving: JoinSet<(u64, Vec<String>)>,
    writers: JoinSet<Result<(), String>>,
}

impl<'r> Storm<'r> {
    fn new(
        service: &'r Arc<ServiceProcess>,
        receiver: &'r Receiver,
        report: &'r mut StressReport,
    ) -> Storm<'r> {
        Storm {
            service,
            receiver,
            report,
            clients: BTreeMap::new(),
            leaving: JoinSet::new(),
            writers: JoinSet::new(),
        }
    }

    async fn run(mut self, steps: &[Step]) {
        for (number, step) in steps.iter().enumerate() {
            self.step(number, step).await;
            self.report.steps += 1;
            if !self.report.faults.is_empty() {
                break;
            }
        }
        self.settle().await;
    }

    async fn step(&mut self, number: usize, step: &Step) {
        match step {
            Step::Connect {
                client,
                speech,
                targets,
            } => {
                self.report.connects += 1;
                let name = format!("client {client} (step {number})");
                let uris = targets.iter().map(|target| self.service.uri(*target)).collect();
                let server = self.service.server.clone();
                self.clients
                    .insert(*client, Client::start(name, server, *speech, uris));
            }
            Step::Leave(client) => self.dismiss(*client, Order::Leave).await,
            Step::Kill(client) => self.kill(*client).await,
            Step::Stall(client) => self.order(*client, Order::Read(false)).await,
            Step::Resume(client) => self.order(*client, Order::Read(true)).await,
            Step::Subscribe(client, target) => {
                self.order(*client, Order::Subscribe(self.service.uri(*target)))
                    .await;
            }
            Step::Unsubscribe(client, target) => {
                self.order(*client, Order::Unsubscribe(self.service.uri(*target)))
                    .await;
            }
            Step::Update(target) => self.write(*target, format!("step {number}")).await,
            Step::Same(target) => self.write(*target, "the same".to_owned()).await,
            Step::Remove(target) => {
                let (service, target) = (self.service.clone(), *target);
                self.spawn(async move { service.remove(target).await }).await;
            }
            Step::Sink { stands_still } => self.receiver.stand_still(*stands_still),
            Step::Pause(millis) => sleep(Duration::from_millis(*millis)).await,
        }
    }

    async fn order(&self, client: usize, order: Order) {
        if let Some(client) = self.clients.get(&client) {
            client.order(order).await;
        }
    }

    async fn dismiss(&mut self, client: usize, last: Order) {
        let Some(client) = self.clients.remove(&client) else {
            return;
        };
        client.order(last).await;
        self.leaving.spawn(async move {
            let account = client.done().await;
            let mut account = account.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            (account.notices, std::mem::take(&mut account.faults))
        });
    }

    async fn kill(&mut self, client: usize) {
        let listens = self
            .clients
            .get(&client)
            .is_some_and(|client| client.speech() == Speech::Listen);
        if listens {
            self.dismiss(client, Order::Kill).await;
        } else {
            self.order(client, Order::Kill).await;
        }
    }

    async fn write(&mut self, target: usize, body: String) {
        let service = self.service.clone();
        self.spawn(async move { service.write(target, &body).await.map(drop) })
            .await;
    }

    /// Has a write done beside the others, of which only so many are under way.
    async fn spawn(&mut self, write: impl Future<Output = Result<(), String>> + Send + 'static) {
        while self.writers.len() >= WRITERS {
            self.join_writer().await;
        }
        self.writers.spawn(write);
    }

    async fn join_writer(&mut self) {
        match self.writers.join_next().await {
            Some(Ok(Ok(()))) => self.report.writes += 1,
            Some(Ok(Err(fault))) => self.report.faults.push(fault),
            Some(Err(_)) => self.report.faults.push("a writer panicked".to_owned()),
            None => {}
        }
    }

    /// Lets everybody read, gives every target its last content, and sees that everybody learns of it; then sends
    /// everybody home.
    async fn settle(mut self) {
        self.receiver.stand_still(false);
        while !self.writers.is_empty() {
            self.join_writer().await;
        }
        for client in self.clients.values() {
            client.order(Order::Read(true)).await;
        }
        for client in self.clients.values() {
            client.obeyed().await;
        }
        let mut newest = BTreeMap::new();
        for target in 0..self.service.targets() {
            match self.service.settle(target).await {
                Ok((uri, version)) => drop(newest.insert(uri, version)),
                Err(fault) => self.report.faults.push(fault),
            }
        }
        self.everybody_knows(&newest).await;
        let clients: Vec<usize> = self.clients.keys().copied().collect();
        for client in clients {
            self.dismiss(client, Order::Leave).await;
        }
        while let Some(left) = self.leaving.join_next().await {
            let (notices, faults) = left.unwrap_or_default();
            self.report.notices += notices;
            self.report.faults.extend(faults);
        }
    }

    async fn everybody_knows(&mut self, newest: &BTreeMap<String, u64>) {
        let until = Instant::now() + REST_MAX;
        loop {
            let behind: Vec<String> = self
                .clients
                .iter()
                .flat_map(|(number, client)| behind(*number, client, newest))
                .collect();
            if behind.is_empty() {
                return;
            }
            if Instant::now() > until {
                return self.report.faults.extend(behind);
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// What `client` should know by now and does not; one that has given up has said why.
fn behind(number: usize, client: &Client, newest: &BTreeMap<String, u64>) -> Vec<String> {
    let account = client.account();
    if !account.faults.is_empty() {
        return Vec::new();
    }
    let missing = |uri: &String| {
        let (newest, told) = (newest.get(uri)?, account.newest.get(uri).copied().unwrap_or(0));
        (told < *newest)
            .then(|| format!("client {number} was told of version {told} of {uri}, whose newest is {newest}"))
    };
    account.granted.iter().filter_map(missing).collect()
}
