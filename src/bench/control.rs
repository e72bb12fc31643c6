//! Requests before and after the measurement, one at a time.
//!
//! Owns one blocking connection with a limit on every wait. It is never used while anything is measured.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::BenchError;
use crate::bench::request::{Dialect, plain, put, resource_path};
use crate::bench::response::{Head, Response};
use crate::bench::rpc;
use crate::bench::target::Target;
use crate::mcp::Revision;

/// How long a server may take for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How many pages of resources are looked through.
const PAGES_MAX: usize = 1_000;
/// How many requests of a cleaning-up are on their way together.
const TOGETHER: usize = 64;

pub(crate) struct Control<'s> {
    target: &'s Target,
    socket: Option<TcpStream>,
    /// Read and not used yet.
    rest: Vec<u8>,
}

impl<'s> Control<'s> {
    pub(crate) fn new(target: &'s Target) -> Control<'s> {
        Control {
            target,
            socket: None,
            rest: Vec::new(),
        }
    }

    /// Sends a request and waits for its answer; on a connection that was kept, a second time when the server had
    /// closed it meanwhile.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<(Head, Vec<u8>), BenchError> {
        let kept = self.socket.is_some();
        match self.ask_once(request) {
            Err(BenchError::Failed(_)) if kept => self.ask_once(request),
            other => other,
        }
    }

    fn ask_once(&mut self, request: &[u8]) -> Result<(Head, Vec<u8>), BenchError> {
        let asked = self.send(request).and_then(|()| self.answer());
        if !matches!(&asked, Ok((head, _)) if !head.closes) {
            self.close();
        }
        asked
    }

    fn close(&mut self) {
        self.socket = None;
        self.rest.clear();
    }

    fn send(&mut self, request: &[u8]) -> Result<(), BenchError> {
        let address = self.target.address;
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => {
                let unreachable = |error| BenchError::Unreachable(format!("cannot reach {address}: {error}"));
                let socket = TcpStream::connect_timeout(&address, CONNECT_MAX).map_err(unreachable)?;
                socket.set_nodelay(true).map_err(|error| failed(&error))?;
                socket
                    .set_read_timeout(Some(ANSWER_MAX))
                    .map_err(|error| failed(&error))?;
                socket
                    .set_write_timeout(Some(ANSWER_MAX))
                    .map_err(|error| failed(&error))?;
                none.insert(socket)
            }
        };
        socket.write_all(request).map_err(|error| failed(&error))
    }

    fn answer(&mut self) -> Result<(Head, Vec<u8>), BenchError> {
        let (mut response, mut body, mut buffer) = (Response::default(), Vec::new(), vec![0; 64 * 1024]);
        let socket = self.socket.as_mut().expect("a request was sent on it");
        loop {
            let used = response
                .read(&self.rest, |part| body.extend_from_slice(part))
                .map_err(|error| BenchError::Failed(error.to_string()))?;
            self.rest.drain(..used);
            if response.is_done() {
                break;
            }
            match socket.read(&mut buffer) {
                Ok(0) if response.ends_with_connection() => break,
                Ok(0) => {
                    let reason = "the server closed the connection before it answered";
                    return Err(BenchError::Failed(reason.to_owned()));
                }
                Ok(count) => self.rest.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let reason = format!("no answer within {ANSWER_MAX:?}: {error}");
                    return Err(BenchError::Failed(reason));
                }
            }
        }
        let head = response.head().cloned();
        Ok((head.expect("a body follows a head"), body))
    }

    /// Whether the HTTP API of Tidings is there.
    pub(crate) fn has_api(&mut self) -> Result<bool, BenchError> {
        let (ready, _) = self.ask(&plain(self.target, "GET", "/readyz"))?;
        let (list, body) = self.ask(&plain(self.target, "GET", "/v1/resources?limit=1"))?;
        let listed: Value = serde_json::from_slice(&body).unwrap_or_default();
        Ok(matches!(ready.status, 200 | 503) && list.status == 200 && listed["items"].is_array())
    }

    /// Creates or replaces a resource through the HTTP API; answers its etag.
    pub(crate) fn create(&mut self, uri: &str, body: &str) -> Result<String, BenchError> {
        let (head, body) = self.ask(&put(self.target, &resource_path(uri), body))?;
        let refused = || BenchError::Failed(format!("cannot create {uri}: {}", rpc::refusal(&head, &body)));
        match &head.etag {
            Some(etag) if rpc::is_success(&head) => Ok(etag.clone()),
            _ => Err(refused()),
        }
    }

    /// Sends requests whose answers are of no interest, many at a time; what fails is left as it is.
    pub(crate) fn clean_up(&mut self, requests: &[Vec<u8>]) {
        for requests in requests.chunks(TOGETHER) {
            let sent = self.send(&requests.concat());
            let answered = sent.and_then(|()| requests.iter().try_for_each(|_| self.answer().map(drop)));
            if answered.is_err() {
                self.close();
            }
        }
    }

    /// Makes itself known to the server, where the revision wants it.
    pub(crate) fn introduce(&mut self, revision: Revision) -> Result<Dialect, BenchError> {
        let mut dialect = Dialect::new(revision);
        if revision.is_stateless() {
            return Ok(dialect);
        }
        let (head, body) = self.ask(&dialect.initialize(self.target))?;
        rpc::result(&head, &body)
            .map_err(|reason| BenchError::Failed(format!("initialize was refused: {reason}")))?;
        dialect.session = head.session;
        self.ask(&dialect.initialized(self.target))?;
        Ok(dialect)
    }

    /// The URIs of the server's resources, `max` at most, in its order.
    pub(crate) fn listed(&mut self, dialect: &Dialect, max: usize) -> Result<Vec<String>, BenchError> {
        let (mut uris, mut cursor) = (Vec::new(), Value::Null);
        for page in 0..PAGES_MAX {
            let params = match &cursor {
                Value::Null => json!({}),
                cursor => json!({ "cursor": cursor }),
            };
            let request = dialect.request(self.target, page as u64 + 1, "resources/list", params, None);
            let (head, body) = self.ask(&request)?;
            let result = rpc::result(&head, &body)
                .map_err(|reason| BenchError::Failed(format!("resources/list was refused: {reason}")))?;
            let items = result["resources"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            uris.extend(
                items
                    .iter()
                    .filter_map(|item| item["uri"].as_str().map(str::to_owned)),
            );
            cursor = result["nextCursor"].clone();
            if cursor.is_null() || uris.len() >= max {
                break;
            }
        }
        uris.truncate(max);
        Ok(uris)
    }
}

fn failed(error: &io::Error) -> BenchError {
    BenchError::Failed(error.to_string())
}
