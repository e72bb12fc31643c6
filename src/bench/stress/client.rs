//! One client of a storm: what it subscribed to, what it was told, and what of that was wrong.
//!
//! Owns its stream and its account. It does its steps one after the other; whoever drives the storm sends them and
//! looks at the account. A stalled client leaves its socket unread, so that the kernel's buffers fill as they do for a
//! real one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::exchange::{ANSWER_MAX, ask};
use super::plan::Speech;
use crate::bench::notice::Notice;
use crate::bench::request::Dialect;
use crate::bench::response::Response;
use crate::bench::rpc::{is_success, result};
use crate::bench::target::Target;
use crate::mcp::Revision;

/// Steps that may wait for a client.
const ORDERS_MAX: usize = 64;

/// What a client is to do.
#[derive(Debug)]
pub(super) enum Order {
    Kill,
    Read(bool),
    Subscribe(String),
    Unsubscribe(String),
    Leave,
    /// Says that everything before it is done.
    Report(oneshot::Sender<()>),
}

/// What a client was told.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// What it is subscribed to, granted by the server.
    pub(super) granted: BTreeSet<String>,
    /// The newest version it was told of, by URI.
    pub(super) newest: BTreeMap<String, u64>,
    pub(super) notices: u64,
    /// What was wrong, in words.
    pub(super) faults: Vec<String>,
    last_id: Option<String>,
    /// What it ever asked for: nothing else may be told.
    asked: BTreeSet<String>,
}

/// How a stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    Stall,
    /// Not any more; the connection is reset.
    Reset,
    /// Not any more; the connection is closed.
    Stop,
}

/// The handle of a client's task.
#[derive(Debug)]
pub(super) struct Client {
    speech: Speech,
    orders: mpsc::Sender<Order>,
    account: Arc<Mutex<Account>>,
    task: JoinHandle<()>,
}

impl Client {
    pub(super) fn start(name: String, server: Arc<Target>, speech: Speech, uris: Vec<String>) -> Client {
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        let account = Arc::new(Mutex::new(Account::default()));
        let life = Life {
            name,
            server,
            speech,
            dialect: Dialect::new(match speech {
                Speech::Session => Revision::R2025_11_25,
                Speech::Listen => Revision::R2026_07_28,
            }),
            uris,
            account: account.clone(),
            mode: watch::channel(Mode::Read).0,
            stream: None,
        };
        let task = tokio::spawn(life.run(taken));
        Client {
            speech,
            orders,
            account,
            task,
        }
    }

    /// Gives it a step to do after those it has.
    pub(super) async fn order(&self, order: Order) {
        // One that has given up says why in its account.
        self.orders.send(order).await.unwrap_or_default();
    }

    pub(super) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has done everything it was ordered to; one that has given up is waited for no longer.
    pub(super) async fn obeyed(&self) {
        let (done, told) = oneshot::channel();
        self.order(Order::Report(done)).await;
        drop(told.await);
    }

    /// How it speaks.
    pub(super) fn speech(&self) -> Speech {
        self.speech
    }

    /// Waits until it has done everything; nothing more is ordered.
    pub(super) async fn done(self) -> Arc<Mutex<Account>> {
        drop(self.orders);
        if self.task.await.is_err() {
            lock(&self.account)
                .faults
                .push("a client's task panicked".to_owned());
        }
        self.account
    }
}

fn lock(account: &Mutex<Account>) -> MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Life {
    name: String,
    server: Arc<Target>,
    speech: Speech,
    dialect: Dialect,
    /// What it asks for when it comes.
    uris: Vec<String>,
    account: Arc<Mutex<Account>>,
    mode: watch::Sender<Mode>,
    stream: Option<JoinHandle<()>>,
}

