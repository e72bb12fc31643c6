//! The turn of a source: whether this node publishes what the source finds.

use std::time::Instant;

use tokio::sync::watch;

/// The turn of a source. Of several nodes with one folder or file, one publishes it at a time; the others
/// follow it, so that each of them can go on at once.
#[derive(Debug, Clone, Default)]
pub struct SourceTurn(Option<watch::Receiver<Option<Instant>>>);

impl SourceTurn {
    /// Makes a turn that lasts until the newest time of `turns`, as for the holder of a lease, which puts the
    /// time off again and again. The default lasts for ever.
    pub fn until(turns: watch::Receiver<Option<Instant>>) -> SourceTurn {
        SourceTurn(Some(turns))
    }

    /// Returns true if it is this node's turn.
    pub(super) fn is_held(&self) -> bool {
        match self.deadline() {
            // By the time: a process that was stopped for a while is told of the end later.
            Some(deadline) => Instant::now() < deadline,
            None => !self.is_shared(),
        }
    }

    /// Returns the time at which a turn that another node may follow ends unless it is put off.
    pub(super) fn deadline(&self) -> Option<Instant> {
        *self.0.as_ref()?.borrow()
    }

    /// Returns true if another node may publish the same.
    pub(super) fn is_shared(&self) -> bool {
        self.0.is_some()
    }

    /// Returns when a turn of this node begins.
    pub(super) async fn begins(&mut self) {
        if let Some(turns) = &mut self.0 {
            // A turn that began and ended since the last look is none.
            while turns.changed().await.is_ok() {
                if turns.borrow_and_update().is_some() {
                    return;
                }
            }
        }
        // Without other nodes the only turn has begun already.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn turn_follows_the_lease() {
        let (told, turns) = watch::channel(None);
        let mut turn = SourceTurn::until(turns);
        assert!(turn.is_shared() && !turn.is_held() && turn.deadline().is_none());
        let until = Instant::now() + HOUR;
        told.send_replace(Some(until));
        turn.begins().await;
        assert!(turn.is_held());
        assert_eq!(turn.deadline(), Some(until));
        told.send_replace(None);
        assert!(!turn.is_held());
        told.send_replace(Some(until));
        turn.begins().await;
    }

    #[tokio::test]
    async fn turn_ends_with_its_time_though_not_told() {
        let (_told, turns) = watch::channel(Some(Instant::now()));
        let turn = SourceTurn::until(turns);
        assert!(turn.is_shared() && !turn.is_held());
    }

    #[test]
    fn node_alone_has_every_turn() {
        let turn = SourceTurn::default();
        assert!(turn.is_held() && !turn.is_shared() && turn.deadline().is_none());
    }
}
