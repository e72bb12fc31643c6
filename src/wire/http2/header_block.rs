//! Header blocks (HPACK, RFC 7541): requests as literals without indexing, and the status of answers.
//!
//! Nothing here changes the dynamic table of either side, so a block means the same on every connection.

use crate::wire::header_lines::HeaderLines;

/// The entries of the static table that requests use.
const METHOD_POST: u8 = 0x80 | 3;
const SCHEME_HTTP: u8 = 0x80 | 6;
const SCHEME_HTTPS: u8 = 0x80 | 7;
const AUTHORITY: u8 = 1;
const PATH: u8 = 4;

/// The statuses of the static table, from its entry 8 on.
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
/// The first of these entries, and the last.
const STATUS_FIRST: u8 = 8;
const STATUS_LAST: u8 = 14;

/// The kinds of literals: the first for most headers, the second for secrets, which no proxy may index.
const PLAIN: u8 = 0x00;
const NEVER_INDEXED: u8 = 0x10;

/// The headers of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderBlock(Vec<u8>);

impl HeaderBlock {
    /// Begins the headers of a POST.
    pub fn post(is_secure: bool, authority: &str, path: &str) -> HeaderBlock {
        let scheme = match is_secure {
            true => SCHEME_HTTPS,
            false => SCHEME_HTTP,
        };
        let mut block = HeaderBlock(vec![METHOD_POST, scheme]);
        block.0.push(AUTHORITY);
        block.text(authority.bytes());
        block.0.push(PATH);
        block.text(path.bytes());
        block
    }

    /// Adds a header; its name is written in small letters.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> HeaderBlock {
        self.add(PLAIN, name.as_bytes(), value.as_bytes());
        self
    }

    /// Adds the headers that every request to a server carries.
    #[must_use]
    pub fn lines(mut self, lines: &HeaderLines) -> HeaderBlock {
        let mut text = Vec::new();
        lines.write_to(&mut text);
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(colon) = memchr::memchr(b':', line) {
                self.add(NEVER_INDEXED, &line[..colon], line[colon + 1..].trim_ascii());
            }
        }
        self
    }

    /// Writes the block to `out`, with a header of the body's length at its end.
    pub fn write_with_length(&self, body: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.0);
        let mut block = HeaderBlock(std::mem::take(out));
        block.add(PLAIN, b"content-length", body.to_string().as_bytes());
        *out = block.0;
    }

    fn add(&mut self, kind: u8, name: &[u8], value: &[u8]) {
        self.0.push(kind);
        self.text(name.iter().map(u8::to_ascii_lowercase));
        self.text(value.iter().copied());
    }

    /// Writes a text without Huffman's code.
    fn text(&mut self, text: impl ExactSizeIterator<Item = u8>) {
        let mut length = text.len();
        match length {
            0..0x7f => self.0.push(length as u8),
            _ => {
                self.0.push(0x7f);
                length -= 0x7f;
                while length >= 0x80 {
                    self.0.push(0x80 | (length & 0x7f) as u8);
                    length >>= 7;
                }
                self.0.push(length as u8);
            }
        }
        self.0.extend(text);
    }
}

/// Returns the status of an answer, which is the first of its headers; none where it cannot be read without
/// the dynamic table.
pub fn status(block: &[u8]) -> Option<u16> {
    let mut rest = block;
    loop {
        match *rest {
            // A new size of the dynamic table, which nothing here uses.
            [first @ 0x20..=0x3f, ref after @ ..] => rest = skip_integer(first & 0x1f == 0x1f, after)?,
            [first @ 0x80..=0xff, ..] => {
                let entry = first & 0x7f;
                return STATUSES
                    .get(usize::from(entry.checked_sub(STATUS_FIRST)?))
                    .copied();
            }
            // A literal whose name is that of an entry of the static table.
            [first, ref value @ ..] => {
                let entry = match first & 0x40 {
                    0 => first & 0x0f,
                    _ => first & 0x3f,
                };
                let is_status = (STATUS_FIRST..=STATUS_LAST).contains(&entry);
                return is_status.then(|| status_text(value))?;
            }
            [] => return None,
        }
    }
}