impl Life {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut went = self.come().await;
        while went.is_ok() {
            let Some(order) = orders.recv().await else { break };
            went = self.obey(order).await;
        }
        if let Err(fault) = went {
            lock(&self.account).faults.push(format!("{}: {fault}", self.name));
        }
        self.end_stream(Mode::Stop).await;
    }

    async fn obey(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Read(reads) => {
                self.mode
                    .send_replace(if reads { Mode::Read } else { Mode::Stall });
                Ok(())
            }
            Order::Subscribe(uri) => self.subscribe(uri).await,
            Order::Unsubscribe(uri) => self.unsubscribe(&uri).await,
            Order::Kill => {
                self.end_stream(Mode::Reset).await;
                match self.speech {
                    Speech::Session => self.open().await,
                    Speech::Listen => {
                        lock(&self.account).granted.clear();
                        Ok(())
                    }
                }
            }
            Order::Leave => self.leave().await,
            Order::Report(done) => {
                done.send(()).unwrap_or_default();
                Ok(())
            }
        }
    }

    async fn come(&mut self) -> Result<(), String> {
        lock(&self.account).asked.extend(self.uris.iter().cloned());
        if self.speech == Speech::Listen {
            return self.open().await;
        }
        let (head, body) = ask(&self.server, &self.dialect.initialize(&self.server)).await?;
        result(&head, &body)?;
        self.dialect.session = head.session;
        let (head, _) = ask(&self.server, &self.dialect.initialized(&self.server)).await?;
        if !is_success(&head) {
            return Err(format!("initialized was answered with status {}", head.status));
        }
        for uri in std::mem::take(&mut self.uris) {
            self.subscribe(uri).await?;
        }
        self.open().await
    }

    async fn call(&self, method: &str, params: Value) -> Result<Result<Value, String>, String> {
        let request = self.dialect.request(&self.server, 1, method, params, None);
        let (head, body) = ask(&self.server, &request).await?;
        Ok(result(&head, &body))
    }

    async fn subscribe(&mut self, uri: String) -> Result<(), String> {
        // Before the answer, since the stream may tell of it first.
        lock(&self.account).asked.insert(uri.clone());
        match self.call("resources/subscribe", json!({ "uri": uri })).await? {
            Ok(_) => drop(lock(&self.account).granted.insert(uri)),
            // It is just then removed.
            Err(refused) if refused.contains("not found") => {}
            Err(refused) => return Err(format!("subscribing to {uri}: {refused}")),
        }
        Ok(())
    }

    async fn unsubscribe(&mut self, uri: &str) -> Result<(), String> {
        lock(&self.account).granted.remove(uri);
        self.call("resources/unsubscribe", json!({ "uri": uri }))
            .await?
            .map(drop)
            .map_err(|refused| format!("unsubscribing from {uri}: {refused}"))
    }

    /// Opens the stream and waits for its head; of a listen stream, for the acknowledgement.
    async fn open(&mut self) -> Result<(), String> {
        let uris: Vec<&str> = self.uris.iter().map(String::as_str).collect();
        let mut request = self.dialect.stream(&self.server, &uris);
        let last_id = lock(&self.account).last_id.clone();
        if let Some(id) = last_id.filter(|_| self.speech == Speech::Session) {
            let end = request.len() - b"\r\n".len();
            request.truncate(end);
            request.extend_from_slice(format!("Last-Event-ID: {id}\r\n\r\n").as_bytes());
        }
        let mut socket = TcpStream::connect(self.server.address)
            .await
            .map_err(|error| format!("cannot connect: {error}"))?;
        socket
            .write_all(&request)
            .await
            .map_err(|error| format!("cannot ask for a stream: {error}"))?;
        let (opened, open) = oneshot::channel();
        let reading = Reading {
            name: self.name.clone(),
            account: self.account.clone(),
            response: Response::default(),
            lines: Lines::default(),
            opened: Some(opened),
            acknowledged: self.speech == Speech::Session,
        };
        self.stream = Some(tokio::spawn(reading.run(socket, self.mode.subscribe())));
        match timeout(ANSWER_MAX, open).await {
            Ok(Ok(())) => Ok(()),
            _ => Err("the stream did not open".to_owned()),
        }
    }

    /// Ends the stream, and waits for that; the next one is read.
    async fn end_stream(&mut self, mode: Mode) {
        self.mode.send_replace(mode);
        if let Some(stream) = self.stream.take()
            && stream.await.is_err()
        {
            lock(&self.account)
                .faults
                .push(format!("{}: its reader panicked", self.name));
        }
        self.mode.send_replace(Mode::Read);
    }

    async fn leave(&mut self) -> Result<(), String> {
        // First the stream, since the end of a session is the end of its stream, which would count as a fault.
        self.end_stream(Mode::Stop).await;
        let ended = match self.dialect.delete(&self.server) {
            Some(request) => ask(&self.server, &request)
                .await
                .map(|(head, _)| is_success(&head))?,
            None => true,
        };
        lock(&self.account).granted.clear();
        ended
            .then_some(())
            .ok_or_else(|| "the session could not be ended".to_owned())
    }
}

