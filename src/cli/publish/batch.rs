//! `tidings publish --batch`: changes from a file or standard input, one JSON object a line, sent in
//! batches.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;

use super::{CliError, Publish, Service};
use crate::printable;

/// The lines of one request: as many as a service takes that is not configured otherwise (`http.batch_max`).
const LINES_MAX: usize = 1_000;

/// The bytes of one request, for the same reason (`http.body_bytes_max`).
const BYTES_MAX: usize = 4 << 20;

/// The limit on the answers to one request, each of which repeats a URI and may name a mistake, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The numbers of lines that were answered.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    sent: usize,
    refused: usize,
}

/// One answer, as far as the exit code depends on it.
#[derive(Deserialize)]
struct LineAnswer {
    status: u16,
}

/// Groups the lines of `input` into requests.
struct Batches<R> {
    input: R,
    /// The line that did not fit into the request before.
    left: Vec<u8>,
}

impl<R: BufRead> Batches<R> {
    /// Returns the next request with the number of its lines; `None` at the end.
    fn next(&mut self) -> std::io::Result<Option<(Vec<u8>, usize)>> {
        let mut body = std::mem::take(&mut self.left);
        let mut lines = usize::from(!body.is_empty());
        while lines < LINES_MAX {
            let start = body.len();
            if self.input.read_until(b'\n', &mut body)? == 0 {
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
            if body.len() > BYTES_MAX && lines > 0 {
                self.left = body.split_off(start);
                break;
            }
            lines += 1;
        }
        Ok((lines > 0).then_some((body, lines)))
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
        let mut batches = Batches {
            input,
            left: Vec::new(),
        };
        let mut tally = Tally::default();
        // Reading blocks this thread, which has nothing else to do meanwhile.
        while let Some((body, lines)) = batches.next().map_err(unreadable)? {
            let answers = send_batch(service, body).await?;
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

async fn send_batch(service: &Service, body: Vec<u8>) -> Result<Vec<u8>, CliError> {
    let request = service
        .request(Method::POST, "/v1/resources")
        .header(CONTENT_TYPE, "application/x-ndjson")
        .body(body);
    let answer = service.ask(request).await?;
    service.bytes(answer, ANSWER_BYTES_MAX).await
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
        let mut batches = Batches {
            input,
            left: Vec::new(),
        };
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
