//! Points in time as text: `2026-11-21T10:00:00Z` or `2026-11-21T10:00:00.000Z`.

use std::time::{SystemTime, UNIX_EPOCH};

use time::{Date, Month, OffsetDateTime, Time, UtcOffset};

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

/// Reads a point in time as RFC 3339 writes it, such as `2026-11-21T10:00:00Z` or
/// `2026-11-21T10:00:00.5+01:00`.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let (year, month_and_day) = date.split_once('-')?;
    let [month, day] = numbers(month_and_day, '-')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let (nanoseconds, offset) = fraction(rest)?;
    let month = Month::try_from(month).ok()?;
    let date = Date::from_calendar_date(digits(year, 4)?.try_into().ok()?, month, day).ok()?;
    let time = Time::from_hms_nano(hour, minute, second, nanoseconds).ok()?;
    Some(OffsetDateTime::new_in_offset(date, time, utc_offset(offset)?).into())
}

/// Reads numbers of two digits each.
fn numbers<const N: usize>(text: &str, separator: char) -> Option<[u8; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = digits(parts.next()?, 2)?.try_into().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn digits(text: &str, len: usize) -> Option<u32> {
    let is_number = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Reads the part of a second, if there is one. Returns its nanoseconds and the text behind it.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(text) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (written, rest) = text.split_at(end);
    let shortened: String = written.chars().chain("000000000".chars()).take(9).collect();
    (!written.is_empty()).then_some((digits(&shortened, 9)?, rest))
}

fn utc_offset(text: &str) -> Option<UtcOffset> {
    if matches!(text, "Z" | "z") {
        return Some(UtcOffset::UTC);
    }
    let sign = match text.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let [hours, minutes] = numbers(&text[1..], ':')?;
    if minutes > 59 {
        return None;
    }
    let [hours, minutes] = [hours, minutes].map(|number| sign * i32::from(number));
    UtcOffset::from_hms(hours.try_into().ok()?, minutes.try_into().ok()?, 0).ok()
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

    #[test]
    fn written_time_is_read_back() {
        for seconds in [0, 951_782_400, 1_764_000_000, 4_107_542_400, 253_402_300_799] {
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(parse(&utc(at)), Some(at));
        }
        let at = UNIX_EPOCH + Duration::from_secs(1_764_000_000);
        for text in [
            "2025-11-24T17:00:00+01:00",
            "2025-11-24t12:30:00.000-03:30",
            "2025-11-24 16:00:00z",
        ] {
            assert_eq!(parse(text), Some(at), "{text}");
        }
        assert_eq!(
            parse("2025-11-24T16:00:00.25Z"),
            Some(at + Duration::from_millis(250))
        );
    }

    #[test]
    fn other_text_is_no_time() {
        for text in [
            "",
            "2025-11-24",
            "2025-11-24T16:00:00",
            "2025-11-24T16:00Z",
            "2025-13-24T16:00:00Z",
            "2025-02-29T16:00:00Z",
            "2025-11-24T24:00:00Z",
            "2025-11-24T16:00:60Z",
            "2025-11-24T16:00:00.Z",
            "2025-11-24T16:00:00+1:00",
            "2025-11-24T16:00:00+00:60",
            "2025-11-24T16:00:00ZZ",
            "2025-11-24T16:00:00+",
            "+025-11-24T16:00:00Z",
            "20é5-11-24T16:00:00Z",
            "2025-11-24T16:00:00é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
