//! The checks around a change of the resource under test, which both eras have in common.
//!
//! The caller subscribes, and passes the predicate that recognizes the notice of the change in its era.

use tokio::time::Instant;

use super::catalog::Check;
use super::connection::Aborted;
use super::run::{CheckRun, Problems};
use super::touch::touch;
use super::transcript::Received;
use super::updates::Silence;
use crate::Digest;

/// The remedy for checks that are skipped for want of a change.
pub(super) const HINT: &str = "give --touch CMD or --touch-tool NAME=JSON, which changes the resource";

const STALE: &str = "a read right after the notice returned the old content";

const STALE_FOR_LONG: &str = "a read after the notice returned the old content, and so did a later one: \
     is there a cache, or does --touch change nothing?";

const NOTHING_CHANGED: &str = "the change by --touch or --touch-tool left the content of the resource and \
     every list as they were: name the resource that it changes with --uri, or give another change";

const FLOODED: &str = "notices come without a change: see spurious-updates";

/// The checks that need the notice of a change.
const AFTER_A_NOTICE: [Check; 3] = [
    Check::DuplicateNotices,
    Check::StaleReadAfterNotice,
    Check::UnsubscribeObeyed,
];

/// The change of a subscribed resource.
pub(super) struct TouchedResource<'a> {
    pub(super) uri: &'a str,
    /// The check that asks for its notice.
    pub(super) check: Check,
    /// The verdict about the time before the change.
    pub(super) silence: Silence,
}

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

    /// Changes the subscribed resource, and checks its notice, the reads after it and the lists.
    ///
    /// Returns true if a notice came, so that the caller can go on with the end of the subscription.
    pub(super) async fn check_change(
        &mut self,
        change: TouchedResource<'_>,
        is_notice: impl Fn(&Received) -> bool,
    ) -> Result<bool, Aborted> {
        if change.silence == Silence::Flooded {
            self.skip_change_checks(change.check, FLOODED);
            self.check_lists_alone().await?;
            return Ok(false);
        }
        if !self.options.can_touch() {
            self.skip_change_checks(change.check, HINT);
            self.skip(Check::ListChangedObeyed, HINT);
            return Ok(false);
        }
        self.begin("changing the resource, and waiting for its notice");
        let lists = self.connection.list_states().await?;
        let before = self.connection.content_digest(change.uri).await?;
        let start = self.connection.transcript.position();
        touch(&self.connection, self.options).await?;
        let deadline = Instant::now() + self.options.wait;
        let notice = self.connection.transcript.wait_for(start, deadline, &is_notice);
        if notice.await.is_some() {
            self.check_after_notice(&change, before, start, is_notice).await?;
            self.check_list_changes(&lists, start).await?;
            return Ok(true);
        }
        let is_same = self.connection.content_digest(change.uri).await? == before;
        let is_list_changed = self.check_list_changes(&lists, start).await?;
        self.conclude_without_notice(&change, is_same, is_list_changed);
        Ok(false)
    }

    /// Judges a change whose notice did not come.
    fn conclude_without_notice(
        &mut self,
        change: &TouchedResource<'_>,
        is_same: bool,
        is_list_changed: bool,
    ) {
        let TouchedResource { uri, check, .. } = *change;
        if !is_same {
            let wait = self.options.wait;
            let mut problems = Problems::default();
            problems.error(format!(
                "no resources/updated of {uri} came within {wait:?} of its change"
            ));
            self.conclude(check, &problems, "");
            self.skip_after_notice("no notice came");
        } else if is_list_changed {
            let reason = format!("the change was one of a list, and {uri} stayed the same");
            self.skip_change_checks(check, &reason);
        } else {
            self.skip_change_checks(check, NOTHING_CHANGED);
            self.note_incomplete(NOTHING_CHANGED);
        }
    }

    /// Checks the content after the notice of a change, and counts the notices after the position `start`.
    async fn check_after_notice(
        &mut self,
        change: &TouchedResource<'_>,
        before: Option<Digest>,
        start: usize,
        is_notice: impl Fn(&Received) -> bool,
    ) -> Result<(), Aborted> {
        // Read at once: a server whose reads lag behind its notices is caught only right after the notice.
        let after = self.connection.content_digest(change.uri).await?;
        let received = self.received_in_quiet_time(start).await;
        let is_late = after == before;
        let is_stale = is_late && self.connection.content_digest(change.uri).await? == before;
        let mut problems = Problems::default();
        match (is_late, is_stale) {
            (_, true) => problems.error(STALE_FOR_LONG),
            (true, false) => problems.error(STALE),
            (false, false) => {}
        }
        let pass_text = "a read after the notice returned new content";
        self.conclude(Check::StaleReadAfterNotice, &problems, pass_text);
        if is_stale {
            let reason = "no read shows a change: see stale-read-after-notice";
            self.skip(change.check, reason);
            self.skip(Check::DuplicateNotices, reason);
            return Ok(());
        }
        let pass_text = format!("the change of {} was announced", change.uri);
        self.conclude(change.check, &Problems::default(), &pass_text);
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
        uri: &str,
        is_notice: impl Fn(&Received) -> bool,
    ) -> Result<(), Aborted> {
        self.begin("changing the resource after the end of its subscription");
        let before = self.connection.content_digest(uri).await?;
        let start = self.connection.transcript.position();
        touch(&self.connection, self.options).await?;
        let received = self.received_in_quiet_time(start).await;
        let notices = received.into_iter().filter(is_notice).count();
        let mut problems = Problems::default();
        if notices > 0 {
            problems.error(format!(
                "{notices} resources/updated came after the subscription had ended"
            ));
        } else if self.connection.content_digest(uri).await? == before {
            self.skip(
                Check::UnsubscribeObeyed,
                "a second change left the content as it was",
            );
            return Ok(());
        }
        let pass_text = "no notice came after the subscription had ended";
        self.conclude(Check::UnsubscribeObeyed, &problems, pass_text);
        Ok(())
    }
}
