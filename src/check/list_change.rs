//! The check that a list which changed is announced.

use tokio::time::{Duration, Instant, sleep};

use super::catalog::Check;
use super::change_scenario::HINT;
use super::connection::{Aborted, ListState};
use super::run::{CheckRun, Problems};
use super::touch::touch;

/// The pause between two looks at lists that may change.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

impl CheckRun<'_> {
    /// Changes the server where no resource can be subscribed to, and checks the announcements of its lists.
    pub(super) async fn check_lists_alone(&mut self) -> Result<(), Aborted> {
        if !self.options.can_touch() {
            self.skip(Check::ListChangedObeyed, HINT);
            return Ok(());
        }
        if self.open_lists.is_empty() {
            let reason = "no change of a list is advertised and can be announced";
            self.skip(Check::ListChangedObeyed, reason);
            return Ok(());
        }
        self.begin("changing the server, and waiting for a list to change");
        let before = self.connection.list_states().await?;
        let start = self.connection.transcript.position();
        touch(&self.connection, self.options).await?;
        let deadline = Instant::now() + self.options.wait;
        while changed_kinds(&before, &self.connection.list_states().await?).is_empty() {
            if Instant::now() >= deadline {
                break;
            }
            sleep(LOOK_PAUSE).await;
        }
        self.check_list_changes(&before, start).await?;
        Ok(())
    }

    /// Checks that every list which differs from `before` was announced after the position `start`, or is
    /// within the time for notices. Returns true if a list changed.
    pub(super) async fn check_list_changes(
        &mut self,
        before: &[ListState],
        start: usize,
    ) -> Result<bool, Aborted> {
        let changed = changed_kinds(before, &self.connection.list_states().await?);
        let mut problems = Problems::default();
        let mut announced = Vec::new();
        let wait = self.options.wait;
        let deadline = Instant::now() + wait;
        for kind in &changed {
            if !self.open_lists.contains(kind) {
                continue;
            }
            let transcript = &self.connection.transcript;
            let found =
                transcript.wait_for(start, deadline, |received| received.changed_list() == Some(*kind));
            match found.await {
                Some(_) => announced.push(*kind),
                None => problems.error(format!(
                    "the list of {kind} changed, and no {kind}/list_changed came within {wait:?}"
                )),
            }
        }
        let reason = match changed.is_empty() {
            true => "the change left every list as it was".to_owned(),
            false => format!(
                "changes of {} cannot be announced: no stream carries them",
                changed.join(", ")
            ),
        };
        match announced.is_empty() && problems.is_empty() {
            true => self.skip(Check::ListChangedObeyed, &reason),
            false => {
                let pass_text = format!("the change of {} was announced", announced.join(", "));
                self.conclude(Check::ListChangedObeyed, &problems, &pass_text);
            }
        }
        Ok(!changed.is_empty())
    }
}

/// Returns the kinds of lists that offer something else.
fn changed_kinds(before: &[ListState], after: &[ListState]) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    // A list that could not be read once says nothing about its content.
    if before.len() != after.len() {
        return kinds;
    }
    for (old, new) in before.iter().zip(after) {
        if old.offered != new.offered && !kinds.contains(&new.kind) {
            kinds.push(new.kind);
        }
    }
    kinds
}
