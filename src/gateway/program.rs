//! A server that is a program: its process, and the lines that it writes.
//!
//! rmcp's transport of a program drops every line that is no message, and tells no one. Here they are
//! counted, and a program that writes nothing else any more is ended.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::{AsyncRwTransport, DEFAULT_MAX_LINE_LENGTH};
use tokio::io::{AsyncBufRead, AsyncRead, BufReader, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::strays::{Stray, StrayLines};
use crate::metrics::UpstreamMetrics;

/// The time for which a program may go on after the end of its input, and again after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// A server that is a program.
pub(super) struct ServerProgram {
    /// None once it has ended.
    child: Option<Box<dyn ChildWrapper>>,
    transport: AsyncRwTransport<RoleClient, ServerLines<ChildStdout>, ChildStdin>,
    strays: Arc<StrayLines>,
}

impl ServerProgram {
    /// Starts it. Returns it with its error output.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(
        mut command: CommandWrap,
        metrics: Arc<UpstreamMetrics>,
    ) -> io::Result<(ServerProgram, Option<ChildStderr>)> {
        command
            .command_mut()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin().take(), child.stdout().take()) else {
            return Err(io::Error::other("the program has no input or no output"));
        };
        let errors = child.stderr().take();
        let strays = Arc::new(StrayLines::new(metrics));
        let lines = ServerLines::new(output, strays.clone());
        let program = ServerProgram {
            child: Some(child),
            transport: AsyncRwTransport::new(lines, input),
            strays,
        };
        Ok((program, errors))
    }

    /// The id of its process.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }
}

impl Transport<RoleClient> for ServerProgram {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.transport.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.transport.receive().await?;
        self.strays.was_message();
        Some(message)
    }

    /// Ends the program: by the end of its input, by SIGTERM, and by SIGKILL.
    async fn close(&mut self) -> Result<(), io::Error> {
        self.transport.close().await?;
        // It stays here until it has ended, so that it is killed even if this is given up.
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        if tokio::time::timeout(END_TIMEOUT, child.wait()).await.is_err() {
            #[cfg(unix)]
            child.signal(nix::sys::signal::Signal::SIGTERM as i32)?;
            if tokio::time::timeout(END_TIMEOUT, child.wait()).await.is_err() {
                Box::into_pin(child.kill()).await?;
            }
        }
        self.child = None;
        Ok(())
    }
}

impl Drop for ServerProgram {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Waited for, too: it would stay as a zombie otherwise.
            tokio::spawn(async move {
                if let Err(error) = Box::into_pin(child.kill()).await {
                    tracing::warn!(%error, "the program of a server could not be killed");
                }
            });
        }
    }
}

/// The output of a program, of which at most one line is handed over at once: when the next one is asked for,
/// it is known whether the last one was a message. Ends as soon as too many were none.
struct ServerLines<R> {
    output: BufReader<R>,
    strays: Arc<StrayLines>,
    /// Bytes of the present line.
    length: usize,
    /// True while the present line has no characters.
    is_blank: bool,
}

impl<R: AsyncRead> ServerLines<R> {
    fn new(output: R, strays: Arc<StrayLines>) -> ServerLines<R> {
        ServerLines {
            output: BufReader::new(output),
            strays,
            length: 0,
            is_blank: true,
        }
    }

    fn end_line(&mut self) {
        if !self.is_blank {
            self.strays
                .handed_over(match self.length > DEFAULT_MAX_LINE_LENGTH {
                    true => Stray::TooLong,
                    false => Stray::Malformed,
                });
        }
        self.length = 0;
        self.is_blank = true;
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ServerLines<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.strays.are_too_many() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let available = ready!(Pin::new(&mut this.output).poll_fill_buf(context))?;
            // rmcp drops a line that is too long as well, but its search for the end of it takes longer.
            let is_dropped = this.length > DEFAULT_MAX_LINE_LENGTH;
            let end = memchr::memchr(b'\n', available);
            if is_dropped && end.is_none() && !available.is_empty() {
                let count = available.len();
                this.length = this.length.saturating_add(count);
                Pin::new(&mut this.output).consume(count);
                continue;
            }
            let text = match end {
                // The end of a line that is too long is handed over, since rmcp waits for it.
                Some(end) if is_dropped => &available[end..=end],
                Some(end) => &available[..=end],
                None => available,
            };
            let count = text.len().min(buffer.remaining());
            let text = &text[..count];
            buffer.put_slice(text);
            let consumed = match end {
                Some(end) if is_dropped => end + count,
                _ => count,
            };
            this.length = this.length.saturating_add(consumed);
            this.is_blank &= text.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
            let is_end = text.ends_with(b"\n");
            Pin::new(&mut this.output).consume(consumed);
            if is_end {
                this.end_line();
            }
            return Poll::Ready(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(text: &str) -> (String, usize) {
        let strays = Arc::new(StrayLines::new(Arc::new(UpstreamMetrics::new("server"))));
        let mut lines = ServerLines::new(text.as_bytes(), strays);
        let mut reads = 0;
        let mut all = String::new();
        loop {
            let mut part = [0; 4096];
            match lines.read(&mut part).await.unwrap() {
                0 => return (all, reads),
                count => all.push_str(std::str::from_utf8(&part[..count]).unwrap()),
            }
            reads += 1;
        }
    }

    #[tokio::test]
    async fn lines_are_handed_over_one_by_one() {
        assert_eq!(read("").await, (String::new(), 0));
        assert_eq!(read("a\nb\r\n\nc").await, ("a\nb\r\n\nc".to_owned(), 4));
        // Blank lines are no strays.
        let blank = "\n\r\n".repeat(200);
        assert_eq!(read(&blank).await.0, blank);
    }

    #[tokio::test]
    async fn output_without_messages_ends() {
        let (text, reads) = read(&"x\n".repeat(200)).await;
        assert_eq!((text.len(), reads), (200, 100));
    }

    #[tokio::test]
    async fn end_of_a_long_line_alone_is_handed_over() {
        let long = "x".repeat(DEFAULT_MAX_LINE_LENGTH * 2);
        let (text, _) = read(&format!("{long}\nb\n")).await;
        assert!(text.ends_with("x\nb\n"));
        let kept = text.len() - "\nb\n".len();
        assert!(
            kept > DEFAULT_MAX_LINE_LENGTH && kept < DEFAULT_MAX_LINE_LENGTH + (16 << 10),
            "{kept}"
        );
    }
}
