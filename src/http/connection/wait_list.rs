//! Lists of the connections of a thread that wait, in the order in which they came.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Waker};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PlaceState {
    #[default]
    Idle,
    Waiting,
    Called,
}

/// The place of one connection in a list.
#[derive(Debug, Default)]
pub(super) struct WaitingPlace(Rc<Cell<PlaceState>>);

impl WaitingPlace {
    /// Returns true if the connection neither waits nor was called.
    pub(super) fn is_idle(&self) -> bool {
        self.0.get() == PlaceState::Idle
    }

    /// Returns true while the connection waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.0.get() == PlaceState::Waiting
    }

    /// Returns true if it was called, perhaps without knowing it yet.
    pub(super) fn is_called(&self) -> bool {
        self.0.get() == PlaceState::Called
    }

    /// Calls the connection, which need not wait.
    pub(super) fn call(&self) {
        self.0.set(PlaceState::Called);
    }

    /// Ends the waiting, or what the connection was called for. Returns true if it was called.
    pub(super) fn end(&self) -> bool {
        self.0.replace(PlaceState::Idle) == PlaceState::Called
    }
}

/// The connections that wait.
#[derive(Debug)]
pub(super) struct WaitList(RefCell<VecDeque<(Waker, Rc<Cell<PlaceState>>)>>);

impl WaitList {
    pub(super) const fn new() -> WaitList {
        WaitList(RefCell::new(VecDeque::new()))
    }

    /// Returns true if no connection stands in the list.
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Puts a connection that is idle at the end of the list.
    pub(super) fn wait(&self, place: &WaitingPlace, cx: &Context<'_>) {
        place.0.set(PlaceState::Waiting);
        let entry = (cx.waker().clone(), place.0.clone());
        self.0.borrow_mut().push_back(entry);
    }

    /// Calls the connection that waits longest. Returns its waker.
    pub(super) fn call_next(&self) -> Option<Waker> {
        loop {
            let (waker, state) = self.0.borrow_mut().pop_front()?;
            // Others do not wait any more, or have ended.
            if state.get() == PlaceState::Waiting {
                state.set(PlaceState::Called);
                return Some(waker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_still_wait_are_called_in_their_order() {
        let cx = &Context::from_waker(Waker::noop());
        let list = WaitList::new();
        let mut places: [WaitingPlace; 4] = Default::default();
        for place in &places {
            list.wait(place, cx);
        }
        assert!(!places[0].end() && places[0].is_idle());
        assert!(list.call_next().is_some() && places[1].is_called());
        assert!(places[2].is_waiting());
        places[2].end();
        assert!(list.call_next().is_some() && places[3].is_called());
        assert!(list.is_empty() && list.call_next().is_none());
        assert!(std::mem::take(&mut places[3]).end());
    }
}
