//! The bytes that each caller has published and the bus holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidings_actors::ResourceUri;

use super::Counted;

/// The bytes that callers published, by caller and by resource. They are counted from the start of the
/// service, and only as long as a resource exists.
#[derive(Debug, Default)]
pub(super) struct Published {
    bytes: Arc<Mutex<Ledger>>,
}

#[derive(Debug, Default)]
struct Ledger {
    held: HashMap<Counted, usize>,
    /// The caller that wrote a resource last, with the bytes of it. There are as many as the bus has
    /// resources.
    writers: HashMap<ResourceUri, (Counted, usize)>,
}

/// The bytes of a change that is under way. They count as published unless the change is
/// [`refused`](Reservation::refused): whether one was made whose client has gone is not known.
#[derive(Debug)]
pub(crate) struct Reservation {
    bytes: Arc<Mutex<Ledger>>,
    caller: Counted,
    uri: ResourceUri,
    len: usize,
}

fn lock(bytes: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    fn lower(&mut self, caller: &Counted, len: usize) {
        let Some(held) = self.held.get_mut(caller) else {
            return;
        };
        *held -= len;
        if *held == 0 {
            // Callers come and go, and the ledger must not keep them all.
            self.held.remove(caller);
        }
    }

    fn forget(&mut self, uri: &ResourceUri) {
        if let Some((writer, len)) = self.writers.remove(uri) {
            self.lower(&writer, len);
        }
    }
}

impl Published {
    /// Counts a change of `uri` to a body of `len` bytes; none when the caller would then hold more than
    /// `max`. The bytes that the change replaces count no more, if they are the caller's own.
    pub(super) fn reserve(
        &self,
        caller: &Counted,
        uri: &ResourceUri,
        len: usize,
        max: usize,
    ) -> Option<Reservation> {
        // The URI counts too: a caller must not fill the ledger with empty resources.
        let len = len + uri.as_str().len();
        let mut ledger = lock(&self.bytes);
        let replaced = match ledger.writers.get(uri) {
            Some((writer, len)) if writer == caller => *len,
            _ => 0,
        };
        let held = ledger.held.get(caller).copied().unwrap_or_default();
        if held.saturating_add(len) > max.saturating_add(replaced) {
            return None;
        }
        ledger.held.insert(caller.clone(), held + len);
        Some(Reservation {
            bytes: self.bytes.clone(),
            caller: caller.clone(),
            uri: uri.clone(),
            len,
        })
    }

    /// Returns the callers, and the bytes of each.
    #[cfg(feature = "nats")]
    pub(super) fn counts(&self) -> Vec<(Counted, usize)> {
        let ledger = lock(&self.bytes);
        let held = ledger.held.iter();
        held.map(|(caller, bytes)| (caller.clone(), *bytes)).collect()
    }

    /// Forgets the resources of which `is_held` is false, with their bytes.
    #[cfg(feature = "nats")]
    pub(super) fn keep(&self, is_held: impl Fn(&ResourceUri, usize) -> bool) {
        let mut ledger = lock(&self.bytes);
        let gone = ledger
            .writers
            .iter()
            .filter(|(uri, (_, len))| !is_held(uri, *len));
        let gone: Vec<ResourceUri> = gone.map(|(uri, _)| uri.clone()).collect();
        for uri in &gone {
            ledger.forget(uri);
        }
    }

    /// Notes that a resource was removed.
    pub(super) fn removed(&self, uri: &ResourceUri) {
        lock(&self.bytes).forget(uri);
    }
}

impl Reservation {
    /// Takes the bytes back, as the change was not made.
    pub(crate) fn refused(mut self) {
        let len = std::mem::take(&mut self.len);
        lock(&self.bytes).lower(&self.caller, len);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.len > 0 {
            let mut ledger = lock(&self.bytes);
            ledger.forget(&self.uri);
            let written = (self.caller.clone(), self.len);
            ledger.writers.insert(self.uri.clone(), written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn caller(name: u8) -> Counted {
        Counted::Address([192, 0, 2, name].into())
    }

    fn uri(name: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    #[test]
    fn own_bytes_are_replaced_and_given_back() {
        let published = Published::default();
        // Room for one URI of 8 bytes and a body of 10.
        let put = |who, what, len| published.reserve(&caller(who), &uri(what), len, 18);
        drop(put(1, 1, 2).unwrap());
        assert!(put(1, 2, 1).is_none());
        // The same resource anew replaces its bytes.
        drop(put(1, 1, 10).unwrap());
        assert!(put(1, 1, 11).is_none());
        // A change that was refused counts for nothing, and one that is under way counts in full.
        put(2, 2, 10).unwrap().refused();
        let waiting = put(2, 2, 10).unwrap();
        assert!(put(2, 3, 0).is_none());
        drop(waiting);
        published.removed(&uri(1));
        // Another caller's write takes the resource over.
        drop(put(1, 2, 0).unwrap());
        drop(put(2, 3, 10).unwrap());
        published.removed(&uri(2));
        published.removed(&uri(3));
        let ledger = lock(&published.bytes);
        assert!(ledger.held.is_empty() && ledger.writers.is_empty(), "{ledger:?}");
    }

    proptest! {
        /// Each caller holds the bytes of the resources that it wrote last, whatever happens.
        #[test]
        fn ledger_agrees_with_a_plain_map(
            steps in prop::collection::vec((0..3u8, 0..4u8, 0..9usize, 0..4u8), 0..60),
        ) {
            let published = Published::default();
            let mut plain: HashMap<u8, (u8, usize)> = HashMap::new();
            for (who, what, len, outcome) in steps {
                if outcome == 0 {
                    published.removed(&uri(what));
                    plain.remove(&what);
                    continue;
                }
                let Some(reserved) = published.reserve(&caller(who), &uri(what), len, 30) else {
                    continue;
                };
                if outcome == 1 {
                    reserved.refused();
                } else {
                    drop(reserved);
                    plain.insert(what, (who, len + 8));
                }
            }
            let ledger = lock(&published.bytes);
            for who in 0..3 {
                let expected: usize = plain.values().filter(|(by, _)| *by == who).map(|(_, len)| len).sum();
                prop_assert!(expected <= 30);
                let held = ledger.held.get(&caller(who)).copied();
                prop_assert_eq!(held, (expected > 0).then_some(expected));
            }
        }
    }
}
