//! The publisher of a run: sends updates on time, whatever became of the update before.
//!
//! All updates of a resource take the same connection, so they arrive in order. When a connection has too
//! many answers due, the update stays due, and its latency counts all the same.

use std::io;

use hdrhistogram::Histogram;
use mio::{Registry, Token};

use crate::bench::load::pipeline::{Pipeline, PipelineEnds};
use crate::bench::load::schedule::{Due, Pace};
use crate::bench::load::session::Book;
use crate::bench::load::stats::histogram;
use crate::bench::notice::version;
use crate::bench::settings::call_arguments;
use crate::wire::dialect::Dialect;
use crate::wire::http1::{ResponseHead, resource_path};
use crate::wire::jsonrpc::{refusal, tool_result};

/// Answers that may be due on one connection.
const WAITING_MAX: usize = 512;
/// The same for updates flat out, where more would only wait in the server's queue.
const WAITING_FLAT_OUT_MAX: usize = 8;

/// The way of an update to the server.
#[derive(Debug)]
pub(crate) enum Way {
    /// `PUT` of the HTTP API; the path of each resource.
    Api(Vec<String>),
    /// A call of a tool.
    Tool {
        dialect: Dialect,
        name: String,
        arguments: String,
    },
}

impl Way {
    pub(crate) fn api(uris: &[String]) -> Way {
        Way::Api(uris.iter().map(|uri| resource_path(uri)).collect())
    }

    fn request(&self, book: &Book, due: Due) -> Vec<u8> {
        match self {
            Way::Api(paths) => {
                let text = format!("update {}", due.number);
                let request = book.target.request_to("PUT", &paths[due.resource]);
                request.body("text/plain", text.as_bytes())
            }
            Way::Tool {
                dialect,
                name,
                arguments,
            } => {
                let arguments = call_arguments(arguments, &book.uris[due.resource], due.number);
                let arguments = arguments.expect("the settings were validated");
                let params = serde_json::json!({ "name": name, "arguments": arguments });
                dialect.request(&book.target, due.number + 1, "tools/call", params)
            }
        }
    }
}

/// An update whose answer is due.
#[derive(Debug)]
struct SentChange {
    at: u64,
    is_tool_call: bool,
    /// The version that the answer must name, where versions are known.
    version: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Publisher {
    way: Way,
    pipelines: Vec<Pipeline<SentChange>>,
    waiting_max: usize,
    pub(crate) log: Log,
}

/// Counts and times of the updates.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    /// Answers that name another version than this test's own updates lead to.
    pub(crate) foreign: u64,
    /// The first refusal.
    pub(crate) reason: Option<String>,
    /// Microseconds from due to written.
    pub(crate) lag: Histogram<u64>,
    /// Microseconds from written to answered.
    pub(crate) answer: Histogram<u64>,
}

impl Publisher {
    pub(crate) fn new(way: Way, pace: Pace, tokens: impl Iterator<Item = Token>) -> Publisher {
        Publisher {
            way,
            pipelines: tokens.map(Pipeline::new).collect(),
            waiting_max: match pace {
                Pace::PerSecond(_) => WAITING_MAX,
                Pace::FlatOut => WAITING_FLAT_OUT_MAX,
            },
            log: Log {
                sent: 0,
                answered: 0,
                refused: 0,
                foreign: 0,
                reason: None,
                lag: histogram(),
                answer: histogram(),
            },
        }
    }

    /// Reports whether an update of this resource can go out now.
    pub(crate) fn has_room(&self, resource: usize) -> bool {
        self.pipelines[resource % self.pipelines.len()].waiting() < self.waiting_max
    }

    /// Returns the number of answers that are due.
    pub(crate) fn waiting(&self) -> usize {
        self.pipelines.iter().map(Pipeline::waiting).sum()
    }

    /// Sends an update.
    pub(crate) fn publish(
        &mut self,
        book: &mut Book,
        registry: &Registry,
        due: Due,
        now: u64,
    ) -> io::Result<()> {
        let request = self.way.request(book, due);
        // Before it is sent: its notice may come before the answer.
        let version = book.updates.push(due.resource, due.at, now);
        // Always the same connection for a resource, so that its updates arrive in order.
        let number = due.resource % self.pipelines.len();
        self.log.sent += 1;
        self.log.lag.saturating_record(now.saturating_sub(due.at) / 1_000);
        let sent = SentChange {
            at: now,
            is_tool_call: matches!(self.way, Way::Tool { .. }),
            version,
        };
        let target = &book.target;
        let outcome = self.pipelines[number].send(PipelineEnds { target, registry }, &request, sent, now);
        if let Err(error) = outcome {
            self.give_up(number, error.to_string());
        }
        Ok(())
    }

    /// Reads the answers on one connection.
    pub(crate) fn turn(&mut self, number: usize, buffer: &mut [u8], now: u64) {
        let log = &mut self.log;
        let turned = self.pipelines[number].turn(buffer, |sent, head, body| {
            log.note(&sent, head, body, now);
        });
        if let Err(reason) = turned {
            self.give_up(number, reason);
        }
    }

    fn give_up(&mut self, number: usize, reason: String) {
        self.log.refused += self.pipelines[number].abandon() as u64;
        self.log.reason.get_or_insert(reason);
    }
}

impl Log {
    fn note(&mut self, sent: &SentChange, head: &ResponseHead, body: &[u8], now: u64) {
        self.answer.saturating_record(now.saturating_sub(sent.at) / 1_000);
        let outcome = match sent.is_tool_call {
            true => tool_result(head, body).map(drop),
            false if head.is_success() => Ok(()),
            false => Err(refusal(head, body)),
        };
        if let Err(reason) = outcome {
            self.refused += 1;
            self.reason.get_or_insert(reason);
            return;
        }
        self.answered += 1;
        // Another version means that another publisher writes the same resource.
        if sent.version.is_some() && head.etag().and_then(version) != sent.version {
            self.foreign += 1;
        }
    }
}
