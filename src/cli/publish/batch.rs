//! `tidings publish --batch`: changes from a file or standard input, one JSON object a line, sent in
//! batches. A service that takes smaller ones refuses the first as a whole, so it is sent again in parts.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::path::Path;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;

use super::{CliError, Publish, Service};
use crate::printable;

/// The lines of one request at first: as many as a service takes that is not configured otherwise
/// (`http.batch_max`).
const LINES_MAX: usize = 1_000;

/// The bytes of one request at first, for the same reason (`http.body_bytes_max`).
const BYTES_MAX: usize = 4 << 20;

/// The limit on the answers to one request, each of which repeats a URI and may name a mistake, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The limit on the refusal of a request, in bytes.
const REFUSAL_BYTES_MAX: usize = 1 << 20;

/// The numbers of lines that were answered.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    sent: usize,
    refused: usize,
}

/// The refusal of a batch that is too large, as far as the next one depends on it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TooLarge {
    /// The lines that the service takes, if it refused their number.
    #[serde(default)]
    lines_max: Option<usize>,
}

/// One answer, as far as the exit code depends on it.
#[derive(Deserialize)]
struct LineAnswer {
    status: u16,
}

/// Groups the lines of `input` into requests.
struct Batches<R> {
    input: R,
    /// The lines that come before the input: they did not fit into a request, or were refused with it.
    left: Cursor<Vec<u8>>,
    lines_max: usize,
    bytes_max: usize,
}

impl<R: BufRead> Batches<R> {
    fn new(input: R) -> Batches<R> {
        Batches {
            input,
            left: Cursor::default(),
            lines_max: LINES_MAX,
            bytes_max: BYTES_MAX,
        }
    }

    /// Returns the next request with the number of its lines; `None` at the end.
    fn next(&mut self) -> std::io::Result<Option<(Vec<u8>, usize)>> {
        let mut body = Vec::new();
        let mut lines = 0;
        while lines < self.lines_max {
            let start = body.len();
            if self.read_line(&mut body)? == 0 {
                break;
            }
            if body[start..].trim_ascii().is_empty() {
                body.truncate(start);
                continue;
            }
            if !body.ends_with(b"\n") {
                body.push(b'\n');
            }
            // A line that is too long on its own is sent all the same: the service names its limit.
            if body.len() > self.bytes_max && lines > 0 {
                let line = body.split_off(start);
                self.put_back(line);
                break;
            }
            lines += 1;
        }
        Ok((lines > 0).then_some((body, lines)))
    }

    fn read_line(&mut self, body: &mut Vec<u8>) -> std::io::Result<usize> {
        match self.left.read_until(b'\n', body)? {
            0 => self.input.read_until(b'\n', body),
            len => Ok(len),
        }
    }

    /// Lets these lines come next.
    fn put_back(&mut self, mut lines: Vec<u8>) {
        let unread = self.left.position() as usize;
        lines.extend_from_slice(&self.left.get_ref()[unread..]);
        self.left = Cursor::new(lines);
    }

    /// Makes smaller requests of the lines of one that was too large, and of those after it.
    fn shrink(&mut self, body: Vec<u8>, lines: usize, refusal: &TooLarge) {
        match refusal.lines_max {
            Some(max) if max < lines => self.lines_max = max.max(1),
            // A limit in bytes, of the service or of a proxy, which does not say how large it is.
            _ => self.bytes_max = body.len() / 2,
        }
        self.put_back(body);
    }
}

impl Publish {
    /// Sends the lines of `file`, or of standard input for "-", and prints the answers.
    pub(super) async fn send_batches(&self, service: &Service, file: &Path) -> Result<(), CliError> {
        let unreadable = |error| CliError::Failed(format!("cannot read {}: {error}", file.display()));
        let input: Box<dyn BufRead> = match file.as_os_str() == "-" {
            true => Box::new(std::io::stdin().lock()),
            false => Box::new(BufReader::new(File::open(file).map_err(unreadable)?)),
        };
        let mut batches = Batches::new(input);
        let mut tally = Tally::default();
        // Reading blocks this thread, which has nothing else to do meanwhile.
        while let Some((body, lines)) = batches.next().map_err(unreadable)? {
            let answer = send_batch(service, body.clone()).await?;
            // Nothing of it was applied, and one line cannot be sent in parts.
            if answer.status() == StatusCode::PAYLOAD_TOO_LARGE && lines > 1 {
                let refusal = service.bytes(answer, REFUSAL_BYTES_MAX).await?;
                // A proxy may answer with HTML.
                let refusal = serde_json::from_slice(&refusal).unwrap_or_default();
                batches.shrink(body, lines, &refusal);
                continue;
            }
            let answer = service.success(answer).await?;
            let answers = service.bytes(answer, ANSWER_BYTES_MAX).await?;
            tally.count(&answers, lines)?;
            let answers = String::from_utf8_lossy(&answers);
            std::io::stdout().write_all(printable::lines(&answers).as_bytes())?;
        }
        match tally {
            Tally { refused: 0, .. } => Ok(()),
            Tally { sent, refused } => Err(CliError::Failed(format!(
                "{refused} of {sent} changes were refused; the answers name the reasons"
            ))),
        }
    }
}

