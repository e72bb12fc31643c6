//! The difference between a change for few and one for many, for the tasks that they wake.

use std::cell::Cell;

thread_local! {
    static IS_FOR_MANY: Cell<bool> = const { Cell::new(false) };
}

/// A change for many subscribers, while this thread wakes their readers.
///
/// A task that carries many readers asks in their wakers whether there is one, so that the readers of a
/// change for few do not wait behind very many others.
#[derive(Debug)]
pub struct ForMany(());

impl ForMany {
    /// Counts what this thread wakes as woken for many, until this is dropped.
    #[must_use]
    pub fn begin() -> ForMany {
        IS_FOR_MANY.set(true);
        ForMany(())
    }

    /// Returns true if this thread wakes for many.
    pub fn is_under_way() -> bool {
        IS_FOR_MANY.get()
    }
}

impl Drop for ForMany {
    fn drop(&mut self) {
        IS_FOR_MANY.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasts_until_it_is_dropped() {
        let many = ForMany::begin();
        assert!(ForMany::is_under_way());
        drop(many);
        assert!(!ForMany::is_under_way());
    }
}
