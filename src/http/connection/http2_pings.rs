//! The pings of an HTTP/2 connection (RFC 9113, section 6.7), by which a client that is gone is noticed.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};
use tracing::debug;

use crate::config::HttpConfig;

/// The pings of one connection.
pub(super) struct Pings {
    pings: PingPong,
    interval: Duration,
    /// The time in which a ping must be answered.
    timeout: Duration,
    /// The time of the next ping, or the end of the time for an answer.
    timer: Pin<Box<Sleep>>,
    awaits_answer: bool,
    /// The time at which the client last sent a request.
    heard: Instant,
}

impl Pings {
    pub(super) fn new(pings: PingPong, config: &HttpConfig) -> Pings {
        Pings {
            pings,
            interval: config.keep_alive,
            timeout: config.h2_ping_timeout,
            timer: Box::pin(sleep(config.keep_alive)),
            awaits_answer: false,
            heard: Instant::now(),
        }
    }

    /// Notes that the client has sent a request.
    pub(super) fn note_heard(&mut self) {
        self.heard = Instant::now();
    }

    /// Sends a ping when its time has come. Ready if the client has not answered one in time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // Before the time is looked at, which may have passed while the thread had other work.
            if self.awaits_answer {
                match self.pings.poll_pong(cx) {
                    Poll::Ready(Ok(_)) => {
                        self.awaits_answer = false;
                        self.note_heard();
                        self.wait(self.interval);
                    }
                    Poll::Ready(Err(error)) => {
                        debug!(%error, "an HTTP/2 connection takes no pings any more");
                        return Poll::Pending;
                    }
                    Poll::Pending => {}
                }
            }
            ready!(self.timer.as_mut().poll(cx));
            if self.awaits_answer {
                return Poll::Ready(());
            }
            let silence = self.heard.elapsed();
            if silence < self.interval {
                self.wait(self.interval - silence);
                continue;
            }
            match self.pings.send_ping(Ping::opaque()) {
                Ok(()) => {
                    self.awaits_answer = true;
                    self.wait(self.timeout);
                }
                Err(error) => {
                    debug!(%error, "a ping could not be sent");
                    self.wait(self.interval);
                }
            }
        }
    }

    fn wait(&mut self, time: Duration) {
        self.timer.as_mut().reset(Instant::now() + time);
    }
}
