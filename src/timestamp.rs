//! A moment as text: `2026-11-21T10:00:00Z` or `2026-11-21T10:00:00.000Z`.
//!
//! Owns the arithmetic from seconds to a date of the Gregorian calendar in UTC. It never asks for the time itself.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// `at` to the second; what lies before 1970 is 1970.
pub(crate) fn utc(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}Z", seconds(since.as_secs()))
}

/// `at` to the millisecond; what lies before 1970 is 1970.
pub(crate) fn utc_millis(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}.{:03}Z", seconds(since.as_secs()), since.subsec_millis())
}

/// Date and time, `seconds` after the beginning of 1970.
fn seconds(seconds: u64) -> String {
    let (year, month, day) = date(seconds / DAY);
    let rest = seconds % DAY;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// The date that lies `days` after 1970-01-01.
fn date(mut days: u64) -> (u64, usize, u64) {
    let mut year = 1970;
    // 400 years repeat exactly, so the walk below is short whatever the date.
    year += days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + leap(year) {
        days -= 365 + leap(year);
        year += 1;
    }
    let months = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

fn leap(year: u64) -> u64 {
    u64::from(year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn text(seconds: u64) -> String {
        utc(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn known_moments() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_764_000_000, "2025-11-24T16:00:00Z"),
            (1_795_255_200, "2026-11-21T10:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(text(seconds), expected);
        }
        assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
        assert_eq!(
            utc_millis(UNIX_EPOCH + Duration::from_micros(951_782_400_007_999)),
            "2000-02-29T00:00:00.007Z"
        );
    }

    proptest! {
        #[test]
        fn later_is_greater_and_a_day_moves_the_date_only(seconds in 0_u64..253_402_214_400, more in 1_u64..DAY) {
            prop_assert!(text(seconds) < text(seconds + more));
            prop_assert_eq!(&text(seconds)[10..], &text(seconds + DAY)[10..]);
        }
    }
}
