//! The error output of a program that is a server, copied line by line to that of this process.
//!
//! Its lines are cleaned of everything that steers a terminal, and marked: no line can pass for one of ours,
//! or for a command to the runner of a build.

use metrics::Counter;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use crate::printable;

/// The name that precedes each line, of the only server of this process.
const SERVER: &str = "server";

/// A line that is longer becomes several.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Lines that are copied within a second where there is a limit. Of those beyond, the last one is copied,
/// with the number of the others: a program that fails often gives the reason at the end.
const LINES_MAX: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);

/// The time for the rest of the output. A program may leave others behind that keep it open.
const REST_MAX: Duration = Duration::from_secs(1);

/// The copying of one program's error output, which goes on until that output ends.
pub(crate) struct ErrorOutput(JoinHandle<()>);

impl ErrorOutput {
    /// Begins to copy every line.
    pub(crate) fn copy(from: ChildStderr) -> ErrorOutput {
        let copied = CopiedLines::new(tokio::io::stderr(), SERVER, None);
        ErrorOutput(tokio::spawn(copy_lines(from, copied)))
    }

    /// Begins to copy at most 100 lines a second, for a program that runs for as long as a service. Lines
    /// that are left out are counted, and `name` precedes each.
    #[cfg(feature = "service")]
    pub(crate) fn copy_limited(from: ChildStderr, name: &str, left_out: Counter) -> ErrorOutput {
        let copied = CopiedLines::new(tokio::io::stderr(), name, Some(left_out));
        ErrorOutput(tokio::spawn(copy_lines(from, copied)))
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
async fn copy_lines<W: AsyncWrite + Unpin>(input: impl AsyncRead + Unpin, mut copied: CopiedLines<W>) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        let mut limited = (&mut input).take((LINE_BYTES_MAX - line.len()) as u64);
        let read = tokio::select! {
            read = limited.read_until(b'\n', &mut line) => read,
            // A part of the next line that was read already stays in `line`.
            () = sleep_until(copied.began + SECOND), if copied.last.is_some() => {
                copied.begin_second().await;
                continue;
            }
        };
        let is_end = matches!(read, Ok(0) | Err(_));
        if !line.is_empty() {
            copied.put(&line).await;
            line.clear();
        }
        if is_end {
            copied.begin_second().await;
            return;
        }
    }
}

/// The copy of an error output.
struct CopiedLines<W> {
    output: W,
    /// Precedes each line.
    name: String,
    /// The beginning of the present second.
    began: Instant,
    /// Lines that were copied in it.
    count: u32,
    /// The last of the lines beyond, and the number of those before it.
    last: Option<Vec<u8>>,
    left_out: u64,
    /// Counts the lines that are left out; none where all are copied.
    all_left_out: Option<Counter>,
}

impl<W: AsyncWrite + Unpin> CopiedLines<W> {
    fn new(output: W, name: &str, all_left_out: Option<Counter>) -> CopiedLines<W> {
        CopiedLines {
            output,
            name: name.to_owned(),
            began: Instant::now(),
            count: 0,
            last: None,
            left_out: 0,
            all_left_out,
        }
    }

    /// Copies a line, or keeps it if there are too many.
    async fn put(&mut self, line: &[u8]) {
        if self.began.elapsed() >= SECOND {
            self.begin_second().await;
        }
        match &self.all_left_out {
            Some(all) if self.count >= LINES_MAX => {
                if self.last.replace(line.to_vec()).is_some() {
                    self.left_out += 1;
                    all.increment(1);
                }
            }
            _ => {
                self.count = self.count.saturating_add(1);
                self.print(&marked(&self.name, line)).await;
            }
        }
    }

    /// Begins the next second: with what was kept of the last one.
    async fn begin_second(&mut self) {
        if let Some(last) = self.last.take() {
            if self.left_out > 0 {
                let text = format!("{}: ({} lines were left out)\n", self.name, self.left_out);
                self.print(&text).await;
            }
            self.print(&marked(&self.name, &last)).await;
        }
        self.left_out = 0;
        self.count = 0;
        self.began = Instant::now();
    }

    async fn print(&mut self, text: &str) {
        let printed = self.output.write_all(text.as_bytes()).await;
        if let Err(error) = printed.and(self.output.flush().await) {
            tracing::debug!(%error, "a line of a server's program could not be printed");
        }
    }
}

/// Returns a line as it is printed: without colours and other sequences, and on one line.
fn marked(name: &str, line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = anstream::adapter::strip_str(text.trim_end_matches(['\n', '\r'])).to_string();
    // GitHub's runner obeys this prefix anywhere in a line.
    let text = printable::line(&text).replace("##[", "## [");
    format!("{name}: {text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn copied(input: &[u8]) -> String {
        let mut output = Vec::new();
        copy_lines(
            input,
            CopiedLines::new(&mut output, SERVER, Some(Counter::noop())),
        )
        .await;
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
        assert_eq!(text.lines().count(), 5);
        assert!(text.lines().all(|line| line.starts_with("server: ")), "{text}");
        assert_eq!(text.matches('x').count(), 20_000);
    }

    #[tokio::test(start_paused = true)]
    async fn flood_is_a_hundred_lines_and_the_last() {
        let flood: String = (0..1_000).map(|number| format!("{number}\n")).collect();
        let text = copied(flood.as_bytes()).await;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 102);
        assert_eq!(
            lines[99..],
            ["server: 99", "server: (899 lines were left out)", "server: 999"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn kept_line_is_copied_after_a_second() {
        let (mut program, input) = tokio::io::duplex(1 << 20);
        let (output, mut reader) = tokio::io::duplex(1 << 20);
        let copying = tokio::spawn(copy_lines(
            input,
            CopiedLines::new(output, SERVER, Some(Counter::noop())),
        ));
        program.write_all(&b"x\n".repeat(150)).await.unwrap();
        program.write_all(b"last\nbegun").await.unwrap();
        let mut text = vec![0; 100 * "server: x\n".len()];
        reader.read_exact(&mut text).await.unwrap();
        // The program goes on, and is silent.
        let rest = "server: (50 lines were left out)\nserver: last\n";
        let mut text = vec![0; rest.len()];
        reader.read_exact(&mut text).await.unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), rest);
        drop(program);
        copying.await.unwrap();
        let mut end = String::new();
        reader.read_to_string(&mut end).await.unwrap();
        assert_eq!(end, "server: begun\n");
    }
}
