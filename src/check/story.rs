//! A resource changes: who is told, how often, and what is read then.
//!
//! Owns the steps around a change, alike for both eras. The era says by a closure which message is the notice. It never
//! subscribes.

use tokio::time::Instant;

use super::catalog::Check;
use super::log::Heard;
use super::peer::Stop;
use super::round::{Problems, Round};
use super::touch::touch;

const HINT: &str = "give --touch CMD, a shell command that changes the resource";

/// The checks that need the notice of a change.
const AFTER_A_NOTICE: [Check; 3] = [
    Check::DuplicateNotices,
    Check::StaleReadAfterNotice,
    Check::UnsubscribeObeyed,
];

impl Round<'_> {
    /// Skips `obeyed` and everything that needs it.
    pub(super) fn skip_story(&mut self, obeyed: Check, reason: &str) {
        self.skip(obeyed, reason);
        self.skip_after(reason);
    }

    fn skip_after(&mut self, reason: &str) {
        for check in AFTER_A_NOTICE {
            self.skip(check, reason);
        }
    }

    /// Changes the subscribed resource and looks at what is told; answers whether anything was.
    pub(super) async fn story(
        &mut self,
        uri: &str,
        obeyed: Check,
        told: impl Fn(&Heard) -> bool,
    ) -> Result<bool, Stop> {
        let Some(command) = self.options.touch.as_deref() else {
            self.skip_story(obeyed, HINT);
            return Ok(false);
        };
        let before = self.peer.read(uri).await?;
        let mark = self.peer.log.mark();
        touch(command).await?;
        let until = Instant::now() + self.options.wait;
        let mut problems = Problems::default();
        if self.peer.log.wait(mark, until, &told).await.is_none() {
            let wait = self.options.wait;
            problems.error(format!(
                "no resources/updated of {uri} came within {wait:?} of its change"
            ));
            self.judge(obeyed, &problems, "");
            self.skip_after("no notice came");
            return Ok(false);
        }
        self.judge(obeyed, &problems, &format!("the change of {uri} was told"));
        let after = self.peer.read(uri).await?;
        let notices = self.quiet(mark).await.iter().filter(|heard| told(heard)).count();
        if after == before {
            let later = self.peer.read(uri).await?;
            problems.error(if later == before {
                "a read after the notice answered the old content, and so did a later one: is there a cache, or does --touch change nothing?"
            } else {
                "a read right after the notice answered the old content"
            });
        }
        self.judge(
            Check::StaleReadAfterNotice,
            &problems,
            "a read after the notice answered new content",
        );
        let mut problems = Problems::default();
        if notices > 1 {
            problems.warning(format!("one change was told {notices} times"));
        }
        self.judge(Check::DuplicateNotices, &problems, "one change was told once");
        Ok(true)
    }

    /// Changes the resource once more, after its subscription ended.
    pub(super) async fn silence(&mut self, told: impl Fn(&Heard) -> bool) -> Result<(), Stop> {
        let Some(command) = self.options.touch.as_deref() else {
            return Ok(());
        };
        let mark = self.peer.log.mark();
        touch(command).await?;
        let notices = self.quiet(mark).await.iter().filter(|heard| told(heard)).count();
        let mut problems = Problems::default();
        if notices > 0 {
            problems.error(format!(
                "{notices} resources/updated came after the subscription had ended"
            ));
        }
        self.judge(
            Check::UnsubscribeObeyed,
            &problems,
            "nothing was told after the subscription had ended",
        );
        Ok(())
    }
}
