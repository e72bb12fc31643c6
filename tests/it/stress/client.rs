//! One client of a storm: its subscriptions, the notices it was sent, and the promises that were broken.
//!
//! A client does its orders one after the other in a task. A stalled one leaves its socket unread, so that
//! the buffers of the kernel fill as they do for a real one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;
use tidings::Etag;
use tidings::wire::dialect::{ACKNOWLEDGED, Dialect, ETAG_META_KEY, RESOURCE_UPDATED, Revision};
use tidings::wire::http1::{HttpTarget, ResponseReader};
use tidings::wire::sse::EventReader;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::plan::Kind;
use super::service::{ANSWER_MAX, ask};

/// Orders that may wait for a client.
const ORDERS_MAX: usize = 64;

#[derive(Debug)]
pub(super) enum Order {
    Kill,
    Stall,
    Resume,
    Subscribe(String),
    Unsubscribe(String),
    Leave,
    /// Answers once every order before it is done.
    Report(oneshot::Sender<()>),
}

/// The subscriptions and notices of a client.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// URIs that the server granted.
    pub(super) granted: BTreeSet<String>,
    /// The newest version that was announced, by URI.
    pub(super) newest: BTreeMap<String, u64>,
    pub(super) notices: u64,
    pub(super) faults: Vec<String>,
    last_id: Option<String>,
    /// URIs that were ever asked for: no other may be announced.
    requested: BTreeSet<String>,
}

impl Record {
    fn note(&mut self, uri: &str, version: u64) -> Result<(), String> {
        self.notices += 1;
        if !self.requested.contains(uri) {
            return Err(format!("it was told of {uri}, which it never asked for"));
        }
        let before = self.newest.insert(uri.to_owned(), version).unwrap_or(0);
        match version > before {
            true => Ok(()),
            false => Err(format!(
                "it was told of version {version} of {uri} after {before}"
            )),
        }
    }
}

/// The use of the stream's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Continuous,
    Stalled,
    /// The connection is to be reset.
    Reset,
    /// The connection is to be closed.
    Closed,
}

/// The handle of a client's task.
#[derive(Debug)]
pub(super) struct Client {
    kind: Kind,
    orders: mpsc::Sender<Order>,
    record: Arc<Mutex<Record>>,
    task: JoinHandle<()>,
}

