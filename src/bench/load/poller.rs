//! Clients that ask instead of listening: `get_resource_etag` on a timer.
//!
//! Owns their connections and what each holds. When one asks is the engine's decision; what it learns goes to the book.

use std::io;

use mio::{Registry, Token};
use serde_json::json;

use crate::bench::load::pipeline::Pipeline;
use crate::bench::load::session::Book;
use crate::bench::load::stats::Kind;
use crate::bench::load::updates::Watch;
use crate::bench::notice::version;
use crate::wire::dialect::Dialect;
use crate::wire::jsonrpc::tool_result;

const TOOL: &str = "get_resource_etag";

/// One client that asks.
#[derive(Debug)]
pub(crate) struct Poller {
    dialect: Dialect,
    resource: usize,
    pipeline: Pipeline<()>,
    held: Option<String>,
    pub(crate) watch: Watch,
    asked: u64,
}

impl Poller {
    pub(crate) fn new(dialect: Dialect, resource: usize, token: Token) -> Poller {
        Poller {
            dialect,
            resource,
            pipeline: Pipeline::new(token),
            held: None,
            watch: Watch::default(),
            asked: 0,
        }
    }

    pub(crate) fn resource(&self) -> usize {
        self.resource
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.pipeline.waiting() > 0
    }

    pub(crate) fn farewell(&self, book: &Book) -> Option<Vec<u8>> {
        self.dialect.delete(&book.target)
    }

    /// Asks, unless the answer before is still due.
    pub(crate) fn ask(&mut self, book: &Book, registry: &Registry, now: u64) -> io::Result<()> {
        if self.is_waiting() {
            return Ok(());
        }
        self.asked += 1;
        let arguments = json!({ "uri": book.uris[self.resource], "client_etag": self.held });
        let params = json!({ "name": TOOL, "arguments": arguments });
        let request = self
            .dialect
            .request(&book.target, self.asked, "tools/call", params);
        self.pipeline.send(&book.target, registry, &request, (), now)
    }

    /// Reads the answer.
    pub(crate) fn turn(&mut self, book: &mut Book, buffer: &mut [u8], now: u64) -> Result<(), String> {
        let (held, mut refused) = (&mut self.held, None);
        let (watch, resource) = (&mut self.watch, self.resource);
        self.pipeline.turn(buffer, |(), head, body| {
            let etag = match tool_result(head, body) {
                Ok(result) => etag(&result),
                Err(reason) => {
                    refused = Some(format!("{TOOL} was refused: {reason}"));
                    return;
                }
            };
            if etag.is_some() && etag != *held {
                let told = watch.note(resource, etag.as_deref().and_then(version), now, &book.updates);
                book.stats.note(Kind::Polling, told, now);
                *held = etag;
            }
        })?;
        refused.map_or(Ok(()), Err)
    }
}

/// The etag in an answer, which may be structured or a text.
fn etag(result: &serde_json::Value) -> Option<String> {
    let named = |value: &serde_json::Value| value["etag_encoded"].as_str().map(str::to_owned);
    named(&result["structuredContent"])
        .or_else(|| named(&result["structuredContent"]["result"]))
        .or_else(|| {
            let text = result["content"][0]["text"].as_str()?;
            named(&serde_json::from_str(text).ok()?)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_found_wherever_it_stands() {
        let plain = json!({ "etag_encoded": "v2-1" });
        for result in [
            json!({ "structuredContent": plain }),
            json!({ "structuredContent": { "result": plain } }),
            json!({ "content": [{ "type": "text", "text": plain.to_string() }] }),
        ] {
            assert_eq!(etag(&result).as_deref(), Some("v2-1"));
        }
        assert_eq!(etag(&json!({ "content": [] })), None);
    }
}
