//! The ids of events as their clients get them.
//!
//! An id is a position in the order of all changes of a bus, so two of them tell how many changes lay
//! between. A caller that may be told of every change gets positions as they are. Every other one gets them
//! encrypted: its ids tell neither order nor number, and the service needs to keep nothing to read them.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use aes::Aes128;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use tidings_actors::Position;

/// The characters of an encrypted position.
const SEALED_LEN: usize = 40;
/// Those of its salt.
const SALT_LEN: usize = 8;

/// The number of seals that were made.
static SEALS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The id that this thread encrypted last for a notice: one notice goes to many clients in a row.
    static LAST_OF_NOTICE: Cell<Option<SealedNotice>> = const { Cell::new(None) };
}

/// The encrypted id of a notice.
#[derive(Clone, Copy)]
struct SealedNotice {
    /// The seal that made it, since another one cannot read it.
    seal: u64,
    position: Position,
    id: EventId,
}

/// Encrypts positions for the callers of one border.
///
/// A position is one block: the epoch and the offset. A text that was not made here decrypts to an epoch that
/// no history has, so the block needs no signature. The salt makes different texts of one position.
pub(super) struct PositionSeal {
    /// Another number for each seal.
    id: u64,
    positions: Aes128,
    salts: Aes128,
}

impl PositionSeal {
    /// Makes the seal of a key, which other seals of the same key can read.
    pub(super) fn new(key: &[u8; 32]) -> PositionSeal {
        let [mut positions, mut salts] = [[0; 16]; 2];
        positions.copy_from_slice(&key[..16]);
        salts.copy_from_slice(&key[16..]);
        PositionSeal {
            id: SEALS.fetch_add(1, Ordering::Relaxed),
            positions: Aes128::new(&positions.into()),
            salts: Aes128::new(&salts.into()),
        }
    }

    /// Makes the seal of a key that is forgotten with it.
    pub(super) fn random() -> PositionSeal {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("a system without random numbers can keep no secret");
        PositionSeal::new(&key)
    }

    fn mask(&self, salt: u32) -> u128 {
        let mut block = u128::from(salt).to_be_bytes().into();
        self.salts.encrypt_block(&mut block);
        u128::from_be_bytes(block.into())
    }

    fn seal(&self, position: Position, salt: u32) -> EventId {
        let plain = u128::from(position.epoch) << 64 | u128::from(position.offset);
        // Masked by a block that depends on the salt in a way that only the key knows.
        let mut block = (plain ^ self.mask(salt)).to_be_bytes().into();
        self.positions.encrypt_block(&mut block);
        let block: [u8; 16] = block.into();
        let mut text = [0; SEALED_LEN];
        let bytes = salt.to_be_bytes().into_iter().chain(block);
        for (digits, byte) in text.chunks_exact_mut(2).zip(bytes) {
            digits[0] = hex_digit(byte >> 4);
            digits[1] = hex_digit(byte & 0xf);
        }
        EventId::Sealed(text)
    }

    /// Returns the id of a notice, which is always the same.
    fn seal_notice(&self, position: Position) -> EventId {
        if let Some(last) = LAST_OF_NOTICE.get()
            && last.seal == self.id
            && last.position == position
        {
            return last.id;
        }
        let id = self.seal(position, 0);
        let seal = self.id;
        LAST_OF_NOTICE.set(Some(SealedNotice { seal, position, id }));
        id
    }

    fn open(&self, text: &str) -> Option<Position> {
        // Looked at as a whole, since the parser of numbers would take a sign.
        if text.len() != SEALED_LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let (salt, block) = text.split_at(SALT_LEN);
        let salt = u32::from_str_radix(salt, 16).ok()?;
        let mut block = u128::from_str_radix(block, 16).ok()?.to_be_bytes().into();
        self.positions.decrypt_block(&mut block);
        let plain = u128::from_be_bytes(block.into()) ^ self.mask(salt);
        Some(Position {
            epoch: (plain >> 64) as u64,
            offset: plain as u64,
        })
    }
}

fn hex_digit(half: u8) -> u8 {
    match half {
        0..=9 => b'0' + half,
        _ => b'a' + (half - 10),
    }
}

impl fmt::Debug for PositionSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// An id as it is written to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventId {
    /// For a client that may know positions.
    Plain(Position),
    /// A salt and the block that was encrypted with it, in hexadecimal digits.
    Sealed([u8; SEALED_LEN]),
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventId::Plain(position) => position.fmt(f),
            EventId::Sealed(digits) => f.write_str(std::str::from_utf8(digits).map_err(|_| fmt::Error)?),
        }
    }
}

