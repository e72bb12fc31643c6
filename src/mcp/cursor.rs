//! Cursors: opaque text that marks the beginning of the next page of a list.
//!
//! A cursor names the last item of the page before, so a list that changes between two pages neither repeats
//! nor skips the items that stayed. Clients may send anything as a cursor.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The beginning of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PageCursor {
    /// After the registered item of this name.
    Item(String),
    /// Among the members that templates list, after this URI; with none, at the first.
    Member(Option<String>),
}

impl PageCursor {
    pub(crate) fn encode(&self) -> String {
        let text = match self {
            PageCursor::Item(name) => format!("i{name}"),
            PageCursor::Member(None) => "m".to_owned(),
            PageCursor::Member(Some(uri)) => format!("n{uri}"),
        };
        URL_SAFE_NO_PAD.encode(text)
    }

    /// Returns the cursor that `text` stands for; none when the server never handed it out.
    pub(crate) fn decode(text: &str) -> Option<PageCursor> {
        let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        match (decoded.get(..1)?, &decoded[1..]) {
            ("i", name) if !name.is_empty() => Some(PageCursor::Item(name.to_owned())),
            ("m", "") => Some(PageCursor::Member(None)),
            ("n", uri) if !uri.is_empty() => Some(PageCursor::Member(Some(uri.to_owned()))),
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
            for cursor in [PageCursor::Item(name.clone()), PageCursor::Member(None), PageCursor::Member(Some(name))] {
                prop_assert_eq!(PageCursor::decode(&cursor.encode()), Some(cursor));
            }
        }

        #[test]
        fn arbitrary_text_is_refused_without_panic(text in ".{0,40}") {
            if let Some(cursor) = PageCursor::decode(&text) {
                prop_assert_eq!(PageCursor::decode(&cursor.encode()), Some(cursor));
            }
        }
    }
}