impl Client {
    pub(super) fn start(name: String, target: HttpTarget, kind: Kind, uris: Vec<String>) -> Client {
        let (orders, received) = mpsc::channel(ORDERS_MAX);
        let record = Arc::new(Mutex::new(Record::default()));
        let revision = match kind {
            Kind::Session => Revision::R2025_11_25,
            Kind::Listen => Revision::R2026_07_28,
        };
        let task = ClientTask {
            name,
            target,
            kind,
            dialect: Dialect::new(revision, "storm"),
            uris,
            record: record.clone(),
            reading: watch::channel(Reading::Continuous).0,
            stream: None,
        };
        Client {
            kind,
            orders,
            record,
            task: tokio::spawn(task.run(received)),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    /// Gives it an order. A client that has given up ignores it; the reason is in its record.
    pub(super) async fn order(&self, order: Order) {
        if let Err(unsent) = self.orders.send(order).await {
            assert!(!self.record().faults.is_empty(), "{unsent}");
        }
    }

    /// Waits until its orders are done, or until it has given up.
    pub(super) async fn wait_for_orders(&self) {
        let (done, report) = oneshot::channel();
        self.order(Order::Report(done)).await;
        if report.await.is_err() {
            assert!(!self.record().faults.is_empty());
        }
    }

    /// Waits for its end; returns the number of notices and the faults.
    pub(super) async fn end(self) -> (u64, Vec<String>) {
        drop(self.orders);
        self.task.await.unwrap();
        let mut record = self.record.lock().unwrap();
        (record.notices, std::mem::take(&mut record.faults))
    }
}

struct ClientTask {
    name: String,
    target: HttpTarget,
    kind: Kind,
    dialect: Dialect,
    /// URIs to subscribe to at the start.
    uris: Vec<String>,
    record: Arc<Mutex<Record>>,
    reading: watch::Sender<Reading>,
    stream: Option<JoinHandle<()>>,
}

impl ClientTask {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut outcome = self.connect().await;
        while outcome.is_ok()
            && let Some(order) = orders.recv().await
        {
            outcome = self.obey(order).await;
        }
        if let Err(fault) = outcome {
            self.record().faults.push(format!("{}: {fault}", self.name));
        }
        self.end_stream(Reading::Closed).await;
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    async fn obey(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Stall => {
                self.reading.send_replace(Reading::Stalled);
            }
            Order::Resume => {
                self.reading.send_replace(Reading::Continuous);
            }
            Order::Subscribe(uri) => self.subscribe(uri).await?,
            Order::Unsubscribe(uri) => self.unsubscribe(&uri).await?,
            Order::Kill => {
                self.end_stream(Reading::Reset).await;
                match self.kind {
                    Kind::Session => self.open_stream().await?,
                    Kind::Listen => self.record().granted.clear(),
                }
            }
            Order::Leave => self.leave().await?,
            Order::Report(done) => done.send(()).expect("the storm waits for it"),
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), String> {
        let uris = self.uris.clone();
        self.record().requested.extend(uris.iter().cloned());
        if self.kind == Kind::Listen {
            return self.open_stream().await;
        }
        let answer = ask(&self.target, &self.dialect.initialize(&self.target)).await?;
        answer.result()?;
        self.dialect.session = answer.head.session().map(str::to_owned);
        let answer = ask(&self.target, &self.dialect.initialized(&self.target)).await?;
        if !answer.head.is_success() {
            return Err(format!("status {} for `initialized`", answer.head.status));
        }
        for uri in uris {
            self.subscribe(uri).await?;
        }
        self.open_stream().await
    }

    async fn call(&self, method: &str, uri: &str) -> Result<Result<Value, String>, String> {
        let request = self
            .dialect
            .request(&self.target, 1, method, json!({ "uri": uri }));
        Ok(ask(&self.target, &request).await?.result())
    }

    async fn subscribe(&mut self, uri: String) -> Result<(), String> {
        // Noted before the answer, because the stream may announce a change first.
        self.record().requested.insert(uri.clone());
        match self.call("resources/subscribe", &uri).await? {
            Ok(_) => {
                self.record().granted.insert(uri);
                Ok(())
            }
            // The storm has just removed it.
            Err(refused) if refused.contains("not found") => Ok(()),
            Err(refused) => Err(format!("subscribing to {uri}: {refused}")),
        }
    }

    async fn unsubscribe(&mut self, uri: &str) -> Result<(), String> {
        self.record().granted.remove(uri);
        match self.call("resources/unsubscribe", uri).await? {
            Ok(_) => Ok(()),
            Err(refused) => Err(format!("unsubscribing from {uri}: {refused}")),
        }
    }

    /// Opens the stream and waits for its head; of a listen stream, for the acknowledgement.
    async fn open_stream(&mut self) -> Result<(), String> {
        let request = match self.kind {
            Kind::Session => {
                let last_id = self.record().last_id.clone();
                self.dialect.session_stream(&self.target, last_id.as_deref())
            }
            Kind::Listen => {
                let uris: Vec<&str> = self.uris.iter().map(String::as_str).collect();
                self.dialect.listen(&self.target, 1, &uris)
            }
        };
        let connected = TcpStream::connect(self.target.address).await;
        let mut socket = connected.map_err(|error| format!("cannot connect: {error}"))?;
        let sent = socket.write_all(&request).await;
        sent.map_err(|error| format!("cannot ask for a stream: {error}"))?;
        let (opened, open) = oneshot::channel();
        let reader = StreamReader {
            name: self.name.clone(),
            record: self.record.clone(),
            response: ResponseReader::default(),
            events: EventReader::default(),
            opened: Some(opened),
            is_acknowledged: self.kind == Kind::Session,
        };
        self.stream = Some(tokio::spawn(reader.run(socket, self.reading.subscribe())));
        match timeout(ANSWER_MAX, open).await {
            Ok(Ok(())) => Ok(()),
            _ => Err("the stream did not open".to_owned()),
        }
    }

    /// Ends the stream and waits for its reader; the next stream is read.
    async fn end_stream(&mut self, end: Reading) {
        self.reading.send_replace(end);
        if let Some(stream) = self.stream.take() {
            stream.await.unwrap();
        }
        self.reading.send_replace(Reading::Continuous);
    }

    async fn leave(&mut self) -> Result<(), String> {
        // The stream goes first: the end of a session ends its stream, which would count as a fault.
        self.end_stream(Reading::Closed).await;
        self.record().granted.clear();
        let Some(request) = self.dialect.delete(&self.target) else {
            return Ok(());
        };
        let answer = ask(&self.target, &request).await?;
        match answer.head.is_success() {
            true => Ok(()),
            false => Err("the session could not be ended".to_owned()),
        }
    }
}

/// Reads a stream into the record.
struct StreamReader {
    name: String,
    record: Arc<Mutex<Record>>,
    response: ResponseReader,
    events: EventReader,
    /// Answered when the stream is open.
    opened: Option<oneshot::Sender<()>>,
    is_acknowledged: bool,
}

impl StreamReader {
    async fn run(mut self, mut socket: TcpStream, mut reading: watch::Receiver<Reading>) {
        let mut buffer = vec![0; 4096];
        loop {
            let now = *reading.borrow_and_update();
            match now {
                Reading::Closed => return,
                Reading::Reset => {
                    SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
                    return;
                }
                Reading::Continuous | Reading::Stalled => {}
            }
            let read = tokio::select! {
                changed = reading.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                read = socket.read(&mut buffer), if now == Reading::Continuous => read,
            };
            let outcome = match read {
                Ok(0) => Err("the server ended the stream".to_owned()),
                Ok(count) => self.take(&buffer[..count]),
                Err(error) => Err(format!("the stream broke: {error}")),
            };
            if let Err(fault) = outcome {
                let fault = format!("{}: {fault}", self.name);
                self.record.lock().unwrap().faults.push(fault);
                return;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut body = Vec::new();
        let read = self.response.read(bytes, |part| body.extend_from_slice(part));
        read.map_err(|error| error.to_string())?;
        let mut events = Vec::new();
        let split = self.events.read(&body, |event| {
            events.push((event.id.map(str::to_owned), event.data.to_vec()));
        });
        split.map_err(|error| error.to_string())?;
        for (id, data) in events {
            if id.is_some() {
                self.record.lock().unwrap().last_id = id;
            }
            if !data.is_empty() {
                self.take_message(&serde_json::from_slice(&data).unwrap())?;
            }
        }
        if let Some(head) = self.response.head() {
            if !head.is_stream {
                return Err(format!("instead of a stream came status {}", head.status));
            }
            if self.is_acknowledged
                && let Some(opened) = self.opened.take()
            {
                // The client has given up when it waited for too long.
                opened
                    .send(())
                    .map_err(|()| "the stream opened too late".to_owned())?;
            }
        }
        Ok(())
    }

    fn take_message(&mut self, message: &Value) -> Result<(), String> {
        let params = &message["params"];
        let mut record = self.record.lock().unwrap();
        match message["method"].as_str() {
            Some(RESOURCE_UPDATED) => {
                let uri = params["uri"].as_str().unwrap_or_default();
                let etag = params["_meta"][ETAG_META_KEY].as_str().unwrap_or_default();
                let etag: Etag = etag
                    .parse()
                    .map_err(|_| format!("a notice of {uri} has no version"))?;
                record.note(uri, etag.version)
            }
            Some(ACKNOWLEDGED) => {
                let granted = params["notifications"]["resourceSubscriptions"].as_array();
                for uri in granted.into_iter().flatten() {
                    record.granted.extend(uri.as_str().map(str::to_owned));
                }
                self.is_acknowledged = true;
                Ok(())
            }
            _ => match message.get("error") {
                Some(error) => Err(format!("the stream was refused: {error}")),
                // The result that ends a listen stream without a subscription.
                None => Ok(()),
            },
        }
    }
}

#[test]
fn foreign_and_older_notices_are_faults() {
    let mut record = Record::default();
    record.requested.insert("demo://a".to_owned());
    assert_eq!(record.note("demo://a", 2), Ok(()));
    assert!(record.note("demo://a", 2).is_err());
    assert!(record.note("demo://a", 1).is_err());
    assert!(record.note("demo://b", 3).is_err());
}