/// Reads a stream into the account.
struct Reading {
    name: String,
    account: Arc<Mutex<Account>>,
    response: Response,
    lines: Lines,
    /// Answered when the stream is open.
    opened: Option<oneshot::Sender<()>>,
    acknowledged: bool,
}

/// The lines of a stream: its events' data, and their ids.
#[derive(Debug, Default)]
struct Lines {
    part: Vec<u8>,
}

impl Reading {
    async fn run(mut self, mut socket: TcpStream, mut mode: watch::Receiver<Mode>) {
        let mut buffer = vec![0; 4096];
        loop {
            let now = *mode.borrow_and_update();
            match now {
                Mode::Stop => return,
                Mode::Reset => {
                    let reset = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
                    return reset.unwrap_or_default();
                }
                Mode::Read | Mode::Stall => {}
            }
            let read = tokio::select! {
                changed = mode.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    continue;
                }
                read = socket.read(&mut buffer), if now == Mode::Read => read,
            };
            let fault = match read {
                Ok(0) => Some("the server ended the stream".to_owned()),
                Ok(count) => self.take(&buffer[..count]).err(),
                Err(error) => Some(format!("the stream broke: {error}")),
            };
            if let Some(fault) = fault {
                lock(&self.account).faults.push(format!("{}: {fault}", self.name));
                return;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut body = Vec::new();
        self.response
            .read(bytes, |part| body.extend_from_slice(part))
            .map_err(|error| error.to_string())?;
        if let Some(head) = self.response.head() {
            if !head.is_stream {
                return Err(format!("instead of a stream came status {}", head.status));
            }
            if self.acknowledged {
                self.say_open();
            }
        }
        for line in self.lines.complete(&body) {
            if let Some(id) = line.strip_prefix("id: ") {
                lock(&self.account).last_id = Some(id.to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                self.hear(data)?;
            }
        }
        Ok(())
    }

    fn say_open(&mut self) {
        if let Some(opened) = self.opened.take() {
            // Nobody waits any more when it took too long.
            opened.send(()).unwrap_or_default();
        }
    }

    fn hear(&mut self, data: &str) -> Result<(), String> {
        match Notice::read(data.as_bytes()) {
            Notice::Updated { uri, version } => {
                let version = version.ok_or_else(|| format!("a notice of {uri} has no version"))?;
                lock(&self.account).told(&uri, version)
            }
            Notice::Acknowledged { .. } => {
                let message: Value = serde_json::from_str(data).unwrap_or_default();
                let granted = message["params"]["notifications"]["resourceSubscriptions"].as_array();
                let granted = granted.into_iter().flatten().filter_map(Value::as_str);
                lock(&self.account).granted.extend(granted.map(str::to_owned));
                self.acknowledged = true;
                self.say_open();
                Ok(())
            }
            // The answer ends a listen stream whose every subscription was refused.
            Notice::Answer { error: None } | Notice::Other => Ok(()),
            Notice::Answer { error: Some(error) } => Err(format!("the stream was refused: {error}")),
        }
    }
}

impl Account {
    fn told(&mut self, uri: &str, version: u64) -> Result<(), String> {
        self.notices += 1;
        if !self.asked.contains(uri) {
            return Err(format!("it was told of {uri}, which it never asked for"));
        }
        let before = self.newest.insert(uri.to_owned(), version).unwrap_or(0);
        if version <= before {
            return Err(format!(
                "it was told of version {version} of {uri} after version {before}"
            ));
        }
        Ok(())
    }
}

impl Lines {
    /// The lines that `bytes` complete.
    fn complete(&mut self, bytes: &[u8]) -> Vec<String> {
        self.part.extend_from_slice(bytes);
        let Some(end) = self.part.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.part.split_off(end + 1);
        let whole = std::mem::replace(&mut self.part, rest);
        String::from_utf8_lossy(&whole)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let mut lines = Lines::default();
        assert_eq!(lines.complete(b"id: a-1\nda"), ["id: a-1"]);
        assert_eq!(lines.complete(b"ta: x\r\n\n"), ["data: x", ""]);
    }

    #[test]
    fn what_was_not_asked_for_or_goes_backward_is_a_fault() {
        let mut account = Account::default();
        account.asked.insert("demo://a".to_owned());
        assert_eq!(account.told("demo://a", 2), Ok(()));
        assert!(account.told("demo://a", 2).is_err());
        assert!(account.told("demo://a", 1).is_err());
        assert!(account.told("demo://b", 3).is_err());
    }
}