/// The form of ids for one client, as its rights are at the moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventIds<'s> {
    /// None if the service has no border.
    seal: Option<&'s PositionSeal>,
    is_plain: bool,
}

impl<'s> EventIds<'s> {
    /// Returns the form for a service without a border.
    pub(crate) fn plain() -> EventIds<'s> {
        EventIds {
            seal: None,
            is_plain: true,
        }
    }

    /// Returns the form for a client of a border, which may be told of every change or not.
    pub(super) fn of(seal: &'s PositionSeal, may_be_told_all: bool) -> EventIds<'s> {
        EventIds {
            seal: Some(seal),
            is_plain: may_be_told_all,
        }
    }

    /// Returns true if ids are positions as they are, so that frames with one serve many clients.
    pub(crate) fn are_plain(self) -> bool {
        self.is_plain
    }

    /// Returns the id of a notice at its own position: always the same one.
    pub(crate) fn of_notice(self, position: Position) -> EventId {
        match self.seal {
            Some(seal) if !self.is_plain => seal.seal_notice(position),
            _ => EventId::Plain(position),
        }
    }

    /// Returns an id for any other place. An encrypted one is new each time: the same id twice would say that
    /// nothing changed in between that the client may not see.
    pub(crate) fn of_place(self, position: Position) -> EventId {
        // A salt that is used twice tells no more than that.
        match self.seal {
            Some(seal) if !self.is_plain => seal.seal(position, getrandom::u32().unwrap_or(1).max(1)),
            _ => EventId::Plain(position),
        }
    }

    /// Reads an id that the client sends; none if it cannot be one of its own. Positions as they are would
    /// let a client ask for the number of changes, so only those that may know them can send them.
    pub(crate) fn read(self, text: &str) -> Option<Position> {
        // Also for a client that gained rights: its last id is one from before.
        let sealed = self.seal.and_then(|seal| seal.open(text));
        match self.is_plain {
            true => sealed.or_else(|| text.parse().ok()),
            false => sealed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(epoch: u64, offset: u64) -> Position {
        Position { epoch, offset }
    }

    proptest! {
        #[test]
        fn ids_read_back_as_their_position(epoch: u64, offset: u64, salt: u32, key: [u8; 32]) {
            let seal = PositionSeal::new(&key);
            let position = at(epoch, offset);
            for is_plain in [false, true] {
                let ids = EventIds::of(&seal, is_plain);
                for id in [ids.of_notice(position), ids.of_place(position), seal.seal(position, salt)] {
                    prop_assert_eq!(ids.read(&id.to_string()), Some(position));
                }
            }
            let again = PositionSeal::new(&key);
            prop_assert_eq!(again.open(&seal.seal(position, salt).to_string()), Some(position));
        }

        #[test]
        fn another_text_is_no_id_of_this_history(text in "[0-9a-f]{40}", flipped in 0..40_usize) {
            let seal = PositionSeal::new(&[7; 32]);
            let epoch = 0x19a3;
            if let Some(made_up) = seal.open(&text) {
                prop_assert_ne!(made_up.epoch, epoch);
            }
            let mut id = seal.seal(at(epoch, 5), 0).to_string().into_bytes();
            id[flipped] = if id[flipped] == b'0' { b'1' } else { b'0' };
            let changed = seal.open(std::str::from_utf8(&id).unwrap()).unwrap();
            prop_assert_ne!(changed.epoch, epoch);
        }
    }

    #[test]
    fn restricted_client_can_send_no_position() {
        let seal = PositionSeal::random();
        let restricted = EventIds::of(&seal, false);
        for text in ["", "a-3", "0-0", &"+".repeat(40), &"é".repeat(20)] {
            assert_eq!(restricted.read(text), None, "{text}");
        }
        assert_eq!(EventIds::of(&seal, true).read("a-3"), Some(at(10, 3)));
        assert_eq!(EventIds::plain().read("a-3"), Some(at(10, 3)));
        assert_eq!(EventIds::plain().of_place(at(10, 3)).to_string(), "a-3");
    }

    #[test]
    fn place_has_another_id_each_time() {
        let seal = PositionSeal::random();
        let ids = EventIds::of(&seal, false);
        assert_eq!(ids.of_notice(at(10, 3)), ids.of_notice(at(10, 3)));
        let another = PositionSeal::random();
        assert_ne!(
            EventIds::of(&another, false).of_notice(at(10, 3)),
            ids.of_notice(at(10, 3))
        );
        let places: std::collections::HashSet<String> =
            (0..50).map(|_| ids.of_place(at(10, 3)).to_string()).collect();
        assert!(places.len() > 40, "{}", places.len());
        assert_eq!(format!("{seal:?}"), "***");
    }
}
