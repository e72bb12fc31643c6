//! A client that ignores notifications and calls `get_resource_etag` on a timer.

use std::io;

use mio::{Registry, Token};
use serde_json::{Value, json};

use crate::bench::load::pipeline::{Pipeline, PipelineEnds};
use crate::bench::load::session::Book;
use crate::bench::load::stats::Kind;
use crate::bench::load::updates::Watch;
use crate::bench::notice::version;
use crate::wire::dialect::Dialect;
use crate::wire::jsonrpc::tool_result;

const TOOL: &str = "get_resource_etag";

/// A polling client.
#[derive(Debug)]
pub(crate) struct Poller {
    dialect: Dialect,
    resource: usize,
    pipeline: Pipeline<()>,
    /// The newest etag that it knows.
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

    /// Polls, unless the answer before is still due.
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
        let target = &book.target;
        self.pipeline
            .send(PipelineEnds { target, registry }, &request, (), now)
    }

    /// Reads the answer.
    pub(crate) fn turn(&mut self, book: &mut Book, buffer: &mut [u8], now: u64) -> Result<(), String> {
        let held = &mut self.held;
        let watch = &mut self.watch;
        let resource = self.resource;
        let mut refused = None;
        self.pipeline.turn(buffer, |(), head, body| {
            let etag = match tool_result(head, body) {
                Ok(result) => etag(&result),
                Err(reason) => {
                    refused = Some(format!("{TOOL} was refused: {reason}"));
                    return;
                }
            };
            let Some(etag) = etag else {
                return;
            };
            if held.as_ref() != Some(&etag) {
                let told = watch.note(resource, version(&etag), now, &book.updates);
                book.stats.note(Kind::Polling, told, now);
                *held = Some(etag);
            }
        })?;
        match refused {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }
}

/// Finds the etag in an answer, which may be structured or a text.
fn etag(result: &Value) -> Option<String> {
    let structured = &result["structuredContent"];
    // Some SDKs wrap the result of a function once more.
    for value in [structured, &structured["result"]] {
        if let Some(etag) = value["etag_encoded"].as_str() {
            return Some(etag.to_owned());
        }
    }
    let text = result["content"][0]["text"].as_str()?;
    let value: Value = serde_json::from_str(text).ok()?;
    Some(value["etag_encoded"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etag_is_found_in_every_form() {
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
