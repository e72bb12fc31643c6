//! The check for notices of a resource that did not change.

use tokio::time::{Instant, sleep_until};

use super::catalog::Check;
use super::connection::Aborted;
use super::run::{CheckRun, Problems};
use super::transcript::Received;

/// The verdict about a subscribed resource before it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// A notice of a change can be told from others.
    Kept,
    /// Notices come all the time, so none of them says that something changed.
    Flooded,
}

impl CheckRun<'_> {
    /// Listens to the subscription to `uri`, which began after the position `start`, and checks that no
    /// notice comes while the content stays the same.
    pub(super) async fn check_spurious_updates(
        &mut self,
        uri: &str,
        start: usize,
        is_notice: impl Fn(&Received) -> bool,
    ) -> Result<Silence, Aborted> {
        let quiet_time = self.options.quiet_time;
        self.begin(&format!(
            "listening for {quiet_time:?} to a subscription, while nothing changes"
        ));
        let quiet_until = Instant::now() + quiet_time;
        let before = self.connection.content_digest(uri).await?;
        // Read again at once: content that differs between any two reads never stays the same.
        let is_steady = before.is_some() && self.connection.content_digest(uri).await? == before;
        sleep_until(quiet_until).await;
        let after = self.connection.content_digest(uri).await?;
        let notices = self
            .connection
            .transcript
            .since(start)
            .into_iter()
            .filter(is_notice)
            .count();
        let mut problems = Problems::default();
        self.find_strangers(Some(uri), &mut problems);
        if is_steady && after == before {
            let text = format!("{notices} resources/updated of {uri} came while its content stayed the same");
            match notices {
                0 => {}
                // Some servers tell the state once to each new subscriber.
                1 => problems.warning(text),
                _ => problems.error(text),
            }
        }
        let pass_text = match is_steady && after == before {
            true => format!("no notice came in {quiet_time:?} without a change"),
            false => format!("{uri} changed by itself, and nothing was announced that is not subscribed to"),
        };
        self.conclude(Check::SpuriousUpdates, &problems, &pass_text);
        Ok(match notices {
            0 | 1 => Silence::Kept,
            _ => Silence::Flooded,
        })
    }

    /// Checks a session that cannot listen to a subscription, for this reason: it must be told of no resource
    /// but `subscribed`.
    pub(super) fn check_strangers(&mut self, subscribed: Option<&str>, reason: &str) {
        let mut problems = Problems::default();
        // Where subscriptions are not advertised, every notice breaks that promise, and is reported with it.
        if self.connection.advertises("resources", "subscribe") {
            self.find_strangers(subscribed, &mut problems);
        }
        match problems.is_empty() {
            true => self.skip(Check::SpuriousUpdates, reason),
            false => self.conclude(Check::SpuriousUpdates, &problems, ""),
        }
    }

    /// Adds a problem for notices of resources other than `subscribed`, the one with a subscription.
    fn find_strangers(&self, subscribed: Option<&str>, problems: &mut Problems) {
        // A listen stream has a check of its own for messages that it did not ask for.
        if self.connection.is_modern() {
            return;
        }
        let received = self.connection.transcript.since(0);
        let updates = received
            .iter()
            .filter(|received| received.updated_uri().is_some());
        let strangers: Vec<&Received> = updates
            .filter(|received| match subscribed {
                Some(uri) => !received.announces(uri),
                None => true,
            })
            .collect();
        if let Some(first) = strangers.first() {
            let name = first.updated_uri().unwrap_or_default();
            let count = strangers.len();
            problems.warning(format!(
                "{count} resources/updated came without a subscription, the first of {name}"
            ));
        }
    }
}
