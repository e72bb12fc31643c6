//! The error output of a program that is a server, copied line by line to that of this process.
//!
//! Its lines are cleaned of everything that steers a terminal, and marked: no line can pass for one of ours,
//! or for a command to the runner of a build.

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use crate::printable;

/// Precedes each line.
const MARK: &str = "server: ";

/// A line that is longer becomes several.
const LINE_BYTES_MAX: u64 = 8 << 10;

/// The time for the rest of the output. A program may leave others behind that keep it open.
const REST_MAX: Duration = Duration::from_secs(1);

/// The copying of one program's error output, which goes on until that output ends.
pub(crate) struct ErrorOutput(JoinHandle<()>);

impl ErrorOutput {
    /// Begins to copy.
    pub(crate) fn copy(from: ChildStderr) -> ErrorOutput {
        ErrorOutput(tokio::spawn(copy_lines(from, tokio::io::stderr())))
    }

    /// Waits until everything is copied, for a second at most. For a program that has ended, whose last lines
    /// tell why.
    pub(crate) async fn finish(&mut self) {
        if timeout(REST_MAX, &mut self.0).await.is_err() {
            tracing::debug!("another process keeps the error output of a program open");
        }
    }
}

/// Copies lines until the input ends. Goes on without a reader, since a full pipe would stop the program.
async fn copy_lines(input: impl AsyncRead + Unpin, mut output: impl AsyncWrite + Unpin) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut input).take(LINE_BYTES_MAX);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let copied = output.write_all(marked(&line).as_bytes()).await;
        if let Err(error) = copied.and(output.flush().await) {
            tracing::debug!(%error, "a line of a server's program could not be printed");
        }
    }
}

/// Returns a line as it is printed: without colours and other sequences, and on one line.
fn marked(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = anstream::adapter::strip_str(text.trim_end_matches(['\n', '\r'])).to_string();
    // GitHub's runner obeys this prefix anywhere in a line.
    let text = printable::line(&text).replace("##[", "## [");
    format!("{MARK}{text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn copied(input: &[u8]) -> String {
        let mut output = Vec::new();
        copy_lines(input, &mut output).await;
        String::from_utf8(output).unwrap()
    }

    #[tokio::test]
    async fn lines_are_cleaned_and_marked() {
        for (input, expected) in [
            ("", ""),
            ("one\ntwo", "server: one\nserver: two\n"),
            ("::error::FAKE\r\n", "server: ::error::FAKE\n"),
            ("a ##[error]b\n", "server: a ## [error]b\n"),
            ("\u{1b}[32mINFO\u{1b}[0m ready\n", "server: INFO ready\n"),
            ("\u{1b}]0;title\u{7}x\u{202e}y\u{9b}2Jz\n", "server: x y 2Jz\n"),
            ("10 %\r50 %\n", "server: 10 % 50 %\n"),
        ] {
            assert_eq!(copied(input.as_bytes()).await, expected, "{input:?}");
        }
        assert_eq!(copied(b"\xff\n").await, "server: \u{fffd}\n");
    }

    #[tokio::test]
    async fn long_line_becomes_several() {
        let text = copied("x".repeat(20_000).as_bytes()).await;
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.starts_with(MARK)), "{text}");
        assert_eq!(text.matches('x').count(), 20_000);
    }
}
