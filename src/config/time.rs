//! Durations as people write them: a whole number and one of the units `ms`, `s`, `m`, `h`.
//!
//! Pure text in, [`Duration`] out, and back.
//! It never rounds what it reads; what it writes is cut to whole milliseconds, the smallest unit there is.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::time::Duration;

/// Units with their milliseconds, largest first, so that the first one that divides is the shortest text.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads `"15s"`; `None` for anything else, a number without a unit included.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(
        number.parse::<u64>().ok()?.checked_mul(*millis)?,
    ))
}

/// Writes a duration with the largest unit that keeps the number whole.
pub(crate) fn text(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let (unit, size) = UNITS
        .iter()
        .find(|(_, size)| millis.is_multiple_of(u128::from(*size)))
        .expect("one millisecond divides every count of milliseconds");
    format!("{}{unit}", millis / u128::from(*size))
}

/// For `#[serde(with = "time")]`.
pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    text(*duration).serialize(serializer)
}

/// For `#[serde(with = "time")]`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let written = String::deserialize(deserializer)?;
    parse(&written).ok_or_else(|| D::Error::custom("a duration has a whole number and a unit"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_is_read() {
        assert_eq!(parse("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(parse("15s"), Some(Duration::from_secs(15)));
        assert_eq!(parse("5m"), Some(Duration::from_secs(300)));
        assert_eq!(parse("1h"), Some(Duration::from_secs(3600)));
    }

    #[test]
    fn anything_else_is_refused() {
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
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse("18446744073709551615h"), None, "more milliseconds than fit");
    }

    #[test]
    fn the_shortest_text_is_written() {
        assert_eq!(text(Duration::ZERO), "0s");
        assert_eq!(text(Duration::from_millis(1500)), "1500ms");
        assert_eq!(text(Duration::from_secs(90)), "90s");
        assert_eq!(text(Duration::from_secs(24 * 3600)), "24h");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(millis: u64) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse(&text(duration)), Some(duration));
        }
    }
}
