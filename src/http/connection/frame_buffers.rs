//! The buffers in which the frames of streams are made: those that were written are used again.

use std::cell::RefCell;

/// The buffers that a thread keeps: those of the frames that two turns of a connection write.
const KEPT_MAX: usize = 256;

/// The bytes of a new buffer. Most notices are shorter.
const NEW_BYTES: usize = 256;

/// The bytes of the largest buffer that is kept.
const KEPT_BYTES_MAX: usize = 1 << 10;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Takes an empty buffer.
pub(super) fn take() -> Vec<u8> {
    let free = FREE.with_borrow_mut(Vec::pop);
    free.unwrap_or_else(|| Vec::with_capacity(NEW_BYTES))
}

/// Frees the room that a large buffer does not need, since its frame may wait long.
pub(super) fn fit(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES_MAX {
        buffer.shrink_to_fit();
    }
}

/// Gives a buffer back.
pub(super) fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES_MAX {
        return;
    }
    buffer.clear();
    // A thread that ends keeps none.
    let kept = FREE.try_with(|free| {
        let free = &mut *free.borrow_mut();
        if free.len() < KEPT_MAX {
            free.push(buffer);
        }
    });
    if kept.is_err() {
        tracing::trace!("a buffer outlived its thread");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_unless_they_are_large() {
        let mut buffer = take();
        buffer.extend_from_slice(b"text");
        let place = buffer.as_ptr();
        give_back(buffer);
        give_back(Vec::with_capacity(KEPT_BYTES_MAX + 1));
        let again = take();
        assert!(again.is_empty() && again.as_ptr() == place);
        (0..2 * KEPT_MAX).for_each(|_| give_back(Vec::with_capacity(1)));
        assert_eq!(FREE.with_borrow(Vec::len), KEPT_MAX);
    }
}
