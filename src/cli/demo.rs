//! `tidings demo`: two ways to follow a resource, told on a bus of its own: who does what, when, and with
//! which content.
//!
//! A publisher registers `demo://story`, updates it twice, and writes the same text once more. A subscriber
//! that came after the registration is sent v2 and v3; a client that polls sees v1, v2 and v3. The two sides
//! wait for each other's messages and never for time, so the pauses change nothing of the story.

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{CliError, block_on};
use crate::{
    Body, Builder, Bus, OutboxEntry, OutboxReader, Resource, ResourceUri, Session, SessionOptions, Snapshot,
    SubscriberKind,
};

const STORY: &str = "demo://story";

/// The bodies that the publisher writes; the last one is no change.
const CHAPTERS: [&str; 4] = ["first body", "second body", "third body", "third body"];

/// The pause before each line, so that it can be read.
const PAUSE: Duration = Duration::from_millis(900);

/// The time that the bus has to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The arguments of `tidings demo`.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// The way to follow the resource; both, one after the other, unless one is named
    #[arg(value_enum)]
    way: Option<Follow>,
    /// Make no pauses
    #[arg(short, long)]
    fast: bool,
}

/// The way to follow the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Follow {
    /// A subscriber is sent the changes after its subscription: v2 and v3
    Push,
    /// A client polls and compares its etag: v1, v2 and v3
    Poll,
}

impl Demo {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let pause = if self.fast { Duration::ZERO } else { PAUSE };
        let mut out = std::io::stdout();
        let ways: &[Follow] = match &self.way {
            Some(way) => std::slice::from_ref(way),
            None => &[Follow::Push, Follow::Poll],
        };
        for way in ways {
            block_on(way.follow(Bus::builder(), pause, &mut out))?;
        }
        Ok(())
    }
}

impl Follow {
    fn title(self) -> &'static str {
        match self {
            Follow::Push => "PUSH: a client that subscribes is told of each change",
            Follow::Poll => "POLL: a client that ignores notifications compares its etag",
        }
    }

    /// Runs the demo on a bus of `builder` and writes the story to `out`.
    async fn follow(self, builder: Builder, pause: Duration, out: &mut impl Write) -> Result<(), CliError> {
        let bus = builder.start().map_err(CliError::failed)?;
        let teller = Teller::new(pause, out);
        teller.print(self.title())?;
        // At most one step is in flight: the publisher writes on request and confirms each write.
        let (ask, asked) = channel(1);
        let (written, mut writes) = channel(1);
        let client = async {
            let turns = Turns {
                ask,
                writes: &mut writes,
            };
            match self {
                Follow::Push => push(&bus, turns, &teller).await,
                Follow::Poll => poll(&bus, turns, &teller).await,
            }
        };
        let ended = tokio::try_join!(publish(&bus, asked, written, &teller), client);
        let last = bus.etag(STORY).await.map_err(CliError::failed);
        bus.shutdown(STOP_TIMEOUT).await;
        ended?;
        teller.print(&format!("final: {STORY} {}\n", last?))
    }
}

/// Writes the lines of the story, each with its time.
struct Teller<'o, W> {
    begun: Instant,
    pause: Duration,
    out: RefCell<&'o mut W>,
}

impl<'o, W: Write> Teller<'o, W> {
    fn new(pause: Duration, out: &'o mut W) -> Teller<'o, W> {
        Teller {
            begun: Instant::now(),
            pause,
            out: RefCell::new(out),
        }
    }

    /// Tells what a part does, after a pause.
    async fn tell(&self, part: &str, deed: &str) -> Result<(), CliError> {
        tokio::time::sleep(self.pause).await;
        let seconds = self.begun.elapsed().as_secs_f64();
        self.print(&format!("{seconds:>5.1}s  {part:<10}  {deed}"))
    }

    fn print(&self, line: &str) -> Result<(), CliError> {
        let mut out = self.out.borrow_mut();
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }
}

/// A write of the publisher.
struct Done {
    changed: bool,
}

/// The client's side of the conversation with the publisher.
struct Turns<'w> {
    ask: Sender<()>,
    writes: &'w mut Receiver<Done>,
}

impl Turns<'_> {
    /// Lets the publisher write its next chapter. Returns nothing after the last one.
    async fn next(&mut self) -> Option<Done> {
        // The publisher drops its channels after its last chapter.
        self.ask.send(()).await.ok()?;
        self.writes.recv().await
    }
}

