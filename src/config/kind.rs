//! What a value may be: its type, its range, and the words for both.
//!
//! Pure: a [`Kind`] receives a [`Raw`] value from the file, the environment or the command line and answers the
//! value to use, or nothing. It never knows which key it serves; the messages are made in `written`, the
//! documentation in `reference`, both from [`Kind::expects`], so that no range is stated twice.

use super::{name, size, time};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// Most items a list may have; each is compared with a header of every request.
const LIST_ITEMS_MAX: usize = 256;

/// Type and range of one key; bounds are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count { min: u64, max: u64 },
    /// A size in bytes.
    Bytes { min: u64, max: u64 },
    /// A duration.
    Time { min: Duration, max: Duration },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Free text, by its length in bytes.
    Text { min: usize, max: usize },
    /// An IP address and a port.
    Address,
    /// An IP address and a port, or nothing.
    OptionalAddress,
    /// Hosts without ports.
    Hosts,
    /// Origins as browsers send them.
    Origins,
    /// A URI scheme.
    Scheme,
    /// A folder, or nothing.
    Folder,
}

/// A value as written, before anyone asked whether its key can have it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw {
    /// A boolean.
    Flag(bool),
    /// An integer.
    Integer(i64),
    /// A string.
    Text(String),
    /// An array of strings.
    List(Vec<String>),
    /// A type that no key has, such as a float or a date.
    Other,
}

impl Raw {
    /// Reads the text of an environment variable, or of a default, in the type its key asks for.
    ///
    /// Text that does not fit stays text, which the kind then refuses.
    pub(super) fn from_text(kind: Kind, text: &str) -> Self {
        let typed = match kind {
            Kind::Flag => text.parse().ok().map(Self::Flag),
            Kind::Count { .. } | Kind::Bytes { .. } => text.parse().ok().map(Self::Integer),
            Kind::Hosts | Kind::Origins => Some(Self::List(items(text))),
            _ => None,
        };
        typed.unwrap_or_else(|| Self::Text(text.to_owned()))
    }
}

/// The items of a comma-separated list; empty text is the empty list.
fn items(text: &str) -> Vec<String> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    text.split(',').map(|item| item.trim().to_owned()).collect()
}

impl Kind {
    /// The value to use, in its normal form, or `None` when the type or the range is wrong.
    pub(super) fn check(self, raw: &Raw) -> Option<Value> {
        match (self, raw) {
            (Self::Flag, Raw::Flag(flag)) => Some(Value::from(*flag)),
            (Self::Count { min, max } | Self::Bytes { min, max }, Raw::Integer(number)) => {
                between(u64::try_from(*number).ok()?, min, max).map(Value::from)
            }
            (Self::Bytes { min, max }, Raw::Text(text)) => {
                between(size::parse(text)?, min, max).map(Value::from)
            }
            (Self::Hosts, Raw::List(items)) => normal_list(items, name::host),
            (Self::Origins, Raw::List(items)) => normal_list(items, name::origin),
            (kind, Raw::Text(text)) => kind.check_text(text).map(Value::from),
            _ => None,
        }
    }

    fn check_text(self, text: &str) -> Option<String> {
        match self {
            Self::Time { min, max } => between(time::parse(text)?, min, max).map(time::text),
            Self::Choice(words) => words.contains(&text).then(|| text.to_owned()),
            Self::Text { min, max } => (min..=max).contains(&text.len()).then(|| text.to_owned()),
            Self::Address => text.parse::<SocketAddr>().ok().map(|address| address.to_string()),
            Self::OptionalAddress if text.is_empty() => Some(String::new()),
            Self::OptionalAddress => Self::Address.check_text(text),
            Self::Scheme => name::scheme(text),
            Self::Folder => (!text.contains('\0')).then(|| text.to_owned()),
            Self::Flag | Self::Count { .. } | Self::Bytes { .. } | Self::Hosts | Self::Origins => None,
        }
    }

