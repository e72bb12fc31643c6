//! The subscriptions of one shard.
//!
//! Two directions are kept in step: the subscribers of a URI and the URIs of a subscriber. Each
//! subscription is found, added and removed in constant time.

use slab::Slab;

use crate::model::{ResourceUri, UriMap};
use crate::outbox::SlotId;

/// The index of a subscriber in the table until it is removed.
pub(crate) type Member = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    member: u32,
    slot: SlotId,
}

#[derive(Debug)]
struct Row<T> {
    value: T,
    /// For each slot the URI, and the index of its cell in the column.
    cells: Vec<Option<(ResourceUri, u32)>>,
}

/// The subscriptions of one shard.
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

    /// Removes a subscriber with all its subscriptions. Calls `ended` for each URI after its removal.
    pub(crate) fn remove(&mut self, member: Member, mut ended: impl FnMut(&ResourceUri)) -> Option<T> {
        let slots = self.rows.get(member)?.cells.len();
        for slot in 0..slots {
            if let Some(uri) = self.unsubscribe(member, slot as SlotId) {
                ended(&uri);
            }
        }
        Some(self.rows.try_remove(member)?.value)
    }

    /// Returns the table's own copy of `uri` if there is one: copies of one text compare by pointer.
    pub(crate) fn shared(&self, uri: &ResourceUri) -> ResourceUri {
        match self.columns.get_key_value(uri) {
            Some((kept, _)) => kept.clone(),
            None => uri.clone(),
        }
    }

    /// Subscribes `member` to `uri` under `slot`. Returns false if the slot is taken or the member unknown.
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

    /// Ends the subscription under `slot`. Returns its URI; none if there is no such subscription.
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
            // Columns are found by their URI alone, so another one may take the place.
            self.columns.swap_remove(&uri);
        }
        Some(uri)
    }

    /// The subscribers of `uri`, each with the slot of its subscription.
    pub(crate) fn subscribers(&self, uri: &ResourceUri) -> impl ExactSizeIterator<Item = (&T, SlotId)> {
        self.column(uri)
            .iter()
            .map(|cell| (&self.rows[cell.member as usize].value, cell.slot))
    }

    /// The members that subscribe to `uri`.
    pub(crate) fn subscribed_members(&self, uri: &ResourceUri) -> impl Iterator<Item = Member> {
        self.column(uri).iter().map(|cell| cell.member as usize)
    }

    fn column(&self, uri: &ResourceUri) -> &[Cell] {
        match self.columns.get(uri) {
            Some(column) => column.as_slice(),
            None => &[],
        }
    }

    /// All subscribed URIs.
    pub(crate) fn uris(&self) -> impl Iterator<Item = &ResourceUri> {
        self.columns.keys()
    }

    /// All subscribers.
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
        /// The table agrees with a plain set of triples through any steps.
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
                        let mut ended = Vec::new();
                        let mut expected = Vec::new();
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
