//! Texts with placeholders: `{{name}}` stands for an argument, `{{{{` for two braces.
//!
//! Pure. Owns: the reading of a text into pieces, once, and their filling in. What an argument says is never read
//! for placeholders again. Anything else in braces stays as it is written.

use std::collections::BTreeSet;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Argument(String),
}

impl Template {
    /// Reads `text`, in which `arguments` may be placeholders; tells which others it names. Those are left as they
    /// are written.
    pub(super) fn parse(text: &str, arguments: &BTreeSet<&str>) -> (Template, BTreeSet<String>) {
        let (mut pieces, mut unknown) = (Vec::new(), BTreeSet::new());
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            plain.push_str(&rest[..at]);
            rest = &rest[at + 2..];
            if let Some(after) = rest.strip_prefix("{{") {
                plain.push_str("{{");
                rest = after;
            } else if let Some((name, after)) = placeholder(rest) {
                if arguments.contains(name.trim()) {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::Argument(name.trim().to_owned()));
                } else {
                    unknown.insert(name.trim().to_owned());
                    plain.push_str(&format!("{{{{{name}}}}}"));
                }
                rest = after;
            } else {
                plain.push_str("{{");
            }
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        (Template { pieces }, unknown)
    }

    /// The text with the arguments that `value` answers; one that it does not know is empty.
    pub(super) fn fill(&self, value: impl Fn(&str) -> Option<String>) -> String {
        let fill = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Argument(name) => value(name).unwrap_or_default(),
        };
        self.pieces.iter().map(fill).collect()
    }
}

/// The name up to the closing braces, when it is one, and what follows them.
fn placeholder(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.split_once("}}")?;
    let is_name = !name.trim().is_empty() && !name.contains(['{', '}', '\n']);
    is_name.then_some((name, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill(text: &str) -> (String, Vec<String>) {
        let (template, unknown) = Template::parse(text, &BTreeSet::from(["page", "tone"]));
        let value = |name: &str| (name == "page").then(|| "<{{tone}}>".to_owned());
        (template.fill(value), unknown.into_iter().collect())
    }

    #[test]
    fn arguments_are_filled_in_once_and_absent_ones_are_empty() {
        assert_eq!(fill("{{page}}{{ page }}-{{tone}}.").0, "<{{tone}}><{{tone}}>-.");
    }

    #[test]
    fn an_unknown_placeholder_is_told_and_left() {
        let (text, unknown) = fill("a {{ pgae }} b {{#if}}");
        assert_eq!(
            (text.as_str(), unknown),
            (
                "a {{ pgae }} b {{#if}}",
                vec!["#if".to_owned(), "pgae".to_owned()]
            )
        );
    }

    #[test]
    fn four_braces_are_two_and_the_rest_is_text() {
        assert_eq!(fill("{{{{page}}").0, "{{page}}");
        for text in ["{{", "{page}", "{{page", "{{}}", "{{ }}", "{{a\nb}}", "}}"] {
            assert_eq!(fill(text), (text.to_owned(), Vec::new()), "{text}");
        }
        assert_eq!(fill("{{{page}}}").0, "{{{page}}}");
    }

    proptest! {
        #[test]
        fn a_text_whose_braces_are_doubled_comes_back(text in "[{} a]{0,24}") {
            let (template, unknown) = Template::parse(&text.replace("{{", "{{{{"), &BTreeSet::new());
            prop_assert!(unknown.is_empty());
            prop_assert_eq!(template.fill(|_| None), text);
        }
    }
}
