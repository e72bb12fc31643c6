//! Removes large bodies that no record names. They are marked first, and removed when no record has named
//! them for longer than a change can take.

use std::collections::HashSet;
use std::time::Duration;

use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{Context, ErrorCode};
use futures_util::TryStreamExt;
use tokio::time::Instant;

use crate::cluster::bodies::NamedBodies;
use crate::cluster::names::LogNames;
use crate::cluster::shared_state::SharedState;
use crate::metrics::JanitorMetrics;
use crate::store::encoding::BodyHash;

/// The longest time between two looks at the bodies.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The bodies that no record named at one time.
struct UnnamedBodies {
    at: Instant,
    /// The newest chunk of that time. Those that were stored since stay.
    through: u64,
    unnamed: HashSet<BodyHash>,
}

/// The removal of bodies that no record names.
pub(super) struct Sweep {
    state: SharedState,
    metrics: JanitorMetrics,
    names: LogNames,
    named: NamedBodies,
    after: Duration,
    next: Instant,
    mark: Option<UnnamedBodies>,
}

impl Sweep {
    pub(super) fn new(state: &SharedState, named: NamedBodies, metrics: JanitorMetrics) -> Sweep {
        Sweep {
            names: LogNames::new(state.namespace()),
            state: state.clone(),
            metrics,
            named,
            after: state.settings().sweep_after,
            next: Instant::now(),
            mark: None,
        }
    }

    /// Looks at the bodies, if it is time.
    pub(super) async fn step(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + LOOK_EVERY.min(self.after);
        let context = self.state.context().await.map_err(|error| error.to_string())?;
        let Some((chunks, through, bytes)) = self.find(&context).await? else {
            self.metrics.chunk_bytes.set(0.0);
            return Ok(());
        };
        self.metrics.chunk_bytes.set(bytes as f64);
        match self.mark.take() {
            Some(mark) if mark.at.elapsed() < self.after => self.mark = Some(mark),
            Some(mark) => self.remove(&context, &chunks, mark).await?,
            None => self.mark = self.unnamed(&context, &chunks, through).await?,
        }
        Ok(())
    }

    /// Finds the stream of the bodies, its newest sequence number and its bytes; none if there is none.
    async fn find(&self, context: &Context) -> Result<Option<(Stream, u64, u64)>, String> {
        match context.get_stream(&self.names.bodies).await {
            Ok(chunks) => {
                let state = &chunks.cached_info().state;
                let through = state.last_sequence;
                let bytes = state.bytes;
                Ok(Some((chunks, through, bytes)))
            }
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(missing)
                    if missing.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Ok(None)
                }
                _ => Err(format!("the bodies are not found: {error}")),
            },
        }
    }

    /// Marks the bodies that no record names; none if there are none.
    async fn unnamed(
        &self,
        context: &Context,
        chunks: &Stream,
        through: u64,
    ) -> Result<Option<UnnamedBodies>, String> {
        // Listed before the records are looked at, so that a body is not named between the two unseen.
        let mut unnamed = HashSet::new();
        let all = chunks.info_with_subjects(self.names.all_chunks()).await;
        let mut all = all.map_err(|error| format!("the bodies are not listed: {error}"))?;
        loop {
            match all.try_next().await {
                Ok(Some((subject, _count))) => unnamed.extend(self.names.body_of(&subject)),
                Ok(None) => break,
                Err(error) => return Err(format!("the bodies are not listed: {error}")),
            }
        }
        let named = self.named_now(context).await?;
        unnamed.retain(|body| !named.contains(body));
        let at = Instant::now();
        Ok((!unnamed.is_empty()).then_some(UnnamedBodies { at, through, unnamed }))
    }

    /// Returns the bodies that the records name which the log has now.
    async fn named_now(&self, context: &Context) -> Result<HashSet<BodyHash>, String> {
        // From the leader, so that no record is missing that was stored before.
        let log = context.get_stream(&self.names.records).await;
        let log = log.map_err(|error| format!("the log is not found: {error}"))?;
        let newest = log.cached_info().state.last_sequence;
        match self.named.as_of(newest) {
            Some(named) => Ok(named),
            None => Err(format!("this node has not heard the log up to {newest} yet")),
        }
    }

    /// Removes the marked bodies that no record names still.
    async fn remove(&self, context: &Context, chunks: &Stream, mark: UnnamedBodies) -> Result<(), String> {
        let named = self.named_now(context).await?;
        for body in mark.unnamed {
            if named.contains(&body) {
                continue;
            }
            // A body that is stored again has newer chunks, which stay.
            let purge = chunks
                .purge()
                .filter(self.names.chunks(&body))
                .sequence(mark.through + 1);
            match purge.await {
                Ok(done) if done.purged > 0 => self.metrics.swept.increment(1),
                Ok(_) => {}
                Err(error) => return Err(format!("a body is not removed: {error}")),
            }
        }
        Ok(())
    }
}
