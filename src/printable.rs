//! Texts of others as they are printed: without the characters that steer a terminal, forge a line or cannot
//! be seen, and addresses without the secrets in them.
//!
//! The joiners U+200C and U+200D belong to the spelling of Persian and of the scripts of India, and make one
//! picture of several emoji. They stay between two characters that show how they are joined: neither may be
//! of ASCII, whose letters look the same with a joiner between them.

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

/// Returns a text for one line, with a space in place of each character that steers a terminal, except for
/// joiners in their place.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    cleaned(text, |_| false)
}

/// Returns a text of several lines that are our own, cleaned as [`line`] does.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    cleaned(text, |c| c == '\n')
}

/// Returns a text cleaned as [`line`] does, except for the characters that `exempts` names.
pub(crate) fn cleaned(text: &str, exempts: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(|c| steers(c) && !exempts(c)) {
        return text.into();
    }
    let mut clean = String::with_capacity(text.len());
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_kept = !steers(c) || exempts(c) || is_joiner(c) && is_joined(before, rest.peek().copied());
        clean.push(if is_kept { c } else { ' ' });
        before = Some(c);
    }
    clean.into()
}

/// Returns true for the joiners of zero width.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Returns true for the two neighbours of a joiner in its place.
fn is_joined(before: Option<char>, after: Option<char>) -> bool {
    let shows = |c: char| !c.is_ascii() && !c.is_whitespace() && !steers(c);
    matches!((before, after), (Some(before), Some(after)) if shows(before) && shows(after))
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

    fn without_joiners(text: &str) -> String {
        text.replace(is_joiner, "")
    }

    #[test]
    fn steering_characters_become_spaces() {
        assert_eq!(line("v1\u{1b}[2J\nFAKE\u{9b}1m\u{202e}x"), "v1 [2J FAKE 1m x");
        assert_eq!(lines("one\ntwo\r\u{7}"), "one\ntwo  ");
        assert_eq!(line("a\u{200b}b\u{ad}c\u{feff}d\u{e0041}"), "a b c d ");
        assert!(matches!(line("v1-2 ä 日"), Cow::Borrowed("v1-2 ä 日")));
    }

    #[test]
    fn joiners_stay_where_they_are_spelling() {
        // Persian, Devanagari, and emoji with and without a variation selector.
        for word in [
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "👩\u{200d}👩\u{200d}👧",
            "❤\u{fe0f}\u{200d}🔥",
        ] {
            assert_eq!(line(word), word);
            assert_eq!(lines(&format!("{word}\n\u{7}")), format!("{word}\n "));
        }
        for (text, shown) in [
            ("adm\u{200d}in", "adm in"),
            ("م\u{200c}", "م "),
            ("\u{200c}م", " م"),
            ("م\u{200c} م", "م  م"),
            ("م\u{200c}\u{200d}م", "م  م"),
            ("م\u{200c}\u{202e}م", "م  م"),
            ("م\u{200c}a", "م a"),
        ] {
            assert_eq!(line(text), shown);
        }
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
            prop_assert!(!without_joiners(&line(&text)).contains(steers));
            prop_assert!(!without_joiners(&lines(&text)).replace('\n', "").contains(steers));
            prop_assert_eq!(line(&text).chars().count(), text.chars().count());
        }

        #[test]
        fn joiner_is_kept_between_two_that_show(text in "[a مक👩\u{fe0f}\u{200c}\u{200d}\u{202e}\u{1b}]{0,12}") {
            let before: Vec<char> = text.chars().collect();
            let after: Vec<char> = line(&text).chars().collect();
            let shows = |at: usize| matches!(before.get(at), Some('م' | 'क' | '👩' | '\u{fe0f}'));
            for (at, c) in before.iter().enumerate() {
                let is_kept = match c {
                    '\u{200c}' | '\u{200d}' => at > 0 && shows(at - 1) && shows(at + 1),
                    '\u{202e}' | '\u{1b}' => false,
                    _ => true,
                };
                prop_assert_eq!(after[at], if is_kept { *c } else { ' ' });
            }
            let once = line(&text).into_owned();
            prop_assert_eq!(line(&once), once.as_str());
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
