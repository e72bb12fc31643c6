//! The URIs of views, and titles for people.

use crate::uri_encoding::EXCEPT_UNRESERVED;
use percent_encoding::utf8_percent_encode;
use tidings_actors::{InvalidUri, ResourceUri};

/// Characters of a value that a title shows.
const TITLE_CHARS_MAX: usize = 80;

/// Returns the URI of a view, `NAME://VIEW`.
pub(super) fn view_uri(name: &str, view: &str) -> ResourceUri {
    ResourceUri::new(&format!("{name}://{view}"))
        .expect("names of collections and views are identifiers: the configuration was checked")
}

/// Returns the URI of a group, `NAME://VIEW/{value}`. Fails if it is longer than a URI may be.
pub(super) fn value_uri(name: &str, view: &str, value: &str) -> Result<ResourceUri, InvalidUri> {
    ResourceUri::new(&format!("{name}://{view}/{}", encode(value)))
}

/// Percent-encodes a value for a URI. Each value has exactly one encoding.
pub(super) fn encode(value: &str) -> String {
    utf8_percent_encode(value, EXCEPT_UNRESERVED).to_string()
}

/// Shortens a value for a title, and puts it on one line.
pub(super) fn shorten(value: &str) -> String {
    let mut short = String::new();
    for (position, c) in value.chars().enumerate() {
        if position == TITLE_CHARS_MAX {
            short.push('…');
            break;
        }
        short.push(if c.is_control() { ' ' } else { c });
    }
    short
}

/// Turns a name for programs into a title: `open_items` becomes `Open items`.
pub(super) fn title_from_name(name: &str) -> String {
    let mut title = name.replace(['_', '-'], " ");
    // Names are ASCII identifiers, so the first byte is the first character.
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    title
}

/// Returns a title as it reads within a sentence: `Annotations` becomes `annotations`, `URLs` stays.
pub(super) fn within_sentence(title: &str) -> String {
    let mut rest = title.chars();
    let Some(first) = rest.next() else {
        return String::new();
    };
    // Two capitals begin an abbreviation.
    if let Some(second) = rest.clone().next()
        && second.is_uppercase()
    {
        return title.to_owned();
    }
    first.to_lowercase().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;
    use tidings_actors::UriTemplate;

    #[test]
    fn value_uri_keeps_unreserved_characters() {
        let uri = value_uri("annotations", "page", "/a b?é~-._!$&'()*+,;=:@").unwrap();
        assert_eq!(
            uri.as_str(),
            "annotations://page/%2Fa%20b%3F%C3%A9~-._%21%24%26%27%28%29%2A%2B%2C%3B%3D%3A%40"
        );
        assert!(value_uri("a", "b", &"é".repeat(400)).is_err());
    }

    #[test]
    fn titles_read_like_words() {
        assert_eq!(title_from_name("open_items"), "Open items");
        assert_eq!(
            (within_sentence("Annotations"), within_sentence("URLs")),
            ("annotations".to_owned(), "URLs".to_owned())
        );
        assert_eq!(within_sentence("É"), "é");
        assert_eq!(shorten("a\nb"), "a b");
        assert_eq!(shorten(&"x".repeat(81)).chars().count(), 81);
    }

    proptest! {
        #[test]
        fn value_comes_back_from_its_uri(value in ".{1,60}") {
            let encoded = encode(&value);
            prop_assert!(encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)));
            prop_assert_eq!(percent_decode_str(&encoded).decode_utf8().unwrap(), value.as_str());
            let template = UriTemplate::parse("a://b/{value}").unwrap();
            let uri = value_uri("a", "b", &value).unwrap();
            let variables = template.matches(uri.as_str()).expect("a member of its template");
            prop_assert_eq!(variables.get("value"), Some(value.as_str()));
        }

        #[test]
        fn distinct_values_have_distinct_uris(a in ".{0,8}", b in ".{0,8}") {
            prop_assert_eq!(a == b, encode(&a) == encode(&b));
        }
    }
}
