//! Texts of others as they are printed: without the characters that steer a terminal, forge a line or cannot
//! be seen, and addresses without the secrets in them.

use std::borrow::Cow;

/// Returns true for a character that a terminal obeys, that cannot be seen, or that changes the order in
/// which a text is read: controls, formats, line separators, private use. Two names that differ by such
/// characters alone would look the same.
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{e000}'..='\u{f8ff}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{10ffff}'
        )
}

/// Returns a text for one line, with a space in place of each character that steers a terminal.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    match text.contains(steers) {
        true => text.replace(steers, " ").into(),
        false => text.into(),
    }
}

/// Returns a text of several lines that are our own, cleaned as [`line`] does.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    let within = |c| c != '\n' && steers(c);
    match text.contains(within) {
        true => text.replace(within, " ").into(),
        false => text.into(),
    }
}

/// Returns a JSON text that means the same, with every character that steers a terminal escaped.
#[cfg(feature = "service")]
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match steers(c) {
            // Such characters stand within texts alone.
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    escaped.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => escaped.push(c),
        }
    }
    escaped.into()
}

/// Returns a text whose http and https addresses show no user, password, query or fragment, since these may
/// be secrets.
pub(crate) fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(colon) = rest.find("://") {
        let (scheme, after) = rest.split_at(colon + "://".len());
        shown.push_str(scheme);
        rest = after;
        let scheme = scheme.trim_end_matches("://").to_ascii_lowercase();
        if scheme.ends_with("http") || scheme.ends_with("https") {
            let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ')' | '>'));
            // Marks at the end belong to the sentence.
            let place = rest[..end.unwrap_or(rest.len())].trim_end_matches([':', ',', ';', '.', '?', '!']);
            let after = &rest[place.len()..];
            push_place(&mut shown, place);
            rest = after;
        }
    }
    if shown.is_empty() {
        return text.into();
    }
    shown.push_str(rest);
    shown.into()
}

/// Adds the part of an address that follows `://`.
fn push_place(shown: &mut String, place: &str) {
    let (head, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    // Up to the last one: a password may have the character too, though it should be escaped.
    let head = match head.rsplit_once('@') {
        Some((_, host)) => {
            shown.push_str("***@");
            host
        }
        None => head,
    };
    let begins_secret = ['?', '#'];
    match (head.split_once(begins_secret), path.split_once(begins_secret)) {
        (Some((host, _)), _) => shown.push_str(&format!("{host}?***")),
        (None, Some((path, _))) => shown.push_str(&format!("{head}{path}?***")),
        (None, None) => {
            shown.push_str(head);
            shown.push_str(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steering_characters_become_spaces() {
        assert_eq!(line("v1\u{1b}[2J\nFAKE\u{9b}1m\u{202e}x"), "v1 [2J FAKE 1m x");
        assert_eq!(lines("one\ntwo\r\u{7}"), "one\ntwo  ");
        assert_eq!(line("a\u{200b}b\u{ad}c\u{feff}d\u{e0041}"), "a b c d ");
        assert!(matches!(line("v1-2 ä 日"), Cow::Borrowed("v1-2 ä 日")));
    }

    #[test]
    fn secrets_of_addresses_are_hidden() {
        for (url, shown) in [
            ("http://h/mcp", "http://h/mcp"),
            ("https://ann:pass@h:1/a?token=t#f", "https://***@h:1/a?***"),
            ("http://h?token=t", "http://h?***"),
            ("http://a@b:p@h/", "http://***@h/"),
            ("http://h/a@b", "http://h/a@b"),
            (
                "http://h/p?q answered; is it such as http://h:1?",
                "http://h/p?*** answered; is it such as http://h:1?",
            ),
            ("demo://a@b?c", "demo://a@b?c"),
            ("no address", "no address"),
            (
                "error for url (HTTP://a:b@h/p?q): 'https://c@i' http://j",
                "error for url (HTTP://***@h/p?***): 'https://***@i' http://j",
            ),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    proptest! {
        #[test]
        fn nothing_that_steers_is_left(text in any::<String>()) {
            prop_assert!(!line(&text).contains(steers));
            prop_assert!(!lines(&text).replace('\n', "").contains(steers));
            prop_assert_eq!(line(&text).chars().count(), text.chars().count());
        }

        #[cfg(feature = "service")]
        #[test]
        fn json_keeps_its_meaning(text in any::<String>()) {
            let value = serde_json::Value::String(text + "\u{202e}\u{9b}\u{7f}\u{ad}\u{e0041}");
            let plain = value.to_string();
            let escaped = json(&plain);
            prop_assert!(!escaped.contains(steers));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        }

        #[test]
        fn no_secret_survives(user in "[a-z@:?#]{0,8}SECRET", query in "[a-z?#/@]{0,8}SECRET") {
            let shown = without_secrets(&format!("see http://{user}@h/p?{query}")).into_owned();
            prop_assert!(!shown.contains("SECRET"), "{}", shown);
        }
    }
}
