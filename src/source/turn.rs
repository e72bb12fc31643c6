//! The turn of a source: whether this node publishes what the source finds.

use tokio::sync::watch;

/// The turn of a source. Of several nodes with one folder or file, one publishes it at a time; the others
/// follow it, so that each of them can go on at once.
#[derive(Debug, Clone, Default)]
pub struct SourceTurn(Option<watch::Receiver<Option<u64>>>);

impl SourceTurn {
    /// Makes a turn that lasts while the newest value is a number, as for the holder of a lease. The default
    /// lasts for ever.
    pub fn while_some(turns: watch::Receiver<Option<u64>>) -> SourceTurn {
        SourceTurn(Some(turns))
    }

    /// Returns true if it is this node's turn.
    pub(super) fn is_held(&self) -> bool {
        match &self.0 {
            Some(turns) => turns.borrow().is_some(),
            None => true,
        }
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

    #[tokio::test]
    async fn turn_follows_the_lease() {
        let (told, turns) = watch::channel(None);
        let mut turn = SourceTurn::while_some(turns);
        assert!(turn.is_shared() && !turn.is_held());
        told.send_replace(Some(1));
        turn.begins().await;
        assert!(turn.is_held());
        told.send_replace(None);
        assert!(!turn.is_held());
        told.send_replace(Some(2));
        turn.begins().await;
    }

    #[test]
    fn node_alone_has_every_turn() {
        let turn = SourceTurn::default();
        assert!(turn.is_held() && !turn.is_shared());
    }
}