/// Sends a batch and returns the answer, whose status may be an error's.
async fn send_batch(service: &Service, body: Vec<u8>) -> Result<Response, CliError> {
    let request = service
        .request(Method::POST, "/v1/resources")
        .header(CONTENT_TYPE, "application/x-ndjson")
        .body(body);
    service.send(request).await
}

impl Tally {
    /// Counts the answers to a request of this many lines.
    fn count(&mut self, answers: &[u8], lines: usize) -> Result<(), CliError> {
        let mut answered = 0;
        for answer in serde_json::Deserializer::from_slice(answers).into_iter::<LineAnswer>() {
            let answer = answer
                .map_err(|error| CliError::Failed(format!("the answer is not one of a batch: {error}")))?;
            answered += 1;
            self.refused += usize::from(answer.status >= 400);
        }
        self.sent += lines;
        match answered == lines {
            true => Ok(()),
            false => Err(CliError::Failed(format!(
                "{answered} answers came for {lines} lines; read the resources to see which were made"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(input: &[u8]) -> Vec<(Vec<u8>, usize)> {
        let mut batches = Batches::new(input);
        let mut all = Vec::new();
        while let Some(batch) = batches.next().unwrap() {
            all.push(batch);
        }
        all
    }

    #[test]
    fn lines_are_grouped_by_number_and_size() {
        assert_eq!(batches(b"\n \n"), []);
        assert_eq!(batches(b"a\n\nb"), [(b"a\nb\n".to_vec(), 2)]);
        let many = "x\n".repeat(2 * LINES_MAX + 1);
        let lines: Vec<usize> = batches(many.as_bytes())
            .into_iter()
            .map(|(_, lines)| lines)
            .collect();
        assert_eq!(lines, [LINES_MAX, LINES_MAX, 1]);
        // Two lines that do not fit together, and one that does not fit at all.
        let half = "x".repeat(BYTES_MAX / 2 + 1);
        let long = "x".repeat(BYTES_MAX + 1);
        let input = format!("{half}\n{half}\n{long}\nx\n");
        let lens: Vec<usize> = batches(input.as_bytes())
            .into_iter()
            .map(|(body, _)| body.len())
            .collect();
        assert_eq!(lens, [half.len() + 1, half.len() + 1, long.len() + 1, 2]);
    }

    #[test]
    fn refused_request_is_sent_in_parts() {
        let bodies = |batches: &mut Batches<&[u8]>| {
            let mut bodies = Vec::new();
            while let Some((body, _)) = batches.next().unwrap() {
                bodies.push(String::from_utf8(body).unwrap());
            }
            bodies
        };
        let mut batches = Batches::new(&b"1\n2\n3\n4\n5"[..]);
        let (body, lines) = batches.next().unwrap().unwrap();
        batches.shrink(body, lines, &TooLarge { lines_max: Some(2) });
        assert_eq!(bodies(&mut batches), ["1\n2\n", "3\n4\n", "5\n"]);
        // A limit that is not named halves the bytes, until a single line is left.
        let mut batches = Batches::new(&b"1\n2\n3\n4\n5"[..]);
        for expected in ["1\n2\n3\n4\n5\n", "1\n2\n", "1\n"] {
            let (body, lines) = batches.next().unwrap().unwrap();
            assert_eq!(String::from_utf8_lossy(&body), expected);
            batches.shrink(body, lines, &TooLarge::default());
        }
        assert_eq!(bodies(&mut batches).concat(), "1\n2\n3\n4\n5\n");
        // A limit that the request was within says nothing, so its bytes were too many.
        let mut batches = Batches::new(&b"1\n2"[..]);
        let (body, lines) = batches.next().unwrap().unwrap();
        batches.shrink(body, lines, &TooLarge { lines_max: Some(9) });
        assert_eq!(bodies(&mut batches), ["1\n", "2\n"]);
    }

    #[test]
    fn refused_lines_are_counted() {
        let answers = br#"{"uri":"a:b","status":201,"etag":"v1-2","changed":true}
{"uri":null,"status":400,"error":"no"}
"#;
        let mut tally = Tally::default();
        tally.count(answers, 2).unwrap();
        assert_eq!(tally, Tally { sent: 2, refused: 1 });
        assert!(tally.count(answers, 3).is_err());
        assert!(tally.count(b"<html>", 1).is_err());
    }
}
