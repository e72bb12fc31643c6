//! Durations on the command line: alike in every option.

use std::time::Duration;

/// The longest duration of an option.
const MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads a duration of at most 24 hours: a number with a unit (`us`, `ms`, `s`, `m`, `h`), or of seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let written = "write a time of at most 24h, such as 500ms, 10s, 1.5m or a number of seconds";
    parse(text).ok_or_else(|| written.to_owned())
}

/// Reads a duration that is not zero.
pub(super) fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("write a time that is more than 0".to_owned()),
        time => Ok(time),
    }
}

fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    // Without a unit it is a number of seconds, as `sleep` and `timeout` take it.
    let at = at.unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit.trim_start() {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    (time <= MAX).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_or_are_seconds() {
        for (text, millis) in [
            ("500ms", 500),
            ("0.1", 100),
            ("3", 3_000),
            ("10s", 10_000),
            ("1.5m", 90_000),
            ("24h", 86_400_000),
            ("0s", 0),
            ("2 s", 2_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "1d", "25h", "1e9", "inf", "NaN", "1.2.3s"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(positive("0ms").is_err() && positive("1ms").is_ok());
    }
}
