//! Requests that are sent again while no answer comes.
//!
//! A request that comes while a log has no leader, or to a server that hangs, is never answered. A node that
//! waits for its timeout knows of the next leader up to a whole timeout too late.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// Sends a request, and another one beside it after each `pause`, until the first of them ends. Each request
/// has a timeout of its own, so there are few at a time.
pub(super) async fn first_end<F: Future>(pause: Duration, mut ask: impl FnMut() -> F) -> F::Output {
    let mut asked = FuturesUnordered::new();
    loop {
        // The requests before are kept: the answer to one of them may only be slow.
        asked.push(ask());
        tokio::select! {
            Some(answer) = asked.next() => return answer,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_that_is_answered_ends_those_before() {
        const PAUSE: Duration = Duration::from_millis(400);
        let begin = tokio::time::Instant::now();
        let mut asked = 0;
        let answer = first_end(PAUSE, || {
            asked += 1;
            let number = asked;
            async move {
                // Only the third is answered in time.
                let time = if number == 3 { PAUSE / 4 } else { 10 * PAUSE };
                tokio::time::sleep(time).await;
                number
            }
        });
        assert_eq!(answer.await, 3);
        assert_eq!(begin.elapsed(), 2 * PAUSE + PAUSE / 4);
    }
}