/// Skips the bytes of an integer after its first one, if it has more.
fn skip_integer(has_more: bool, bytes: &[u8]) -> Option<&[u8]> {
    match has_more {
        true => {
            let last = bytes.iter().position(|byte| byte & 0x80 == 0)?;
            bytes.get(last + 1..)
        }
        false => Some(bytes),
    }
}

fn status_text(value: &[u8]) -> Option<u16> {
    let (first, text) = value.split_first()?;
    let text = text.get(..usize::from(first & 0x7f))?;
    match first & 0x80 {
        0 => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => huffman_digits(text),
    }
}

/// Reads three digits in Huffman's code: 0 to 2 have five bits, the others six (RFC 7541, appendix B).
fn huffman_digits(text: &[u8]) -> Option<u16> {
    let mut bits: u32 = 0;
    for byte in text.get(..3).unwrap_or(text) {
        bits = bits << 8 | u32::from(*byte);
    }
    let mut left = text.len().min(3) as u32 * 8;
    let mut number = 0;
    for _ in 0..3 {
        let five = bits >> left.checked_sub(5)? & 0x1f;
        let digit = match five {
            0..=2 => {
                left -= 5;
                five
            }
            _ => {
                left = left.checked_sub(6)?;
                (bits >> left & 0x3f).checked_sub(0x19)? + 3
            }
        };
        if digit > 9 {
            return None;
        }
        number = number * 10 + digit;
    }
    u16::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn request_is_written_as_literals() {
        let lines = HeaderLines::default();
        lines.set([("Authorization", &b"Bearer t"[..])]);
        let block = HeaderBlock::post(false, "a:1", "/mcp")
            .header("Accept", "x")
            .lines(&lines);
        let mut bytes = vec![1, 2, 3];
        block.write_with_length(42, &mut bytes);
        let expected = b"\x83\x86\x01\x03a:1\x04\x04/mcp\x00\x06accept\x01x\
            \x10\x0dauthorization\x08Bearer t\x00\x0econtent-length\x0242";
        assert_eq!(bytes, expected);
        assert_eq!(HeaderBlock::post(true, "", "/").0[1], 0x87);
    }

    #[test]
    fn long_values_have_a_length_of_several_bytes() {
        let block = HeaderBlock::post(false, "a", "/").header("n", &"x".repeat(1337));
        // 1337 - 127 = 1210 = 9 * 128 + 58.
        assert!(
            block
                .0
                .windows(4)
                .any(|bytes| bytes == [b'n', 0x7f, 0x80 | 58, 9])
        );
    }

    #[test]
    fn status_is_read_in_every_form() {
        for (block, expected) in [
            (&b"\x88"[..], Some(200)),
            (b"\x8d\x00", Some(404)),
            (b"\x20\x88", Some(200)),
            (b"\x3f\xe1\x1f\x8c", Some(400)),
            (b"\x48\x03429", Some(429)),
            (b"\x08\x03503", Some(503)),
            (b"\x1e\x03401", Some(401)),
            // "302" as appendix C.6.1 of RFC 7541 has it, and "307" of C.6.2.
            (b"\x48\x82\x64\x02", Some(302)),
            (b"\x48\x83\x64\x0e\xff", Some(307)),
            (b"\xbe", None),
            (b"\x87", None),
            (b"\x40\x03abc", None),
            (b"\x48\x05429", None),
            (b"\x48\x80", None),
            (b"\x3f\xff", None),
            (b"", None),
        ] {
            assert_eq!(status(block), expected, "{block:x?}");
        }
    }

    proptest! {
        #[test]
        fn no_block_breaks_the_status(block in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Some(status) = status(&block) {
                prop_assert!(status < 1000 || block.len() > 4);
            }
        }
    }
}
