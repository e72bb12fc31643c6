//! Texts and figures as HTML. Texts of others never become markup, and characters that cannot be seen, or
//! that turn a text round, are written out.

use crate::bench::report::table::time;
use crate::printable::steers;

/// The characters of a text of others that are shown: the report itself has the rest.
const CUT_AT: usize = 400;

/// Escapes text of our own for HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if steers(c) => escaped.push_str(&format!("\\u{{{:04X}}}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns a text of others as an element: its direction is its own, and hidden characters are marked.
pub(crate) fn foreign(text: &str) -> String {
    let mut html = "<bdi dir=\"ltr\" class=\"foreign\">".to_owned();
    for c in text.chars().take(CUT_AT) {
        let escaped = escape(c.encode_utf8(&mut [0; 4]));
        match steers(c) {
            true => html += &format!("<span class=\"escaped\">{escaped}</span>"),
            false => html += &escaped,
        }
    }
    html += "</bdi>";
    match text.chars().count() {
        0..=CUT_AT => html,
        all => {
            html + &format!(
                " <span class=\"soft\">… {} more characters</span>",
                count(all as f64 - CUT_AT as f64)
            )
        }
    }
}

/// Returns a figure with the field of the report that it comes from, so that it can be found and compared.
pub(crate) fn datum(field: &str, value: f64, shown: &str) -> String {
    let field = escape(field);
    let shown = escape(shown);
    format!("<data data-field=\"{field}\" value=\"{value}\">{shown}</data>")
}

/// Writes a number as people do: `12,345`, `12.3`, `0.12`.
pub(crate) fn count(value: f64) -> String {
    let decimals = match value.abs() {
        _ if value.fract() == 0.0 => 0,
        0.0..1.0 => 2,
        1.0..100.0 => 1,
        _ => 0,
    };
    // Beyond that the digits are noise.
    if value.abs() >= 1e15 {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (text.as_str(), String::new()),
    };
    grouped(whole) + &fraction
}

/// Puts a comma before each three digits.
fn grouped(whole: &str) -> String {
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a share as percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", count(share * 100.0))
}

/// Writes microseconds.
pub(crate) fn micros(us: f64) -> String {
    time(us as u64)
}

/// Writes microseconds at a tick, whose number is round: `2 ms`, `2.5 s`.
pub(crate) fn micros_tick(us: f64) -> String {
    let (value, unit) = match us {
        ..1e3 => (us, "µs"),
        1e3..1e6 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    format!("{} {unit}", round(value))
}

/// Writes seconds at a tick: `2 s`, `3 min`.
pub(crate) fn seconds_tick(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{} s", round(seconds)),
        120.0..7_200.0 => format!("{} min", round(seconds / 60.0)),
        _ => format!("{} h", round(seconds / 3_600.0)),
    }
}

/// Writes a round number at a tick.
pub(crate) fn round(value: f64) -> String {
    if value.abs() >= 1_000.0 {
        return count(value);
    }
    // Sums of binary fractions are off in the last digits.
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes KiB.
pub(crate) fn kib(kib: f64) -> String {
    match kib.abs() {
        ..1_024.0 => format!("{} KiB", count(kib)),
        1_024.0..1_048_576.0 => format!("{} MiB", count(kib / 1_024.0)),
        _ => format!("{} GiB", count(kib / 1_048_576.0)),
    }
}

/// Writes MiB at a tick.
pub(crate) fn mib_tick(mib: f64) -> String {
    format!("{} MiB", round(mib))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (0.123, "0.12"),
            (12.34, "12.3"),
            (999.6, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-4_321.0, "-4,321"),
            (1e300, "1.00e300"),
        ] {
            assert_eq!(count(value), expected);
        }
        assert_eq!(percent(0.005), "0.50 %");
        assert_eq!([0.0, 2_500.0, 1e6].map(micros_tick), ["0 µs", "2.5 ms", "1 s"]);
        assert_eq!([0.5, 30.0, 600.0].map(seconds_tick), ["0.5 s", "30 s", "10 min"]);
        assert_eq!([512.0, 18_432.0].map(kib), ["512 KiB", "18 MiB"]);
    }

    #[test]
    fn hidden_characters_are_written_out() {
        assert_eq!(escape("a\u{202e}b"), "a\\u{202E}b");
        let html = foreign("<b>\u{202e}");
        assert!(
            html.contains("&lt;b&gt;<span class=\"escaped\">\\u{202E}</span>"),
            "{html}"
        );
        assert!(foreign(&"x".repeat(1_400)).contains("… 1,000 more characters"));
    }

    proptest! {
        #[test]
        fn text_never_becomes_markup(text in any::<String>()) {
            for html in [escape(&text), datum(&text, 1.0, &text)] {
                let html = html.replace("<data data-field=\"", "").replace("\" value=\"1\">", "").replace("</data>", "");
                prop_assert!(!html.contains(['<', '>', '"', '\'']), "{}", html);
                prop_assert!(!html.contains(steers));
            }
        }
    }
}
