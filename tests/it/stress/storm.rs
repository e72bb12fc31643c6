//! One storm and its end: the steps of a plan, then a final content for every target that every client must
//! learn of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Report;
use super::client::{Client, Order};
use super::plan::{Kind, Step};
use super::receiver::SlowReceiver;
use super::service::{POLL_INTERVAL, REST_MAX, StressedService};

/// Writes under way at once, beside the requests of clients.
const WRITES_MAX: usize = 8;

pub(super) struct Storm<'run> {
    service: Arc<StressedService>,
    receiver: &'run SlowReceiver,
    report: &'run mut Report,
    clients: BTreeMap<usize, Client>,
    /// Clients on their way out.
    leaving: JoinSet<(u64, Vec<String>)>,
    writes: JoinSet<Result<(), String>>,
}

impl<'run> Storm<'run> {
    pub(super) fn new(
        service: &Arc<StressedService>,
        receiver: &'run SlowReceiver,
        report: &'run mut Report,
    ) -> Storm<'run> {
        Storm {
            service: service.clone(),
            receiver,
            report,
            clients: BTreeMap::new(),
            leaving: JoinSet::new(),
            writes: JoinSet::new(),
        }
    }

    pub(super) async fn run(mut self, steps: Vec<Step>) {
        for (number, step) in steps.into_iter().enumerate() {
            self.step(number, step).await;
            if !self.report.faults.is_empty() {
                break;
            }
        }
        self.settle().await;
        self.end().await;
    }

    async fn step(&mut self, number: usize, step: Step) {
        match step {
            Step::Connect {
                client,
                kind,
                targets,
            } => {
                self.report.connects += 1;
                let name = format!("client {client} (step {number})");
                let uris = targets.iter().map(|target| self.service.uri(*target)).collect();
                let started = Client::start(name, self.service.target.clone(), kind, uris);
                self.clients.insert(client, started);
            }
            Step::Leave(client) => self.dismiss(client, Order::Leave).await,
            Step::Kill(client) => self.kill(client).await,
            Step::Stall(client) => self.order(client, Order::Stall).await,
            Step::Resume(client) => self.order(client, Order::Resume).await,
            Step::Subscribe(client, target) => {
                let order = Order::Subscribe(self.service.uri(target));
                self.order(client, order).await;
            }
            Step::Unsubscribe(client, target) => {
                let order = Order::Unsubscribe(self.service.uri(target));
                self.order(client, order).await;
            }
            Step::Update(target) => self.write(target, format!("step {number}")).await,
            Step::Repeat(target) => self.write(target, "the same".to_owned()).await,
            Step::Remove(target) => {
                let service = self.service.clone();
                self.spawn(async move { service.remove(target).await }).await;
            }
            Step::HangReceiver(hangs) => self.receiver.hang(hangs),
            Step::Pause(millis) => sleep(Duration::from_millis(millis)).await,
        }
    }

    async fn order(&self, client: usize, order: Order) {
        if let Some(client) = self.clients.get(&client) {
            client.order(order).await;
        }
    }

    /// Gives a client its last order.
    async fn dismiss(&mut self, client: usize, last: Order) {
        if let Some(client) = self.clients.remove(&client) {
            client.order(last).await;
            self.leaving.spawn(client.end());
        }
    }

    async fn kill(&mut self, client: usize) {
        match self.clients.get(&client).map(Client::kind) {
            // Its stream was all there was of it.
            Some(Kind::Listen) => self.dismiss(client, Order::Kill).await,
            _ => self.order(client, Order::Kill).await,
        }
    }

    async fn write(&mut self, target: usize, text: String) {
        let service = self.service.clone();
        self.spawn(async move { service.write(target, &text).await })
            .await;
    }

    /// Runs a write beside the others, of which only so many are under way.
    async fn spawn(&mut self, write: impl Future<Output = Result<(), String>> + Send + 'static) {
        while self.writes.len() >= WRITES_MAX {
            self.join_write().await;
        }
        self.writes.spawn(write);
    }

    async fn join_write(&mut self) {
        match self.writes.join_next().await {
            Some(Ok(Ok(()))) => self.report.writes += 1,
            Some(Ok(Err(fault))) => self.report.faults.push(fault),
            Some(Err(error)) => self.report.faults.push(format!("a write panicked: {error}")),
            None => {}
        }
    }

    /// Lets every client read, gives every target its final content, and waits until every client knows it.
    async fn settle(&mut self) {
        self.receiver.hang(false);
        while !self.writes.is_empty() {
            self.join_write().await;
        }
        for client in self.clients.values() {
            client.order(Order::Resume).await;
        }
        for client in self.clients.values() {
            client.wait_for_orders().await;
        }
        let mut newest = BTreeMap::new();
        for target in 0..self.service.targets() {
            match self.service.settle(target).await {
                Ok((uri, version)) => {
                    newest.insert(uri, version);
                }
                Err(fault) => self.report.faults.push(fault),
            }
        }
        let until = Instant::now() + REST_MAX;
        let mut missing = self.missing(&newest);
        while !missing.is_empty() && Instant::now() < until {
            sleep(POLL_INTERVAL).await;
            missing = self.missing(&newest);
        }
        self.report.faults.append(&mut missing);
    }

    /// Lists the notices that clients have not got; one that has given up has said why.
    fn missing(&self, newest: &BTreeMap<String, u64>) -> Vec<String> {
        let mut missing = Vec::new();
        for (number, client) in &self.clients {
            let record = client.record();
            if !record.faults.is_empty() {
                continue;
            }
            for uri in &record.granted {
                let announced = record.newest.get(uri).copied().unwrap_or(0);
                let newest = newest.get(uri).copied().unwrap_or(0);
                if announced < newest {
                    missing.push(format!(
                        "client {number} knows version {announced} of {uri}, the newest is {newest}"
                    ));
                }
            }
        }
        missing
    }

    /// Sends every client home and collects the records.
    async fn end(mut self) {
        let clients: Vec<usize> = self.clients.keys().copied().collect();
        for client in clients {
            self.dismiss(client, Order::Leave).await;
        }
        while let Some(ended) = self.leaving.join_next().await {
            let (notices, mut faults) = ended.unwrap();
            self.report.notices += notices;
            self.report.faults.append(&mut faults);
        }
    }
}
