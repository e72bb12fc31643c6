//! What views are called: their URIs, and titles that a person can read.
//!
//! Pure. Owns: the percent-encoding of values (unreserved characters of RFC 3986 stay, every other byte is encoded),
//! so that a value has exactly one URI. Used by the document and by the template of a group.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tidings_actors::{InvalidUri, ResourceUri};

/// Characters of a value that a title shows.
const TITLE_CHARS_MAX: usize = 80;

/// What is not unreserved in RFC 3986 2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// `NAME://VIEW`.
pub(super) fn view_uri(name: &str, view: &str) -> ResourceUri {
    ResourceUri::new(&format!("{name}://{view}"))
        .expect("names of collections and views are identifiers: the configuration was checked")
}

/// `NAME://VIEW/{value}`; fails when it would be longer than a URI may be.
pub(super) fn value_uri(name: &str, view: &str, value: &str) -> Result<ResourceUri, InvalidUri> {
    ResourceUri::new(&format!("{name}://{view}/{}", encode(value)))
}

/// A value as it stands in a URI.
pub(super) fn encode(value: &str) -> String {
    utf8_percent_encode(value, ESCAPED).to_string()
}

/// A value as it stands in a title: on one line, and not too long.
pub(super) fn shown(value: &str) -> String {
    let line = |c: char| if c.is_control() { ' ' } else { c };
    let mut cut: String = value.chars().take(TITLE_CHARS_MAX).map(line).collect();
    if value.chars().nth(TITLE_CHARS_MAX).is_some() {
        cut.push('…');
    }
    cut
}

/// A name for programs as people write it at the start of a sentence.
pub(super) fn sentence(name: &str) -> String {
    let mut letters = name.replace(['_', '-'], " ");
    if let Some(first) = letters.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    letters
}

/// A title within a sentence: `Annotations` becomes `annotations`, `URLs` stays.
pub(super) fn within(title: &str) -> String {
    let mut letters = title.chars();
    let (first, second) = (letters.next(), letters.next());
    match first {
        Some(first) if !second.is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(title.chars().skip(1)).collect()
        }
        _ => title.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;
    use tidings_actors::UriTemplate;

    #[test]
    fn keeps_what_is_unreserved_and_encodes_the_rest() {
        let uri = value_uri("annotations", "page", "/a b?é~-._!$&'()*+,;=:@").unwrap();
        assert_eq!(
            uri.as_str(),
            "annotations://page/%2Fa%20b%3F%C3%A9~-._%21%24%26%27%28%29%2A%2B%2C%3B%3D%3A%40"
        );
        assert!(value_uri("a", "b", &"é".repeat(400)).is_err());
    }

    #[test]
    fn titles_read_like_words() {
        assert_eq!(sentence("open_items"), "Open items");
        assert_eq!(
            (within("Annotations"), within("URLs")),
            ("annotations".to_owned(), "URLs".to_owned())
        );
        assert_eq!(within("É"), "é");
        assert_eq!(shown("a\nb"), "a b");
        assert_eq!(shown(&"x".repeat(81)).chars().count(), 81);
    }

    proptest! {
        #[test]
        fn every_value_comes_back_from_its_uri(value in ".{1,60}") {
            let encoded = encode(&value);
            prop_assert!(encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)));
            prop_assert_eq!(percent_decode_str(&encoded).decode_utf8().unwrap(), value.as_str());
            let template = UriTemplate::parse("a://b/{value}").unwrap();
            let uri = value_uri("a", "b", &value).unwrap();
            let variables = template.matches(uri.as_str()).expect("a member of its template");
            prop_assert_eq!(variables.get("value"), Some(value.as_str()));
        }

        #[test]
        fn other_values_have_other_uris(a in ".{0,8}", b in ".{0,8}") {
            prop_assert_eq!(a == b, encode(&a) == encode(&b));
        }
    }
}
