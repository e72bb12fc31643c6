//! The characters of a URI, percent-decoded one by one.

/// One character of a URI: plain, or percent-encoded with all the bytes of its UTF-8, so that no split cuts
/// through it.
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

    pub(super) fn of_literal(character: char) -> Option<Unit> {
        // The ranges `ucschar` and `iprivate` of RFC 6570, section 2.1.
        let is_foreign = matches!(u32::from(character), 0xA0..=0xFDCF | 0xFDF0..=0xFFEF | 0x1_0000..=0xD_FFFF
            | 0xE_1000..=0x10_FFFF if u32::from(character) & 0xFFFE != 0xFFFE);
        // Expansion percent-encodes these characters, so a URI has them in that form.
        Unit::of_uri(character).or_else(|| is_foreign.then(|| Unit::encoded(character)))
    }
}

pub(super) fn is_unreserved(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._~".contains(character)
}

/// Cuts `text` into units. Fails with the byte offset of the first character that `read` rejects or of the
/// first triplet that is not UTF-8.
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

/// Decodes the percent-encoded triplets at the start of `text`.
fn read_triplets(text: &[u8]) -> Vec<u8> {
    text.chunks_exact(3).map_while(read_triplet).collect()
}

fn read_triplet(triplet: &[u8]) -> Option<u8> {
    let high = char::from(triplet[1]).to_digit(16)?;
    let low = char::from(triplet[2]).to_digit(16)?;
    (triplet[0] == b'%').then_some((high << 4 | low) as u8)
}
