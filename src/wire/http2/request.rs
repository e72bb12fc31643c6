//! The request that opens a listen stream (2026-07-28), as headers and a body.

use crate::wire::dialect::{ACCEPT_BOTH, Dialect};
use crate::wire::http1::HttpTarget;

use super::header_block::HeaderBlock;

/// The URI in whose place those of a stream are written.
const PLACE: &str = "place:uris";

/// The listen requests of a run, which differ in their URIs alone.
#[derive(Debug)]
pub struct ListenRequests {
    headers: HeaderBlock,
    /// The message before its URIs, and after them.
    before: String,
    after: String,
}

impl ListenRequests {
    /// Prepares requests of one client to one server, with the headers that the target has now.
    pub fn new(target: &HttpTarget, dialect: &Dialect) -> ListenRequests {
        // The same id in every request: streams tell themselves apart by their numbers.
        let message = dialect.listen_message(1, &[PLACE]);
        let mut headers = HeaderBlock::post(target.tls.is_some(), &target.authority, &target.path)
            .header("accept", ACCEPT_BOTH)
            .header("content-type", "application/json");
        for (name, value) in dialect.message_headers(&message) {
            headers = headers.header(name, &value);
        }
        let text = message.to_string();
        // Cut once, since a run writes as many bodies as it has streams.
        let (before, after) = text.split_once(&format!("{PLACE:?}")).unwrap_or_default();
        ListenRequests {
            headers: headers.lines(&target.headers),
            before: before.to_owned(),
            after: after.to_owned(),
        }
    }

    /// Returns the headers, without that of the body's length.
    pub fn headers(&self) -> &HeaderBlock {
        &self.headers
    }

    /// Writes the body of a request for these URIs.
    pub fn body<'u>(&self, uris: impl Iterator<Item = &'u str>) -> Vec<u8> {
        let mut body = self.before.clone();
        for (nth, uri) in uris.enumerate() {
            if nth > 0 {
                body.push(',');
            }
            // As JSON, which escapes what a URI may have.
            body += &serde_json::Value::from(uri).to_string();
        }
        body += &self.after;
        body.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dialect::Revision;

    #[test]
    fn body_is_that_of_the_same_request_in_http1() {
        let target = HttpTarget::mcp("127.0.0.1:9".parse().unwrap());
        let dialect = Dialect::new(Revision::R2026_07_28, "test");
        let uris = ["demo://a", "demo://\"b"];
        let whole = dialect.listen(&target, 1, &uris);
        let body = ListenRequests::new(&target, &dialect).body(uris.into_iter());
        assert!(whole.ends_with(&body), "{}", String::from_utf8_lossy(&body));
        assert!(body.len() > 100);
    }
}
