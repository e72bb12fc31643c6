//! The newest sequence number of the log, for reads of the latest state.
//!
//! One request is under way at a time. A read that comes meanwhile waits for the next one, which was sent
//! after it came, and shares it with all others that wait.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_actors::shared_log::AskNewest;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::asking::first_end;
use super::names::LogNames;
use super::shared_state::SharedState;

/// The time after which the leader is asked once more.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// The time for which it is asked, a little less than those who want to know wait.
const ASK_MAX: Duration = Duration::from_millis(4_500);

type Newest = Result<u64, String>;

/// Returns the question for the newest sequence number. It must be called within a tokio runtime, in which
/// the requests are sent.
pub fn ask_newest(state: &SharedState) -> AskNewest {
    let state = state.clone();
    let rounds = Rounds::default();
    let runtime = Handle::current();
    Arc::new(move || {
        let state = state.clone();
        let answer = rounds.join(&runtime, move || newest(state.clone()));
        Box::pin(async move {
            match answer.await {
                Ok(newest) => newest,
                Err(_ended) => Err("the connection to the log has ended".to_owned()),
            }
        })
    })
}

/// Asks the leader of the log, again while there is none.
async fn newest(state: SharedState) -> Newest {
    let mut failure = "the leader of its log does not answer".to_owned();
    let asked = async {
        loop {
            match first_end(ASK_AGAIN, || ask_leader(&state)).await {
                Ok(newest) => return newest,
                Err(error) => failure = error,
            }
            sleep(ASK_AGAIN).await;
        }
    };
    match timeout(ASK_MAX, asked).await {
        Ok(newest) => Ok(newest),
        Err(_late) => Err(failure),
    }
}

async fn ask_leader(state: &SharedState) -> Newest {
    let names = LogNames::new(state.namespace());
    let context = state.context().await.map_err(|error| error.to_string())?;
    match context.get_stream(&names.records).await {
        Ok(log) => Ok(log.cached_info().state.last_sequence),
        Err(error) => Err(format!("the leader of its log does not answer: {error}")),
    }
}

/// The requests, one after the other, and the reads that wait for the next one.
#[derive(Clone, Default)]
struct Rounds(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    reads: Vec<oneshot::Sender<Newest>>,
    is_asking: bool,
}

impl Rounds {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the next request, and sends it if none is under way.
    fn join<A, F>(&self, runtime: &Handle, ask: A) -> oneshot::Receiver<Newest>
    where
        A: Fn() -> F + Send + 'static,
        F: Future<Output = Newest> + Send + 'static,
    {
        let (told, answer) = oneshot::channel();
        let mut waiting = self.lock();
        // Before the look, so that the task that is about to end sees it.
        waiting.reads.push(told);
        if !std::mem::replace(&mut waiting.is_asking, true) {
            let rounds = self.clone();
            runtime.spawn(async move {
                while let Some(reads) = rounds.next() {
                    let newest = ask().await;
                    for read in reads {
                        // One that has given up is not there any more.
                        read.send(newest.clone()).ok();
                    }
                }
            });
        }
        answer
    }

    /// Returns the reads that wait; none ends the requests.
    fn next(&self) -> Option<Vec<oneshot::Sender<Newest>>> {
        let mut waiting = self.lock();
        waiting.is_asking = !waiting.reads.is_empty();
        waiting.is_asking.then(|| std::mem::take(&mut waiting.reads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn reads_share_requests_sent_after_they_came() {
        let rounds = Rounds::default();
        let runtime = Handle::current();
        let sent = Arc::new(AtomicU64::new(0));
        let may_answer = Arc::new(Semaphore::new(0));
        let ask = || {
            let sent = sent.clone();
            let may_answer = may_answer.clone();
            move || {
                let number = sent.fetch_add(1, Ordering::Relaxed) + 1;
                let may_answer = may_answer.clone();
                async move {
                    may_answer.acquire().await.unwrap().forget();
                    Ok(number)
                }
            }
        };
        let first = rounds.join(&runtime, ask());
        while sent.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        // These came after the first request was sent, so its answer may be older than they are.
        let others = [rounds.join(&runtime, ask()), rounds.join(&runtime, ask())];
        may_answer.add_permits(2);
        assert_eq!(first.await.unwrap(), Ok(1));
        for other in others {
            assert_eq!(other.await.unwrap(), Ok(2));
        }
        assert_eq!(sent.load(Ordering::Relaxed), 2);
        let last = rounds.join(&runtime, ask());
        may_answer.add_permits(1);
        assert_eq!(last.await.unwrap(), Ok(3));
    }
}
