//! The checks around a change of the resource under test, which both eras have in common.
//!
//! The caller subscribes, and passes the predicate that recognizes the notice of the change in its era.

use tokio::time::Instant;

use super::catalog::Check;
use super::connection::Aborted;
use super::run::{CheckRun, Problems};
use super::touch_command::run_touch_command;
use super::transcript::Received;
use crate::Digest;

const HINT: &str = "give --touch CMD, a shell command that changes the resource";

const STALE_FOR_LONG: &str = "a read after the notice returned the old content, and so did a later one: \
     is there a cache, or does --touch change nothing?";

/// The checks that need the notice of a change.
const AFTER_A_NOTICE: [Check; 3] = [
    Check::DuplicateNotices,
    Check::StaleReadAfterNotice,
    Check::UnsubscribeObeyed,
];

impl CheckRun<'_> {
    /// Skips `subscribe_check` and every check that needs a notice.
    pub(super) fn skip_change_checks(&mut self, subscribe_check: Check, reason: &str) {
        self.skip(subscribe_check, reason);
        self.skip_after_notice(reason);
    }

    fn skip_after_notice(&mut self, reason: &str) {
        for check in AFTER_A_NOTICE {
            self.skip(check, reason);
        }
    }

    /// Changes the subscribed resource `uri` and checks its notice and the reads after it.
    ///
    /// Returns true if a notice came, so that the caller can go on with the end of the subscription.
    pub(super) async fn check_change(
        &mut self,
        uri: &str,
        subscribe_check: Check,
        is_notice: impl Fn(&Received) -> bool,
    ) -> Result<bool, Aborted> {
        let Some(command) = self.options.touch.as_deref() else {
            self.skip_change_checks(subscribe_check, HINT);
            return Ok(false);
        };
        let before = self.connection.content_digest(uri).await?;
        let start = self.connection.transcript.position();
        run_touch_command(command).await?;
        let wait = self.options.wait;
        let deadline = Instant::now() + wait;
        let mut problems = Problems::default();
        let notice = self.connection.transcript.wait_for(start, deadline, &is_notice);
        if notice.await.is_none() {
            problems.error(format!(
                "no resources/updated of {uri} came within {wait:?} of its change"
            ));
            self.conclude(subscribe_check, &problems, "");
            self.skip_after_notice("no notice came");
            return Ok(false);
        }
        let pass_text = format!("the change of {uri} was announced");
        self.conclude(subscribe_check, &problems, &pass_text);
        self.check_after_notice(uri, before, start, is_notice).await?;
        Ok(true)
    }

    /// Checks the content after the notice of a change, and counts the notices after the position `start`.
    async fn check_after_notice(
        &mut self,
        uri: &str,
        before: Option<Digest>,
        start: usize,
        is_notice: impl Fn(&Received) -> bool,
    ) -> Result<(), Aborted> {
        // Read at once: a server whose reads lag behind its notices is caught only right after the notice.
        let after = self.connection.content_digest(uri).await?;
        let received = self.received_in_quiet_time(start).await;
        let mut problems = Problems::default();
        if after == before {
            let later = self.connection.content_digest(uri).await?;
            problems.error(match later == before {
                true => STALE_FOR_LONG,
                false => "a read right after the notice returned the old content",
            });
        }
        let pass_text = "a read after the notice returned new content";
        self.conclude(Check::StaleReadAfterNotice, &problems, pass_text);
        let notices = received.into_iter().filter(is_notice).count();
        let mut problems = Problems::default();
        if notices > 1 {
            problems.warning(format!("one change was announced {notices} times"));
        }
        let pass_text = "one change was announced once";
        self.conclude(Check::DuplicateNotices, &problems, pass_text);
        Ok(())
    }

    /// Changes the resource after the end of its subscription, and checks that no notice comes.
    pub(super) async fn check_unsubscribed(
        &mut self,
        is_notice: impl Fn(&Received) -> bool,
    ) -> Result<(), Aborted> {
        let Some(command) = self.options.touch.as_deref() else {
            return Ok(());
        };
        let start = self.connection.transcript.position();
        run_touch_command(command).await?;
        let received = self.received_in_quiet_time(start).await;
        let notices = received.into_iter().filter(is_notice).count();
        let mut problems = Problems::default();
        if notices > 0 {
            problems.error(format!(
                "{notices} resources/updated came after the subscription had ended"
            ));
        }
        let pass_text = "no notice came after the subscription had ended";
        self.conclude(Check::UnsubscribeObeyed, &problems, pass_text);
        Ok(())
    }
}
