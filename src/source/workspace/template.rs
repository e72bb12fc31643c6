//! Texts with placeholders: `{{name}}` stands for an argument, `{{{{` for two braces.

use std::collections::BTreeSet;

/// A text with placeholders. Any other text in braces stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromptTemplate {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Argument(String),
}

impl PromptTemplate {
    /// Parses a text with placeholders for `arguments`. Returns the other names in braces, too, which stay as
    /// text.
    pub(super) fn parse(text: &str, arguments: &BTreeSet<&str>) -> (PromptTemplate, BTreeSet<String>) {
        let mut pieces = Vec::new();
        let mut unknown = BTreeSet::new();
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
                // No placeholder begins here, so the braces are text.
                plain.push_str("{{");
            }
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        (PromptTemplate { pieces }, unknown)
    }

    /// Returns the text with the values of the arguments; an argument without a value is empty. Braces in a
    /// value are text, so that a client cannot reach other arguments.
    pub(super) fn fill(&self, value: impl Fn(&str) -> Option<String>) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Argument(name) => text.push_str(&value(name).unwrap_or_default()),
            }
        }
        text
    }
}

/// Splits a text after the closing braces of a placeholder, if it begins with the name of one.
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
        let (template, unknown) = PromptTemplate::parse(text, &BTreeSet::from(["page", "tone"]));
        let text = template.fill(|name| (name == "page").then(|| "<{{tone}}>".to_owned()));
        (text, unknown.into_iter().collect())
    }

    #[test]
    fn arguments_are_filled_in_once() {
        assert_eq!(fill("{{page}}{{ page }}-{{tone}}.").0, "<{{tone}}><{{tone}}>-.");
    }

    #[test]
    fn unknown_placeholder_stays_as_text() {
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
    fn four_braces_stand_for_two() {
        assert_eq!(fill("{{{{page}}").0, "{{page}}");
        for text in ["{{", "{page}", "{{page", "{{}}", "{{ }}", "{{a\nb}}", "}}"] {
            assert_eq!(fill(text), (text.to_owned(), Vec::new()), "{text}");
        }
        assert_eq!(fill("{{{page}}}").0, "{{{page}}}");
    }

    proptest! {
        #[test]
        fn doubled_braces_come_back_as_text(text in "[{} a]{0,24}") {
            let (template, unknown) = PromptTemplate::parse(&text.replace("{{", "{{{{"), &BTreeSet::new());
            prop_assert!(unknown.is_empty());
            prop_assert_eq!(template.fill(|_| None), text);
        }
    }
}
