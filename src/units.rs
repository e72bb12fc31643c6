//! Sizes and durations as people write them: a whole number and a unit, such as `64KiB` or `15s`.

/// Sizes in bytes, with the units `B`, `KiB`, `MiB` and `GiB`.
pub(crate) mod size {
    /// Units with their bytes, largest first, so that the first one that divides gives the shortest text.
    ///
    /// Units of 1000 (`kB`, `MB`) are refused: half of their writers mean 1024, and a limit must not be
    /// guessed.
    const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

    /// Reads `"64KiB"`; `None` for anything else, a bare number included.
    pub(crate) fn parse(text: &str) -> Option<u64> {
        super::parse(text, &UNITS)
    }

    /// Writes a size with the largest unit that keeps the number whole.
    pub(crate) fn text(bytes: u64) -> String {
        let largest = UNITS.iter().find(|(_, size)| bytes.is_multiple_of(*size));
        match largest {
            // Zero is a multiple of every unit.
            Some((unit, size)) if bytes > 0 => format!("{}{unit}", bytes / size),
            _ => format!("{bytes}B"),
        }
    }
}

/// Durations, with the units `ms`, `s`, `m` and `h`.
pub(crate) mod time {
    use std::time::Duration;

    /// Units with their milliseconds, largest first.
    const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

    /// Reads `"15s"`; `None` for anything else, a number without a unit included.
    pub(crate) fn parse(text: &str) -> Option<Duration> {
        super::parse(text, &UNITS).map(Duration::from_millis)
    }

    /// Writes a duration with the largest unit that keeps the number whole. Cuts parts of a millisecond off.
    pub(crate) fn text(duration: Duration) -> String {
        let millis = duration.as_millis();
        let largest = UNITS
            .iter()
            .find(|(_, size)| millis.is_multiple_of(u128::from(*size)));
        match largest {
            // Zero is a multiple of every unit; in seconds it is written most often.
            Some((unit, size)) if millis > 0 => format!("{}{unit}", millis / u128::from(*size)),
            _ => "0s".to_owned(),
        }
    }
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, size) = units.iter().find(|(name, _)| *name == unit)?;
    // The number may fit into 64 bits and its product with the unit may not.
    number.parse::<u64>().ok()?.checked_mul(*size)
}

#[cfg(test)]
mod tests {
    use super::{size, time};
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn size_with_each_unit_is_read() {
        assert_eq!(size::parse("10B"), Some(10));
        assert_eq!(size::parse("64KiB"), Some(65_536));
        assert_eq!(size::parse("4MiB"), Some(4_194_304));
        assert_eq!(size::parse("1GiB"), Some(1_073_741_824));
    }

    #[test]
    fn size_in_other_forms_is_refused() {
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
            assert_eq!(size::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn size_is_written_in_the_shortest_form() {
        assert_eq!(size::text(0), "0B");
        assert_eq!(size::text(1000), "1000B");
        assert_eq!(size::text(1 << 20), "1MiB");
        assert_eq!(size::text(1 << 14), "16KiB");
    }

    #[test]
    fn duration_with_each_unit_is_read() {
        assert_eq!(time::parse("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(time::parse("15s"), Some(Duration::from_secs(15)));
        assert_eq!(time::parse("5m"), Some(Duration::from_secs(300)));
        assert_eq!(time::parse("1h"), Some(Duration::from_secs(3600)));
    }

    #[test]
    fn duration_in_other_forms_is_refused() {
        for wrong in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "+5s",
            "1.5s",
            "1h30m",
            "5S",
            "5sec",
            "99999999999999999999s",
        ] {
            assert_eq!(time::parse(wrong), None, "{wrong}");
        }
        assert_eq!(
            time::parse("18446744073709551615h"),
            None,
            "more milliseconds than fit"
        );
    }

    #[test]
    fn duration_is_written_in_the_shortest_form() {
        assert_eq!(time::text(Duration::ZERO), "0s");
        assert_eq!(time::text(Duration::from_millis(1500)), "1500ms");
        assert_eq!(time::text(Duration::from_secs(90)), "90s");
        assert_eq!(time::text(Duration::from_secs(24 * 3600)), "24h");
    }

    proptest! {
        #[test]
        fn written_size_is_read_again(bytes: u64) {
            prop_assert_eq!(size::parse(&size::text(bytes)), Some(bytes));
        }

        #[test]
        fn written_duration_is_read_again(millis: u64) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(time::parse(&time::text(duration)), Some(duration));
        }
    }
}