    /// Type and range in words, for messages and for the documentation.
    pub(super) fn expects(self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Count { min, max } => format!("an integer from {min} to {max}"),
            Self::Bytes { min, max } => {
                format!("a size from \"{}\" to \"{}\"", size::text(min), size::text(max))
            }
            Self::Time { min, max } => format!(
                "a duration from \"{}\" to \"{}\"",
                time::text(min),
                time::text(max)
            ),
            Self::Choice(words) => format!("\"{}\"", words.join("\" or \"")),
            Self::Text { min, max } => format!("a text of {min} to {max} bytes"),
            Self::Address => "an IP address and a port".to_owned(),
            Self::OptionalAddress => "an IP address and a port, or \"\" for none".to_owned(),
            Self::Hosts => {
                format!("a list of at most {LIST_ITEMS_MAX} host names or IP addresses, without ports")
            }
            Self::Origins => {
                format!("a list of at most {LIST_ITEMS_MAX} origins such as \"https://app.example\"")
            }
            Self::Scheme => {
                "a URI scheme: a letter, then letters, digits, \"+\", \"-\" or \".\", 64 at most".to_owned()
            }
            Self::Folder => "a path in UTF-8, or \"\" for none".to_owned(),
        }
    }
}

fn between<T: PartialOrd + Copy>(value: T, min: T, max: T) -> Option<T> {
    (min <= value && value <= max).then_some(value)
}

fn normal_list(items: &[String], normal: fn(&str) -> Option<String>) -> Option<Value> {
    if items.len() > LIST_ITEMS_MAX {
        return None;
    }
    items
        .iter()
        .map(|item| normal(item))
        .collect::<Option<Vec<_>>>()
        .map(Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Raw {
        Raw::Text(text.to_owned())
    }

    #[test]
    fn bounds_are_inclusive() {
        let kind = Kind::Count { min: 1, max: 100 };
        assert_eq!(kind.check(&Raw::Integer(1)), Some(Value::from(1)));
        assert_eq!(kind.check(&Raw::Integer(100)), Some(Value::from(100)));
        for outside in [0, -1, 101, i64::MAX, i64::MIN] {
            assert_eq!(kind.check(&Raw::Integer(outside)), None, "{outside}");
        }
    }

    #[test]
    fn a_size_is_a_number_or_a_text() {
        let kind = Kind::Bytes { min: 1024, max: 4096 };
        assert_eq!(kind.check(&Raw::Integer(2048)), Some(Value::from(2048)));
        assert_eq!(kind.check(&text("2KiB")), Some(Value::from(2048)));
        assert_eq!(kind.check(&text("5KiB")), None);
        assert_eq!(
            kind.check(&text("2048")),
            None,
            "a number in quotes is a wrong type in a file"
        );
    }

    #[test]
    fn durations_are_compared_as_durations() {
        let kind = Kind::Time {
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
        };
        assert_eq!(kind.check(&text("60000ms")), Some(Value::from("1m")));
        assert_eq!(kind.check(&text("999ms")), None);
        assert_eq!(
            kind.check(&Raw::Integer(15)),
            None,
            "a duration without unit says nothing"
        );
    }

    #[test]
    fn text_of_the_environment_takes_the_type_of_its_key() {
        let count = Kind::Count { min: 0, max: 9 };
        assert_eq!(Raw::from_text(count, "7"), Raw::Integer(7));
        assert_eq!(Raw::from_text(count, "seven"), text("seven"));
        assert_eq!(Raw::from_text(Kind::Flag, "true"), Raw::Flag(true));
        assert_eq!(Raw::from_text(Kind::Flag, "yes"), text("yes"));
        assert_eq!(
            Raw::from_text(Kind::Hosts, " a , b"),
            Raw::List(vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(Raw::from_text(Kind::Hosts, ""), Raw::List(Vec::new()));
        assert_eq!(
            Raw::from_text(Kind::Bytes { min: 0, max: 9 }, "1KiB"),
            text("1KiB")
        );
    }

    #[test]
    fn a_list_is_bounded_and_each_item_is_checked() {
        let list = |items: &[&str]| Raw::List(items.iter().map(|item| (*item).to_owned()).collect());
        assert_eq!(
            Kind::Hosts.check(&list(&["A.example"])),
            Some(Value::from(vec!["a.example"]))
        );
        assert_eq!(Kind::Hosts.check(&list(&["a", "*"])), None);
        assert_eq!(
            Kind::Hosts.check(&list(&["a"; LIST_ITEMS_MAX])).map(|_| ()),
            Some(())
        );
        assert_eq!(Kind::Hosts.check(&list(&["a"; LIST_ITEMS_MAX + 1])), None);
        assert_eq!(Kind::Hosts.check(&text("a")), None);
    }
}
