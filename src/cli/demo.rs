//! `tidings demo`: two ways to follow a resource, shown on a bus of its own.
//!
//! A publisher registers `demo://story` and updates it twice. A subscriber that came after the registration
//! is sent v2 and v3; a client that polls sees v1, v2 and v3. The two sides wait for each other's messages
//! and never for time, so the output is always the same.

use std::io::Write;
use std::time::Duration;

use clap::Subcommand;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{CliError, block_on};
use crate::{
    Builder, Bus, OutboxEntry, OutboxReader, Resource, ResourceUri, Session, SessionOptions, SubscriberKind,
};

const STORY: &str = "demo://story";

/// The bodies that the publisher writes: one registration and two updates.
const CHAPTERS: [&str; 3] = [
    "Once upon a time,",
    "somebody changed something,",
    "and every client was told.",
];

/// The way to follow the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub(super) enum Story {
    /// A subscriber is sent the changes after its subscription: v2 and v3
    Push,
    /// A client polls and compares its etag: v1, v2 and v3
    Poll,
}

impl Story {
    pub(super) fn run(self) -> Result<(), CliError> {
        block_on(self.follow(Bus::builder(), &mut std::io::stdout()))
    }

    /// Runs the demo on a bus of `builder` and writes its log to `out`.
    async fn follow(self, builder: Builder, out: &mut impl Write) -> Result<(), CliError> {
        let bus = builder.start().map_err(CliError::failed)?;
        // At most one step is in flight: the publisher writes on request and confirms each write.
        let (ask, asked) = channel(1);
        let (written, mut writes) = channel(1);
        let client = async {
            let turns = Turns {
                ask,
                writes: &mut writes,
            };
            match self {
                Story::Push => push(&bus, turns, out).await,
                Story::Poll => poll(&bus, turns, out).await,
            }
        };
        let ended = tokio::try_join!(publish(&bus, asked, written), client);
        let last = bus.etag(STORY).await.map_err(CliError::failed);
        bus.shutdown(Duration::from_secs(5)).await;
        ended?;
        writeln!(out, "final: {STORY} {}", last?)?;
        Ok(())
    }
}

/// The client's side of the conversation with the publisher.
struct Turns<'w> {
    ask: Sender<()>,
    writes: &'w mut Receiver<()>,
}

impl Turns<'_> {
    /// Lets the publisher write its next chapter. Returns false after the last one.
    async fn next(&mut self) -> bool {
        // The publisher drops its channels after its last chapter.
        self.ask.send(()).await.is_ok() && self.writes.recv().await.is_some()
    }
}

async fn publish(bus: &Bus, mut asked: Receiver<()>, written: Sender<()>) -> Result<(), CliError> {
    for (index, chapter) in CHAPTERS.into_iter().enumerate() {
        if asked.recv().await.is_none() {
            break;
        }
        let resource = Resource::text(STORY, chapter).map_err(CliError::failed)?;
        let outcome = match index {
            0 => bus.register(resource).await,
            _ => bus.update(resource).await,
        };
        outcome.map_err(CliError::failed)?;
        if written.send(()).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Subscribes after the registration and logs the notices.
async fn push(bus: &Bus, mut turns: Turns<'_>, out: &mut impl Write) -> Result<(), CliError> {
    turns.next().await;
    let (session, mut reader) = subscribe(bus).await?;
    while turns.next().await {
        let mut entries = Vec::new();
        while entries.is_empty() {
            reader.drain(&mut entries).await;
            if session.ended().is_some() {
                return Err(CliError::failed("the bus stopped in the middle of the story"));
            }
        }
        for entry in entries {
            if let OutboxEntry::Updated(notice) = entry {
                writeln!(out, "push: {} changed: {}", notice.uri, notice.etag)?;
            }
        }
    }
    session.end();
    Ok(())
}

async fn subscribe(bus: &Bus) -> Result<(Session, OutboxReader), CliError> {
    let uri = ResourceUri::new(STORY).map_err(CliError::failed)?;
    let options = SessionOptions::new(SubscriberKind::Local, "demo push");
    let session = bus.open(options).await.map_err(CliError::failed)?;
    for answer in session.subscribe(vec![uri]).await.map_err(CliError::failed)? {
        answer.map_err(CliError::failed)?;
    }
    let reader = session.reader();
    Ok((session, reader))
}

/// Compares the etag after every write and logs a new one.
async fn poll(bus: &Bus, mut turns: Turns<'_>, out: &mut impl Write) -> Result<(), CliError> {
    let mut held: Option<String> = None;
    while turns.next().await {
        if bus
            .is_stale(STORY, held.as_deref())
            .await
            .map_err(CliError::failed)?
        {
            let etag = bus.etag(STORY).await.map_err(CliError::failed)?.to_string();
            writeln!(out, "poll: {STORY} changed: {etag}")?;
            held = Some(etag);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Returns the log of a demo in which each change is a second after the last.
    async fn log_of(story: Story) -> String {
        let now = AtomicU64::new(1_764_000_000);
        let builder = Bus::builder().clock(move || now.fetch_add(1, Ordering::Relaxed));
        let mut out = Vec::new();
        let following = story.follow(builder, &mut out);
        tokio::time::timeout(Duration::from_secs(10), following)
            .await
            .expect("the demo ends")
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn push_logs_changes_after_the_subscription() {
        assert_eq!(
            log_of(Story::Push).await,
            "push: demo://story changed: v2-1764000001\n\
             push: demo://story changed: v3-1764000002\n\
             final: demo://story v3-1764000002\n"
        );
    }

    #[tokio::test]
    async fn poll_logs_every_version() {
        assert_eq!(
            log_of(Story::Poll).await,
            "poll: demo://story changed: v1-1764000000\n\
             poll: demo://story changed: v2-1764000001\n\
             poll: demo://story changed: v3-1764000002\n\
             final: demo://story v3-1764000002\n"
        );
    }
}
