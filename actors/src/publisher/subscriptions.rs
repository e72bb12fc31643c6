//! The pure core of a publisher shard: who wants which URI.
//!
//! Owns: the two directions URI → subscribers and subscriber → URIs, kept in step. Never: knows outboxes, actors or
//! what a subscriber is. Telling, adding and removing one subscription are O(1) per subscription concerned.

use slab::Slab;

use crate::model::{ResourceUri, UriMap};
use crate::outbox::SlotId;

/// A subscriber's place in the table, until it is removed.
pub(crate) type Member = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    member: u32,
    slot: SlotId,
}

#[derive(Debug)]
struct Row<T> {
    value: T,
    /// By slot: the URI and the place of our cell in its column.
    cells: Vec<Option<(ResourceUri, u32)>>,
}

/// Who wants which URI.
#[derive(Debug)]
pub(crate) struct SubscriptionTable<T> {
    columns: UriMap<Vec<Cell>>,
    rows: Slab<Row<T>>,
}

impl<T> Default for SubscriptionTable<T> {
    fn default() -> Self {
        SubscriptionTable {
            columns: UriMap::default(),
            rows: Slab::new(),
        }
    }
}

impl<T> SubscriptionTable<T> {
    /// Adds a subscriber without subscriptions.
    pub(crate) fn insert(&mut self, value: T) -> Member {
        self.rows.insert(Row {
            value,
            cells: Vec::new(),
        })
    }

    /// Removes a subscriber with all its subscriptions; each URI is shown to `ended` when its subscription is gone.
    pub(crate) fn remove(&mut self, member: Member, mut ended: impl FnMut(&ResourceUri)) -> Option<T> {
        let slots = self.rows.get(member)?.cells.len();
        for slot in 0..slots {
            if let Some(uri) = self.unsubscribe(member, slot as SlotId) {
                ended(&uri);
            }
        }
        Some(self.rows.try_remove(member)?.value)
    }

    /// The same URI as it is kept here, if anybody subscribed to it: those who keep one text compare it at a glance.
    pub(crate) fn shared(&self, uri: &ResourceUri) -> ResourceUri {
        let kept = self.columns.get_key_value(uri);
        kept.map_or(uri, |(kept, _)| kept).clone()
    }

    /// Subscribes `member` to `uri` under `slot`. False when the slot is taken or the member unknown.
    pub(crate) fn subscribe(&mut self, member: Member, slot: SlotId, uri: &ResourceUri) -> bool {
        let Some(row) = self.rows.get_mut(member) else {
            return false;
        };
        let index = slot as usize;
        if row.cells.len() <= index {
            row.cells.resize(index + 1, None);
        }
        if row.cells[index].is_some() {
            return false;
        }
        let column = self.columns.entry(uri.clone()).or_default();
        row.cells[index] = Some((uri.clone(), column.len() as u32));
        column.push(Cell {
            member: member as u32,
            slot,
        });
        true
    }

    /// Ends the subscription under `slot`. Answers its URI; none when there is no such subscription.
    pub(crate) fn unsubscribe(&mut self, member: Member, slot: SlotId) -> Option<ResourceUri> {
        let cell = self.rows.get_mut(member)?.cells.get_mut(slot as usize)?;
        let (uri, place) = cell.take()?;
        let column = self.columns.get_mut(&uri)?;
        column.swap_remove(place as usize);
        if let Some(moved) = column.get(place as usize).copied() {
            let cells = &mut self.rows[moved.member as usize].cells;
            if let Some((_, at)) = &mut cells[moved.slot as usize] {
                *at = place;
            }
        } else if column.is_empty() {
            self.columns.remove(&uri);
        }
        Some(uri)
    }

    /// Who subscribed to `uri`, each with the slot of that subscription.
    pub(crate) fn subscribers(&self, uri: &ResourceUri) -> impl ExactSizeIterator<Item = (&T, SlotId)> {
        let column = self.columns.get(uri).map_or(&[][..], Vec::as_slice);
        column
            .iter()
            .map(|cell| (&self.rows[cell.member as usize].value, cell.slot))
    }

    /// Every subscriber.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Member, &T)> {
        self.rows.iter().map(|(member, row)| (member, &row.value))
    }

    /// The subscriber at `member`.
    pub(crate) fn get(&self, member: Member) -> Option<&T> {
        self.rows.get(member).map(|row| &row.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn uri(name: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    #[derive(Debug, Clone)]
    enum TraceStep {
        Join,
        Leave(usize),
        Subscribe(usize, u32, u8),
        Unsubscribe(usize, u32),
    }

    fn steps() -> impl Strategy<Value = Vec<TraceStep>> {
        let step = prop_oneof![
            1 => Just(TraceStep::Join),
            1 => (0..6usize).prop_map(TraceStep::Leave),
            4 => (0..6usize, 0..4u32, 0..4u8).prop_map(|(m, s, u)| TraceStep::Subscribe(m, s, u)),
            2 => (0..6usize, 0..4u32).prop_map(|(m, s)| TraceStep::Unsubscribe(m, s)),
        ];
        prop::collection::vec(step, 0..150)
    }

    proptest! {
        /// The table agrees with a plain set of triples; subscribing twice is once; leaving leaves nothing behind.
        #[test]
        fn agrees_with_a_set_of_triples(steps in steps()) {
            let mut table = SubscriptionTable::default();
            let mut live: BTreeSet<usize> = BTreeSet::new();
            let mut model: BTreeSet<(usize, u32, u8)> = BTreeSet::new();
            for step in steps {
                match step {
                    TraceStep::Join => {
                        let member = table.insert(0);
                        prop_assert!(live.insert(member));
                    }
                    TraceStep::Leave(member) => {
                        let (mut ended, mut expected) = (Vec::new(), Vec::new());
                        let removed = table.remove(member, |gone| ended.push(gone.clone()));
                        prop_assert_eq!(removed.is_some(), live.remove(&member));
                        model.retain(|(m, slot, name)| {
                            (*m == member).then(|| expected.push((*slot, uri(*name)))).is_none()
                        });
                        expected.sort_unstable();
                        let expected: Vec<_> = expected.into_iter().map(|(_, uri)| uri).collect();
                        prop_assert_eq!(ended, expected);
                    }
                    TraceStep::Subscribe(member, slot, name) => {
                        let taken = model.iter().any(|(m, s, _)| (*m, *s) == (member, slot));
                        let done = table.subscribe(member, slot, &uri(name));
                        prop_assert_eq!(done, live.contains(&member) && !taken);
                        if done {
                            model.insert((member, slot, name));
                        }
                    }
                    TraceStep::Unsubscribe(member, slot) => {
                        let before = model.len();
                        model.retain(|(m, s, _)| (*m, *s) != (member, slot));
                        prop_assert_eq!(table.unsubscribe(member, slot).is_some(), model.len() < before);
                    }
                }
                let subscriptions: usize = table.columns.values().map(Vec::len).sum();
                prop_assert_eq!(subscriptions, model.len());
                for name in 0..4u8 {
                    let mut cells: Vec<_> = table
                        .columns.get(&uri(name)).into_iter().flatten()
                        .map(|cell| (cell.member as usize, cell.slot, name)).collect();
                    cells.sort_unstable();
                    let expected: Vec<_> = model.iter().filter(|(_, _, n)| *n == name).copied().collect();
                    prop_assert_eq!(cells, expected);
                }
            }
            for member in live {
                table.remove(member, |_| {});
            }
            prop_assert!(table.columns.is_empty() && table.rows.is_empty());
        }
    }
}
