//! A text cut into its characters as a URI spells them.
//!
//! Owns which characters a URI and a literal may have, and percent-decoding.
//! Never knows of variables or operators.
//! Receives text from the parser and the matcher, and sends back units or the byte offset of what is wrong.

/// One character of a URI: plain, or percent-encoded with all the bytes of its UTF-8, so that no split cuts through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) character: char,
    pub(super) is_encoded: bool,
}

impl Unit {
    pub(super) fn plain(character: char) -> Unit {
        Unit {
            character,
            is_encoded: false,
        }
    }

    fn encoded(character: char) -> Unit {
        Unit {
            character,
            is_encoded: true,
        }
    }

    pub(super) fn of_uri(character: char) -> Option<Unit> {
        (is_unreserved(character) || ":/?#[]@!$&'()*+,;=".contains(character)).then(|| Unit::plain(character))
    }

    /// Expansion percent-encodes a literal that is not ASCII, so that is the form to look for.
    pub(super) fn of_literal(character: char) -> Option<Unit> {
        let is_foreign = matches!(u32::from(character), 0xA0..=0xFDCF | 0xFDF0..=0xFFEF | 0x1_0000..=0xD_FFFF
            | 0xE_1000..=0x10_FFFF if u32::from(character) & 0xFFFE != 0xFFFE);
        Unit::of_uri(character).or_else(|| is_foreign.then(|| Unit::encoded(character)))
    }
}

pub(super) fn is_unreserved(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._~".contains(character)
}

/// Fails with the byte offset of the first thing that is neither a triplet of UTF-8 nor read by `read`.
pub(super) fn read_units(text: &str, read: fn(char) -> Option<Unit>) -> Result<Vec<Unit>, usize> {
    let mut units = Vec::with_capacity(text.len());
    let mut offset = 0;
    while let Some(character) = text[offset..].chars().next() {
        if character == '%' {
            let bytes = read_triplets(&text.as_bytes()[offset..]);
            let decoded = std::str::from_utf8(&bytes).map_err(|error| offset + 3 * error.valid_up_to())?;
            if decoded.is_empty() {
                return Err(offset);
            }
            units.extend(decoded.chars().map(Unit::encoded));
            offset += 3 * bytes.len();
        } else {
            units.push(read(character).ok_or(offset)?);
            offset += character.len_utf8();
        }
    }
    Ok(units)
}

/// The bytes of all triplets that `text` begins with.
fn read_triplets(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let read = |triplet: &[u8]| (triplet[0] == b'%').then_some(digit(triplet[1])? << 4 | digit(triplet[2])?);
    text.chunks_exact(3).map_while(read).collect()
}
