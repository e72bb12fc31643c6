//! Requests before and after the measurement, one at a time on a connection that blocks.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{BenchError, CLIENT_NAME};
use crate::credentials::Challenge;
use crate::wire::connection::{BlockingConnection, HttpAnswer};
use crate::wire::dialect::{Dialect, Revision};
use crate::wire::http1::HttpTarget;
use crate::wire::jsonrpc::refusal;

/// The time within which a server must accept a connection and give one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Pages of the list of resources that are read at most.
const PAGES_MAX: usize = 1_000;
/// Requests of a clean-up that are sent together.
const CLEAN_UP_BATCH: usize = 64;

/// A client of the server under test that measures nothing.
pub(crate) struct Control<'s> {
    target: &'s HttpTarget,
    connection: Option<BlockingConnection>,
}

impl<'s> Control<'s> {
    pub(crate) fn new(target: &'s HttpTarget) -> Control<'s> {
        Control {
            target,
            connection: None,
        }
    }

    pub(crate) fn target(&self) -> &'s HttpTarget {
        self.target
    }

    /// Sends a request and waits for its answer.
    ///
    /// A connection that was kept may have been closed by the server meanwhile, so the request is then sent a
    /// second time on a new one.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<HttpAnswer, BenchError> {
        let was_kept = self.connection.is_some();
        let answer = match self.ask_once(request) {
            Err(BenchError::Failed(_)) if was_kept => self.ask_once(request)?,
            other => other?,
        };
        match Challenge::of(answer.head.status, answer.head.header("www-authenticate")) {
            None => Ok(answer),
            Some(challenge) => {
                let address = self.target.address;
                let reason = format!("{address} does not let this client in: {challenge}");
                Err(BenchError::Denied(reason))
            }
        }
    }

    fn ask_once(&mut self, request: &[u8]) -> Result<HttpAnswer, BenchError> {
        let answer = self.connection()?.exchange(request).map_err(BenchError::from);
        let is_kept = match &answer {
            Ok(answer) => !answer.head.closes,
            Err(_) => false,
        };
        if !is_kept {
            self.connection = None;
        }
        answer
    }

    fn connection(&mut self) -> Result<&mut BlockingConnection, BenchError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let address = self.target.address;
                BlockingConnection::to(self.target, ANSWER_MAX)
                    .map_err(|error| BenchError::Unreachable(format!("cannot reach {address}: {error}")))?
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Reports whether the server has the HTTP API of Tidings.
    pub(crate) fn has_api(&mut self) -> Result<bool, BenchError> {
        let ready = self.ask(&self.target.request_to("GET", "/readyz").finish())?;
        let list = self.ask(&self.target.request_to("GET", "/v1/resources?limit=1").finish())?;
        let listed: Value = serde_json::from_slice(&list.body).unwrap_or_default();
        Ok(matches!(ready.head.status, 200 | 503) && list.head.status == 200 && listed["items"].is_array())
    }

    /// Creates or replaces a resource through the HTTP API and returns its etag.
    pub(crate) fn create(&mut self, uri: &str, text: &str) -> Result<String, BenchError> {
        let answer = self.ask(&self.target.put_resource(uri, text))?;
        match answer.head.etag() {
            Some(etag) if answer.head.is_success() => Ok(etag.to_owned()),
            _ => {
                let refusal = refusal(&answer.head, &answer.body);
                Err(BenchError::Failed(format!("cannot create {uri}: {refusal}")))
            }
        }
    }

    /// Sends requests whose answers decide nothing, many at a time. After a failure the next batch gets a new
    /// connection.
    pub(crate) fn clean_up(&mut self, requests: &[Vec<u8>]) {
        for batch in requests.chunks(CLEAN_UP_BATCH) {
            if self.exchange_all(batch).is_err() {
                self.connection = None;
            }
        }
    }

    fn exchange_all(&mut self, requests: &[Vec<u8>]) -> Result<(), BenchError> {
        let connection = self.connection()?;
        // In one write: a clean-up of thousands of sessions would else take a round trip each.
        connection.send(&requests.concat()).map_err(BenchError::from)?;
        for _ in requests {
            connection.answer().map_err(BenchError::from)?;
        }
        Ok(())
    }

    /// Opens a session, where the revision has sessions.
    pub(crate) fn introduce(&mut self, revision: Revision) -> Result<Dialect, BenchError> {
        let mut dialect = Dialect::new(revision, CLIENT_NAME);
        if revision.is_stateless() {
            return Ok(dialect);
        }
        let answer = self.ask(&dialect.initialize(self.target))?;
        answer
            .result()
            .map_err(|reason| BenchError::Failed(format!("initialize was refused: {reason}")))?;
        dialect.session = answer.head.session().map(str::to_owned);
        self.ask(&dialect.initialized(self.target))?;
        Ok(dialect)
    }

    /// Returns the URIs of the server's resources, `max` at most, in the server's order.
    pub(crate) fn listed(&mut self, dialect: &Dialect, max: usize) -> Result<Vec<String>, BenchError> {
        let mut uris = Vec::new();
        let mut cursor = Value::Null;
        for page in 0..PAGES_MAX {
            let params = match &cursor {
                Value::Null => json!({}),
                cursor => json!({ "cursor": cursor }),
            };
            let request = dialect.request(self.target, page as u64 + 1, "resources/list", params);
            let mut result = self
                .ask(&request)?
                .result()
                .map_err(|reason| BenchError::Failed(format!("resources/list was refused: {reason}")))?;
            for item in result["resources"].as_array().into_iter().flatten() {
                uris.extend(item["uri"].as_str().map(str::to_owned));
            }
            // A server that pages without an end stops at the bound of the loop.
            cursor = result["nextCursor"].take();
            if cursor.is_null() || uris.len() >= max {
                break;
            }
        }
        uris.truncate(max);
        Ok(uris)
    }
}
