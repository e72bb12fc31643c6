//! Cursors: opaque text that marks the beginning of the next page of a list.
//!
//! A cursor names the last item of the page before, so a list that changes between two pages neither repeats
//! nor skips the items that stayed. Clients may send anything as a cursor.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The beginning of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// After the registered item of this name.
    Item(String),
    /// Among the members that templates list, after this URI; with none, at the first.
    Member(Option<String>),
}

impl Cursor {
    pub(crate) fn encode(&self) -> String {
        let text = match self {
            Cursor::Item(name) => format!("i{name}"),
            Cursor::Member(None) => "m".to_owned(),
            Cursor::Member(Some(uri)) => format!("n{uri}"),
        };
        URL_SAFE_NO_PAD.encode(text)
    }

    /// Returns the cursor that `text` stands for; none when the server never handed it out.
    pub(crate) fn decode(text: &str) -> Option<Cursor> {
        let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        match (decoded.get(..1)?, &decoded[1..]) {
            ("i", name) if !name.is_empty() => Some(Cursor::Item(name.to_owned())),
            ("m", "") => Some(Cursor::Member(None)),
            ("n", uri) if !uri.is_empty() => Some(Cursor::Member(Some(uri.to_owned()))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cursor_decodes_to_itself(name in ".{1,40}") {
            for cursor in [Cursor::Item(name.clone()), Cursor::Member(None), Cursor::Member(Some(name))] {
                prop_assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
            }
        }

        #[test]
        fn arbitrary_text_is_refused_without_panic(text in ".{0,40}") {
            if let Some(cursor) = Cursor::decode(&text) {
                prop_assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
            }
        }
    }
}
