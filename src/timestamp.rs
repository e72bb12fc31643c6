//! Points in time as text: `2026-11-21T10:00:00Z` or `2026-11-21T10:00:00.000Z`.

use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

/// Returns `at` to the second; a time before 1970 is shown as 1970.
pub(crate) fn utc(at: SystemTime) -> String {
    format!("{}Z", seconds(date_time(at)))
}

/// Returns `at` to the millisecond; a time before 1970 is shown as 1970.
pub(crate) fn utc_millis(at: SystemTime) -> String {
    let at = date_time(at);
    format!("{}.{:03}Z", seconds(at), at.millisecond())
}

fn date_time(at: SystemTime) -> OffsetDateTime {
    OffsetDateTime::from(at.max(UNIX_EPOCH))
}

// Written out, because the formatter of `time` is a feature that compiles many times this code.
fn seconds(at: OffsetDateTime) -> String {
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_times_have_their_text() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_764_000_000, "2025-11-24T16:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
        assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
        assert_eq!(
            utc_millis(UNIX_EPOCH + Duration::from_micros(951_782_400_007_999)),
            "2000-02-29T00:00:00.007Z"
        );
    }
}
