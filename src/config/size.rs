//! Sizes as people write them: a whole number of bytes, or one with a unit `B`, `KiB`, `MiB`, `GiB`.
//!
//! Pure text in, bytes out, and back; it never rounds.
//! Units of 1000 (`kB`, `MB`) are refused, since nobody can tell which of the two their writer meant.

/// Units with their bytes, largest first, so that the first one that divides is the shortest text.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads `"64KiB"`; `None` for anything else, a bare number included.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// Writes a size with the largest unit that keeps the number whole.
pub(crate) fn text(bytes: u64) -> String {
    let (unit, size) = UNITS
        .iter()
        .find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size))
        .unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_is_read() {
        assert_eq!(parse("10B"), Some(10));
        assert_eq!(parse("64KiB"), Some(65_536));
        assert_eq!(parse("4MiB"), Some(4_194_304));
        assert_eq!(parse("1GiB"), Some(1_073_741_824));
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            "",
            "64",
            "KiB",
            "64 KiB",
            "-1KiB",
            "1.5MiB",
            "64kB",
            "64KB",
            "64kib",
            "99999999999GiB",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_shortest_text_is_written() {
        assert_eq!(text(0), "0B");
        assert_eq!(text(1000), "1000B");
        assert_eq!(text(1 << 20), "1MiB");
        assert_eq!(text(1 << 14), "16KiB");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes: u64) {
            prop_assert_eq!(parse(&text(bytes)), Some(bytes));
        }
    }
}