async fn publish(
    bus: &Bus,
    mut asked: Receiver<()>,
    written: Sender<Done>,
    teller: &Teller<'_, impl Write>,
) -> Result<(), CliError> {
    for (index, chapter) in CHAPTERS.into_iter().enumerate() {
        if asked.recv().await.is_none() {
            break;
        }
        let resource = Resource::text(STORY, chapter).map_err(CliError::failed)?;
        let (deed, outcome) = match index {
            0 => ("registers", bus.register(resource).await),
            _ => ("writes", bus.update(resource).await),
        };
        let outcome = outcome.map_err(CliError::failed)?;
        let version = outcome.etag.version;
        let effect = match outcome.changed {
            true => format!("v{version} → '{chapter}'"),
            false => format!("'{chapter}' again: it stays v{version}, no client is told"),
        };
        teller.tell("publisher", &format!("{deed} {effect}")).await?;
        let changed = outcome.changed;
        if written.send(Done { changed }).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Subscribes after the registration, and reads at each notification.
async fn push(bus: &Bus, mut turns: Turns<'_>, teller: &Teller<'_, impl Write>) -> Result<(), CliError> {
    turns.next().await;
    let (session, mut reader) = subscribe(bus).await?;
    teller
        .tell("subscriber", &format!("subscribes to {STORY}"))
        .await?;
    while let Some(written) = turns.next().await {
        // No notification comes for a write that changed nothing, so none is waited for.
        if written.changed {
            let etag = notification(&session, &mut reader).await?;
            // A notification carries no body, so the client reads it.
            teller.tell("subscriber", &format!("is told {etag}")).await?;
            read(bus, "subscriber", teller).await?;
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

/// Waits for a notification of the resource, and returns its etag.
async fn notification(session: &Session, reader: &mut OutboxReader) -> Result<String, CliError> {
    loop {
        let mut entries = Vec::new();
        reader.drain(&mut entries).await;
        if session.ended().is_some() {
            return Err(CliError::failed("the bus stopped in the middle of the story"));
        }
        for entry in entries {
            if let OutboxEntry::Updated(notice) = entry {
                return Ok(notice.etag.to_string());
            }
        }
    }
}

/// Reads the resource and tells its content.
async fn read(bus: &Bus, part: &str, teller: &Teller<'_, impl Write>) -> Result<String, CliError> {
    let Snapshot { body, etag, .. } = bus.read(STORY).await.map_err(CliError::failed)?;
    let text = match &body {
        Body::Text(text) => text.as_ref(),
        Body::Blob(_) => "",
    };
    teller
        .tell(part, &format!("reads v{} → '{text}'", etag.version))
        .await?;
    Ok(etag.to_string())
}

/// Compares the etag after every write, and reads when it is another one.
async fn poll(bus: &Bus, mut turns: Turns<'_>, teller: &Teller<'_, impl Write>) -> Result<(), CliError> {
    let mut held: Option<String> = None;
    while turns.next().await.is_some() {
        let shown = held.as_deref().unwrap_or("none");
        let stale = bus.is_stale(STORY, held.as_deref()).await;
        match stale.map_err(CliError::failed)? {
            true => {
                teller
                    .tell("poller", &format!("asks with etag {shown}: stale"))
                    .await?;
                held = Some(read(bus, "poller", teller).await?);
            }
            false => {
                teller
                    .tell("poller", &format!("asks with etag {shown}: current"))
                    .await?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Returns the story without its times; each change is a second after the last one.
    async fn story(way: Follow) -> Vec<String> {
        let now = AtomicU64::new(1_764_000_000);
        let builder = Bus::builder().clock(move || now.fetch_add(1, Ordering::Relaxed));
        let mut out = Vec::new();
        let following = way.follow(builder, Duration::ZERO, &mut out);
        tokio::time::timeout(Duration::from_secs(10), following)
            .await
            .expect("the demo ends")
            .unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(without_time).collect()
    }

    fn without_time(line: &str) -> String {
        match line.split_once("s  ") {
            Some((_, rest)) => rest.to_owned(),
            None => line.to_owned(),
        }
    }

    #[tokio::test]
    async fn subscriber_is_told_what_follows_its_arrival() {
        let told = story(Follow::Push).await;
        assert_eq!(
            &told[1..told.len() - 1],
            [
                "publisher   registers v1 → 'first body'",
                "subscriber  subscribes to demo://story",
                "publisher   writes v2 → 'second body'",
                "subscriber  is told v2-1764000001",
                "subscriber  reads v2 → 'second body'",
                "publisher   writes v3 → 'third body'",
                "subscriber  is told v3-1764000002",
                "subscriber  reads v3 → 'third body'",
                "publisher   writes 'third body' again: it stays v3, no client is told",
                "final: demo://story v3-1764000002",
            ]
        );
    }

    #[tokio::test]
    async fn poller_reads_every_version() {
        let told = story(Follow::Poll).await;
        assert_eq!(
            &told[1..told.len() - 1],
            [
                "publisher   registers v1 → 'first body'",
                "poller      asks with etag none: stale",
                "poller      reads v1 → 'first body'",
                "publisher   writes v2 → 'second body'",
                "poller      asks with etag v1-1764000000: stale",
                "poller      reads v2 → 'second body'",
                "publisher   writes v3 → 'third body'",
                "poller      asks with etag v2-1764000001: stale",
                "poller      reads v3 → 'third body'",
                "publisher   writes 'third body' again: it stays v3, no client is told",
                "poller      asks with etag v3-1764000002: current",
                "final: demo://story v3-1764000002",
            ]
        );
    }
}
