//! The URI template (RFC 6570, levels 1 to 3) read backwards: which values make this URI out of that template?
//!
//! Owns the grammar of templates and the matching of URIs against them.
//! Never expands a template, never does input or output, and never takes more than template length times URI length steps.
//! Receives templates from whoever registers resource templates, URIs from whoever reads or subscribes;
//! hands the decoded values back to the caller and to nobody else.

use std::fmt;
use std::hash::{Hash, Hasher};

mod unit;
mod part;
mod reach;

use part::{Operator, Part, Variable};
use unit::Unit;

use super::uri::URI_LEN_MAX;

/// Longest template, in bytes, that [`UriTemplate::parse`] takes; a longer one is refused.
pub(crate) const TEMPLATE_LEN_MAX: usize = 2048;

/// Most variables that one template may have; a template with more is refused.
pub(crate) const TEMPLATE_VARIABLES_MAX: usize = 32;

/// A parsed RFC 6570 template that can tell whether a URI is one of its expansions.
///
/// Levels 1 to 3 are understood: `{v}`, `{+v}`, `{#v}`, `{.v}`, `{/v}`, `{;v}`, `{?v}`, `{&v}`, each with one or several
/// variables; every variable stands in a template once. Two templates are equal when their texts are.
///
/// ```
/// use tidings_actors::UriTemplate;
/// let template = UriTemplate::parse("note://{author}/{title}{?page}")?;
/// let variables = template.matches("note://ada/on%20engines?page=2").expect("an expansion");
/// assert_eq!(variables.get("title"), Some("on engines"));
/// assert_eq!(template.to_string(), "note://{author}/{title}{?page}");
/// # Ok::<_, tidings_actors::InvalidUriTemplate>(())
/// ```
#[derive(Clone)]
pub struct UriTemplate {
    text: String,
    parts: Vec<Part>,
}

impl UriTemplate {
    /// Reads a template of at most [`TEMPLATE_LEN_MAX`] bytes and [`TEMPLATE_VARIABLES_MAX`] variables.
    ///
    /// # Errors
    /// [`InvalidUriTemplate`] when the text is no template of level 1 to 3, is over a limit, or repeats a variable.
    ///
    /// ```
    /// use tidings_actors::UriTemplate;
    /// assert!(UriTemplate::parse("file:///{+path}").is_ok());
    /// assert!(UriTemplate::parse("file:///{path*}").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<UriTemplate, InvalidUriTemplate> {
        if text.len() > TEMPLATE_LEN_MAX {
            let start = text.chars().take(QUOTED_CHARS_MAX).collect();
            return Err(InvalidUriTemplate::TooLong {
                start,
                len: text.len(),
            });
        }
        let mut template = UriTemplate {
            text: text.to_owned(),
            parts: Vec::new(),
        };
        let mut offset = 0;
        while offset < text.len() {
            let rest = &text[offset..];
            if let Some(inner) = rest.strip_prefix('{') {
                let Some(len) = inner.find('}') else {
                    return Err(InvalidUriTemplate::UnclosedExpression {
                        template: text.to_owned(),
                        offset,
                    });
                };
                template.push_expression(&inner[..len], offset + 1)?;
                offset += len + 2;
            } else {
                let literal = &rest[..rest.find('{').unwrap_or(rest.len())];
                let units = template.read_units(literal, offset)?;
                template.parts.push(Part::Literal(units));
                offset += literal.len();
            }
        }
        Ok(template)
    }

    /// The text this template was parsed from, unchanged.
    ///
    /// ```
    /// # use tidings_actors::UriTemplate;
    /// assert_eq!(UriTemplate::parse("a/{b}")?.as_str(), "a/{b}");
    /// # Ok::<_, tidings_actors::InvalidUriTemplate>(())
    /// ```
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of the variables, in the order of the template, as written there.
    ///
    /// ```
    /// # use tidings_actors::UriTemplate;
    /// let template = UriTemplate::parse("{a}/{b,c}")?;
    /// assert!(template.variable_names().eq(["a", "b", "c"]));
    /// # Ok::<_, tidings_actors::InvalidUriTemplate>(())
    /// ```
    pub fn variable_names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Variable(variable) => Some(variable.name.as_str()),
        })
    }

    /// The percent-decoded values that make `uri` out of this template, or `None` when `uri` is no expansion of it.
    ///
    /// Variables of `{v}` and `{+v}` are present and not empty; those of the other operators may be absent or empty.
    /// Where several splits are possible, earlier variables decide first: present before absent, then as short as can be.
    /// Bad percent-encoding, encoded bytes that are no UTF-8, characters that no URI has, and more than [`URI_LEN_MAX`](crate::URI_LEN_MAX) bytes
    /// never match. `%2f` and `%2F` are alike; a plain `a` in the template is not `%61` in the URI.
    ///
    /// A decoded value may hold anything, `/`, `..` and NUL included: check it before it becomes a path.
    ///
    /// ```
    /// # use tidings_actors::UriTemplate;
    /// let template = UriTemplate::parse("{a}-{b}{/c,d}")?;
    /// let variables = template.matches("1-2-3/4").expect("an expansion");
    /// assert!(variables.iter().eq([("a", "1"), ("b", "2-3"), ("c", "4")]));
    /// assert!(template.matches("1").is_none());
    /// # Ok::<_, tidings_actors::InvalidUriTemplate>(())
    /// ```
    pub fn matches(&self, uri: &str) -> Option<Variables> {
        if uri.len() > URI_LEN_MAX {
            return None;
        }
        let units = unit::read_units(uri, Unit::of_uri).ok()?;
        reach::split(&self.parts, &units).map(Variables)
    }

    fn push_expression(&mut self, body: &str, mut offset: usize) -> Result<(), InvalidUriTemplate> {
        let mut operator = Operator::Simple;
        let mut names = body;
        if let Some(first) = body
            .chars()
            .next()
            .filter(|&first| "+#./;?&=,!@|".contains(first))
        {
            operator = Operator::of(first).ok_or_else(|| InvalidUriTemplate::ReservedOperator {
                template: self.text.clone(),
                offset,
                operator: first,
            })?;
            names = &body[1..];
            offset += 1;
        }
        let mut names = names.split(',').peekable();
        while let Some(name) = names.next() {
            let is_last = names.peek().is_none();
            let variable = self.read_variable(operator, name, is_last, offset)?;
            self.parts.push(Part::Variable(variable));
            offset += name.len() + 1;
        }
        Ok(())
    }

    fn read_variable(
        &self,
        operator: Operator,
        name: &str,
        is_last: bool,
        offset: usize,
    ) -> Result<Variable, InvalidUriTemplate> {
        let template = || self.text.clone();
        if let Some(at) = name.find(['*', ':']) {
            let (offset, modifier) = (offset + at, name[at..].to_owned());
            return Err(InvalidUriTemplate::Modifier {
                template: template(),
                offset,
                modifier,
            });
        }
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '%';
        if name
            .split('.')
            .any(|word| word.is_empty() || !word.chars().all(is_name_char))
        {
            return Err(InvalidUriTemplate::VariableName {
                template: template(),
                offset,
                name: name.to_owned(),
            });
        }
        let units = self.read_units(name, offset)?;
        if self.variable_names().any(|known| known == name) {
            return Err(InvalidUriTemplate::RepeatedVariable {
                template: template(),
                offset,
                name: name.to_owned(),
            });
        }
        if self.variable_names().count() == TEMPLATE_VARIABLES_MAX {
            return Err(InvalidUriTemplate::TooManyVariables {
                template: template(),
                offset,
            });
        }
        Ok(Variable::new(name, &units, operator, is_last))
    }

    fn read_units(&self, text: &str, offset: usize) -> Result<Vec<Unit>, InvalidUriTemplate> {
        unit::read_units(text, Unit::of_literal).map_err(|at| {
            let (template, offset) = (self.text.clone(), offset + at);
            match text[at..].chars().next() {
                Some('%') | None => InvalidUriTemplate::PercentEncoding { template, offset },
                Some(character) => InvalidUriTemplate::Character {
                    template,
                    offset,
                    character,
                },
            }
        })
    }
}

impl fmt::Display for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UriTemplate").field(&self.text).finish()
    }
}

impl PartialEq for UriTemplate {
    fn eq(&self, other: &UriTemplate) -> bool {
        self.text == other.text
    }
}

impl Eq for UriTemplate {}

impl Hash for UriTemplate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// The values of one match by name, in the order of the template; a variable that the URI leaves out is not in it.
///
/// ```
/// # use tidings_actors::UriTemplate;
/// let template = UriTemplate::parse("find{?a,b}")?;
/// let variables = template.matches("find?b=").expect("an expansion");
/// assert_eq!((variables.get("a"), variables.get("b")), (None, Some("")));
/// # Ok::<_, tidings_actors::InvalidUriTemplate>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(Vec<(String, String)>);

impl Variables {
    /// The decoded value of `name`, or `None` when the template has no such variable or the URI leaves it out.
    ///
    /// ```
    /// # use tidings_actors::UriTemplate;
    /// let variables = UriTemplate::parse("x{/y}")?.matches("x/%C3%A9").expect("an expansion");
    /// assert_eq!(variables.get("y"), Some("é"));
    /// # Ok::<_, tidings_actors::InvalidUriTemplate>(())
    /// ```
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Names and decoded values, in the order of the template.
    ///
    /// ```
    /// # use tidings_actors::UriTemplate;
    /// let variables = UriTemplate::parse("{b}/{a}")?.matches("1/2").expect("an expansion");
    /// assert!(variables.iter().eq([("b", "1"), ("a", "2")]));
    /// # Ok::<_, tidings_actors::InvalidUriTemplate>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Why a text is no template that can be matched: `offset` counts bytes from the start of the template.
///
/// ```
/// use tidings_actors::{InvalidUriTemplate, UriTemplate};
/// let error = UriTemplate::parse("a/{b").expect_err("the brace is open");
/// assert!(matches!(error, InvalidUriTemplate::UnclosedExpression { offset: 2, .. }));
/// assert_eq!(error.to_string(), "uri template `a/{b`, byte 2: the expression has no end; close it with `}`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the fields say what the message of their variant says"
)]
pub enum InvalidUriTemplate {
    /// Longer than [`TEMPLATE_LEN_MAX`]; only its start is quoted.
    #[error(
        "uri template `{start}…`, byte {TEMPLATE_LEN_MAX}: {len} bytes are too long; keep to {TEMPLATE_LEN_MAX}"
    )]
    TooLong { start: String, len: usize },
    /// More variables than [`TEMPLATE_VARIABLES_MAX`].
    #[error("uri template `{template}`, byte {offset}: too many variables; keep to {TEMPLATE_VARIABLES_MAX}")]
    TooManyVariables { template: String, offset: usize },
    /// A `{` without its `}`.
    #[error("uri template `{template}`, byte {offset}: the expression has no end; close it with `}}`")]
    UnclosedExpression { template: String, offset: usize },
    /// A character that no literal may have, a stray `}` included.
    #[error("uri template `{template}`, byte {offset}: {character:?} cannot stand here; percent-encode it")]
    Character {
        template: String,
        offset: usize,
        character: char,
    },
    /// A `%` without two hexadecimal digits, or encoded bytes that are no UTF-8 and could never match.
    #[error(
        "uri template `{template}`, byte {offset}: bad percent-encoding; write UTF-8 as `%` and two hex digits"
    )]
    PercentEncoding { template: String, offset: usize },
    /// One of the operators that RFC 6570 keeps for later: `=`, `,`, `!`, `@`, `|`.
    #[error(
        "uri template `{template}`, byte {offset}: operator `{operator}` has no meaning yet; use one of + # . / ; ? &"
    )]
    ReservedOperator {
        template: String,
        offset: usize,
        operator: char,
    },
    /// A modifier of level 4: `*` or `:n`.
    #[error("uri template `{template}`, byte {offset}: modifier `{modifier}` is level 4; leave it out")]
    Modifier {
        template: String,
        offset: usize,
        modifier: String,
    },
    /// An empty or misspelt name.
    #[error(
        "uri template `{template}`, byte {offset}: `{name}` names no variable; use letters, digits, `_` and inner `.`"
    )]
    VariableName {
        template: String,
        offset: usize,
        name: String,
    },
    /// The same variable twice: to demand equal values would make matching exponential.
    #[error(
        "uri template `{template}`, byte {offset}: variable `{name}` stands here again; give each its own name"
    )]
    RepeatedVariable {
        template: String,
        offset: usize,
        name: String,
    },
}

/// How much of a template that is too long its error quotes, in characters.
const QUOTED_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use iri_string::spec::UriSpec;
    use iri_string::template::UriTemplateStr;
    use iri_string::template::simple_context::SimpleContext;
    use proptest::prelude::*;

    use super::reach::STEPS;
    use super::*;

    fn parse(text: &str) -> UriTemplate {
        UriTemplate::parse(text).unwrap()
    }

    /// The values as `name=value` in order, `None` when there is no match.
    fn values(template: &str, uri: &str) -> Option<String> {
        let variables = parse(template).matches(uri)?;
        Some(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join(" "),
        )
    }

    /// Each row: template, URI, expected values.
    fn check(rows: &[(&str, &str, Option<&str>)]) {
        for (template, uri, expected) in rows {
            assert_eq!(
                values(template, uri).as_deref(),
                *expected,
                "template {template}, uri {uri}"
            );
        }
    }

    fn error(text: &str) -> InvalidUriTemplate {
        UriTemplate::parse(text).expect_err(text)
    }

    fn steps_of(template: &UriTemplate, uri: &str) -> usize {
        let before = STEPS.get();
        template.matches(uri);
        STEPS.get() - before
    }

    #[test]
    fn literals_match_themselves_only() {
        check(&[
            ("", "", Some("")),
            ("", "a", None),
            ("a://b", "a://b", Some("")),
            ("a://b", "a://bc", None),
            ("a://b", "a://", None),
            ("a://b", "A://b", None),
            ("caf%C3%A9", "caf%c3%a9", Some("")),
            ("café", "caf%C3%A9", Some("")),
            ("café", "café", None),
            ("a", "%61", None),
            ("%61", "a", None),
        ]);
    }

    #[test]
    fn simple_takes_unreserved_and_encoded_and_never_nothing() {
        check(&[
            ("n://{v}", "n://aZ0-._~", Some("v=aZ0-._~")),
            ("n://{v}", "n://a%2Fb%20c", Some("v=a/b c")),
            ("n://{v}", "n://%f0%9f%a6%80", Some("v=🦀")),
            ("n://{v}", "n://", None),
            ("n://{v}", "n://a/b", None),
            ("n://{v}", "n://a?b", None),
            ("n://{v}", "n://a#b", None),
            ("n://{v}", "n://a:b", None),
            ("n://{v}/end", "n://a/end", Some("v=a")),
            ("{a,b}", "1,2", Some("a=1 b=2")),
            ("{a,b}", "1", None),
            ("{a,b}", "1,", None),
            ("{a}{b}", "%C3%A9x", Some("a=é b=x")),
            ("{a}{b}", "%C3%A9", None),
        ]);
    }

    #[test]
    fn reserved_takes_all_that_a_uri_may_hold() {
        check(&[
            ("file:///{+path}", "file:///a/b%20c?d#e", Some("path=a/b c?d#e")),
            ("file:///{+path}", "file:///", None),
            (
                "file:///{+path}",
                "file:///%E6%97%A5/%F0%9F%A6%80",
                Some("path=日/🦀"),
            ),
            ("{+a,b}", "1,2,3", Some("a=1 b=2,3")),
            ("{+a}/end", "x/end/end", Some("a=x/end")),
        ]);
    }

    #[test]
    fn fragment_may_be_absent_or_empty() {
        check(&[
            ("p{#f}", "p", Some("")),
            ("p{#f}", "p#", Some("f=")),
            ("p{#f}", "p#a/b", Some("f=a/b")),
            ("p{#f,g}", "p#1,2", Some("f=1 g=2")),
            ("p{#f,g}", "p#1", Some("f=1")),
            ("p{#f}", "pa", None),
        ]);
    }

    #[test]
    fn label_and_path_fill_their_variables_from_the_first() {
        check(&[
            ("p{.a}", "p", Some("")),
            ("p{.a}", "p.", Some("a=")),
            ("p{.a}", "p.x.y", Some("a=x.y")),
            ("p{.a,b}", "p.x.y.z", Some("a=x b=y.z")),
            ("p{/a}", "p", Some("")),
            ("p{/a}", "p/", Some("a=")),
            ("p{/a,b}", "p/x", Some("a=x")),
            ("p{/a,b}", "p/x/y", Some("a=x b=y")),
            ("p{/a,b}", "p/x/y/z", None),
            ("p{/a}{/b}", "p/x", Some("a=x")),
        ]);
    }

    #[test]
    fn parameters_are_named_and_lose_the_equals_sign_when_empty() {
        check(&[
            ("p{;a}", "p", Some("")),
            ("p{;a}", "p;a", Some("a=")),
            ("p{;a}", "p;a=", None),
            ("p{;a}", "p;a=1", Some("a=1")),
            ("p{;a,b}", "p;b=2", Some("b=2")),
            ("p{;a,b}", "p;a;b=2", Some("a= b=2")),
            ("p{;a,b}", "p;b;a", None),
            ("p{;a}=x", "p;a=x", Some("a=")),
            ("p{;a}=x", "p;a=y=x", Some("a=y")),
        ]);
    }

    #[test]
    fn query_takes_its_parameters_in_order_each_may_be_absent() {
        check(&[
            ("p{?a,b}", "p", Some("")),
            ("p{?a,b}", "p?", None),
            ("p{?a,b}", "p?a=1", Some("a=1")),
            ("p{?a,b}", "p?b=2", Some("b=2")),
            ("p{?a,b}", "p&b=2", None),
            ("p{?a,b}", "p?a=1&b=2", Some("a=1 b=2")),
            ("p{?a,b}", "p?b=2&a=1", None),
            ("p{?a,b}", "p?a=&b=", Some("a= b=")),
            ("p{?a,b}", "p?a", None),
            ("p{?a,b,c}", "p?a=1&c=3", Some("a=1 c=3")),
            ("p{?a}", "p?a=1&b=2", None),
            ("p?x=1{&a,b}", "p?x=1&b=2", Some("b=2")),
            ("p?x=1{&a,b}", "p?x=1&a=1&b=2", Some("a=1 b=2")),
            ("p{?a.b,%C3%A9}", "p?a.b=1&%c3%a9=2", Some("a.b=1 %C3%A9=2")),
        ]);
    }

    #[test]
    fn earlier_variables_are_as_short_as_can_be() {
        check(&[
            ("{a}{b}{c}", "wxyz", Some("a=w b=x c=yz")),
            ("{a}-{b}", "1-2-3", Some("a=1 b=2-3")),
            ("{a}x{b}y", "1x2x3y4y", Some("a=1 b=2x3y4")),
        ]);
    }

    #[test]
    fn bad_encoding_and_foreign_characters_never_match() {
        let all = parse("{+v}");
        for uri in [
            "%",
            "a%2",
            "%zz",
            "%FF",
            "%C3",
            "%C0%80",
            "%ED%A0%80",
            "%C3x%A9",
            "a b",
            "é",
            "\"",
            "{",
            "\0",
        ] {
            assert_eq!(all.matches(uri), None, "{uri:?}");
        }
        assert_eq!(values("{v}", "%00").as_deref(), Some("v=\0"));
    }

    #[test]
    fn level_four_is_refused_with_its_place() {
        for (text, at, sign) in [("a{b*}", 3, "*"), ("{?a,b:3}", 5, ":3"), ("{é*}", 3, "*")] {
            let expected = InvalidUriTemplate::Modifier {
                template: text.into(),
                offset: at,
                modifier: sign.into(),
            };
            assert_eq!(error(text), expected);
        }
        let text = error("a{b:12}").to_string();
        assert_eq!(
            text,
            "uri template `a{b:12}`, byte 3: modifier `:12` is level 4; leave it out"
        );
    }

    #[test]
    fn each_fault_has_its_error_and_offset() {
        use InvalidUriTemplate as E;
        assert!(matches!(error("ab{c"), E::UnclosedExpression { offset: 2, .. }));
        assert!(matches!(
            error("ab}"),
            E::Character {
                offset: 2,
                character: '}',
                ..
            }
        ));
        assert!(matches!(
            error("é b"),
            E::Character {
                offset: 2,
                character: ' ',
                ..
            }
        ));
        assert!(matches!(error("a\u{FFFF}"), E::Character { offset: 1, .. }));
        assert!(matches!(error("a%2"), E::PercentEncoding { offset: 1, .. }));
        assert!(matches!(error("a%41%FF"), E::PercentEncoding { offset: 4, .. }));
        assert!(matches!(error("{a%4}"), E::PercentEncoding { offset: 2, .. }));
        for text in ["{}", "{?}"] {
            assert!(matches!(error(text), E::VariableName { .. }), "{text}");
        }
        for text in ["{a,}", "{a,b c}", "{a,.b}", "{a,é}", "{a,{b}"] {
            assert!(matches!(error(text), E::VariableName { offset: 3, .. }), "{text}");
        }
        for operator in "=,!@|".chars() {
            let refused = error(&format!("x{{{operator}a}}"));
            assert!(
                matches!(refused, E::ReservedOperator { offset: 2, .. }),
                "{operator}"
            );
        }
        assert!(matches!(
            error("{a}/{?b,a}"),
            E::RepeatedVariable { offset: 8, .. }
        ));
    }

    #[test]
    fn limits_hold_to_the_byte_and_the_variable() {
        let names = |count: usize| (0..count).map(|n| format!("v{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(parse(&format!("{{{}}}", names(32))).variable_names().count(), 32);
        let text = error(&format!("{{{}}}", names(33)));
        assert!(
            matches!(text, InvalidUriTemplate::TooManyVariables { offset: 119, .. }),
            "{text}"
        );
        let text = error(&"é".repeat(1025)).to_string();
        assert!(text.len() < 300 && text.contains("2050 bytes"), "{text}");
    }

    #[test]
    fn templates_are_equal_by_text() {
        let set: HashSet<_> = ["{a}", "{a}", "{b}"].map(parse).into();
        assert_eq!(set.len(), 2);
        assert_eq!(format!("{:?} {0}", parse("x{a}")), "UriTemplate(\"x{a}\") x{a}");
    }

    /// Filling the table costs per position at most every head in both states and every literal, with a few steps per part.
    fn steps_max(template: &UriTemplate, uri: &str) -> usize {
        8 * (template.as_str().len() + 1) * (uri.len() + 1)
    }

    #[test]
    fn adversarial_input_stays_within_the_bound() {
        let runs = |expression: &dyn Fn(usize) -> String| (0..32).map(expression).collect::<String>();
        let templates = [
            runs(&|n| format!("{{v{n}}}")),
            runs(&|n| format!("{{+v{n}}}a")),
            runs(&|n| format!("{{/v{n}}}")),
            runs(&|n| format!("{{.v{n}}}")),
            runs(&|n| format!("{{#v{n}}}")),
            format!(
                "{{+{}}}",
                (0..32).map(|n| format!("v{n}")).collect::<Vec<_>>().join(",")
            ),
            format!(
                "{{?{}}}",
                (0..7)
                    .map(|n| format!("{}{n}", "a".repeat(250)))
                    .collect::<Vec<_>>()
                    .join(",")
            ),
            format!("{{+v}}{}b", "a".repeat(2000)),
        ];
        let uris = [
            "a".repeat(2048),
            ".".repeat(2048),
            ",".repeat(2048),
            "/a".repeat(1024),
            "%61".repeat(682),
        ];
        for template in templates.iter().map(|text| parse(text)) {
            for uri in uris
                .iter()
                .flat_map(|uri| [uri.clone(), format!("{}!", &uri[..2046])])
            {
                let (steps, bound) = (steps_of(&template, &uri), steps_max(&template, &uri));
                assert!(
                    steps <= bound,
                    "{steps} steps of {bound}: {template} against {}",
                    &uri[..8]
                );
            }
        }
    }

    #[test]
    fn a_uri_that_fails_at_the_first_literal_fills_no_table() {
        let template = parse("note://{a}/{b}{?c}");
        assert!(steps_of(&template, &format!("file:///{}", "a".repeat(1000))) < 10);
    }

    /// One expression with the values it is to be expanded from.
    type Expression = (&'static str, Vec<Option<String>>);

    fn text_without(banned: &'static str, len_min: usize) -> impl Strategy<Value = String> {
        let character = prop_oneof![any::<char>(), proptest::char::range(' ', '~')];
        let character = character.prop_filter("splits must be unambiguous", move |c| !banned.contains(*c));
        proptest::collection::vec(character, len_min..6).prop_map(|chars| chars.into_iter().collect())
    }

    /// ASCII without `!`, `%` and `,`.
    const ASCII_UNSPLIT: [std::ops::RangeInclusive<char>; 4] = ['\0'..=' ', '"'..='$', '&'..='+', '-'..='~'];

    /// Expressions whose values have one split: no separator inside them, and only the last ones absent where names do not tell.
    fn expression() -> impl Strategy<Value = Expression> {
        let several = |len_min, banned| proptest::collection::vec(text_without(banned, len_min), 1..4);
        // The reserved expansion of iri-string 0.7.14 can panic on text that is not ASCII.
        let ascii = |len_min| {
            let text = proptest::collection::vec(
                proptest::char::ranges(ASCII_UNSPLIT.as_slice().into()),
                len_min..6,
            );
            proptest::collection::vec(text.prop_map(String::from_iter), 1..4)
        };
        let named = proptest::collection::vec(proptest::option::of(text_without("", 0)), 1..4);
        let unnamed = (prop_oneof![Just("/"), Just(".")], several(0, "."), 0..3_usize);
        prop_oneof![
            several(1, "").prop_map(|values| ("", values.into_iter().map(Some).collect())),
            ascii(1).prop_map(|values| ("+", values.into_iter().map(Some).collect())),
            ascii(0).prop_map(|values| ("#", values.into_iter().map(Some).collect())),
            (prop_oneof![Just(";"), Just("?"), Just("&")], named),
            unnamed.prop_map(|(operator, values, absent)| {
                (
                    operator,
                    values
                        .into_iter()
                        .map(Some)
                        .chain(std::iter::repeat_n(None, absent))
                        .collect(),
                )
            }),
        ]
    }

    fn expand(template: &str, values: impl IntoIterator<Item = (String, String)>) -> String {
        let mut context = SimpleContext::new();
        for (name, value) in values {
            context.insert(name, value);
        }
        UriTemplateStr::new(template)
            .unwrap()
            .expand::<UriSpec, _>(&context)
            .unwrap()
            .to_string()
    }

    /// Writes the expressions as a template with `separator` between them, and names their values.
    fn template_of(expressions: &[Expression], separator: &str) -> (String, Vec<(String, String)>) {
        let (mut text, mut values, mut count) = (String::from("tidings://"), Vec::new(), 0);
        for (operator, slots) in expressions {
            let names: Vec<_> = (count..count + slots.len()).map(|n| format!("v{n}")).collect();
            count += slots.len();
            text += &format!("{{{operator}{}}}{separator}", names.join(","));
            let present = names
                .into_iter()
                .zip(slots)
                .filter_map(|(name, value)| Some((name, value.clone()?)));
            values.extend(present);
        }
        (text, values)
    }

    const NAMES: [&str; 6] = ["a", "aa", "b", "a.a", "b.b", "bb"];

    /// Templates out of a tiny alphabet, so that ambiguity is the rule.
    fn tangled_template(names: &'static [&'static str]) -> impl Strategy<Value = String> {
        let expression = ("[+#./;?&]{0,1}", 1..3_usize, "[ab,/.;=&]{0,2}");
        proptest::collection::vec(expression, 0..=names.len()).prop_map(|expressions| {
            let (mut text, mut names) = (String::new(), names.iter());
            for (operator, count, literal) in expressions {
                let names: Vec<_> = names.by_ref().take(count).copied().collect();
                if !names.is_empty() {
                    text += &format!("{{{operator}{}}}", names.join(","));
                }
                text += &literal;
            }
            text
        })
    }

    /// A tangled template with one of its expansions, or what an edit of one character leaves of that.
    fn tangled(names: &'static [&'static str]) -> impl Strategy<Value = (String, String)> {
        let values = proptest::collection::vec(proptest::option::weighted(0.8, "[ab.]{0,2}"), names.len());
        let edit = proptest::option::of((any::<prop::sample::Index>(), "[ab,/.;=&?#]{0,1}"));
        (tangled_template(names), values, edit).prop_map(|(text, values, edit)| {
            let template = parse(&text);
            let named = template.variable_names().zip(values);
            let mut uri = expand(
                &text,
                named.filter_map(|(name, value)| Some((name.to_owned(), value?))),
            );
            match edit {
                Some((at, added)) if !added.is_empty() => uri.insert_str(at.index(uri.len() + 1), &added),
                Some((at, _)) if !uri.is_empty() => drop(uri.remove(at.index(uri.len()))),
                _ => {}
            }
            (text, uri)
        })
    }

    /// Tries all values in the documented order of preference, by expansion alone; `chosen` are those of the first variables.
    fn first_split(
        template: &UriTemplate,
        uri: &str,
        chosen: &[(String, Option<String>)],
    ) -> Option<Variables> {
        let mut variables = template.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Variable(variable) => Some(variable),
        });
        let Some(variable) = variables.nth(chosen.len()) else {
            let present = chosen
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
            let present: Vec<_> = present.collect();
            return (expand(template.as_str(), present.clone()) == uri).then_some(Variables(present));
        };
        let is_required = variable.operator.is_required();
        let spans = (0..=uri.len()).flat_map(|end| (0..=end).map(move |begin| &uri[begin..end]));
        let values: BTreeSet<_> = spans.map(|span| (span.len(), span)).collect();
        let values = values.into_iter().filter(|(len, _)| *len > 0 || !is_required);
        let absent = (!is_required).then_some(None);
        values
            .map(|(_, value)| Some(value.to_owned()))
            .chain(absent)
            .find_map(|value| {
                first_split(
                    template,
                    uri,
                    &[chosen, &[(variable.name.clone(), value)]].concat(),
                )
            })
    }

    proptest! {
        #[test]
        fn expansion_then_match_gives_the_values_back(
            expressions in proptest::collection::vec(expression(), 0..5),
        ) {
            let (text, values) = template_of(&expressions, "!k!");
            let uri = expand(&text, values.clone());
            prop_assume!(uri.len() <= URI_LEN_MAX);
            prop_assert_eq!(parse(&text).matches(&uri), Some(Variables(values)), "{} from {}", uri, text);
        }

        #[test]
        fn every_expansion_matches_however_tangled(
            text in tangled_template(&NAMES),
            values in proptest::collection::vec("[ab,/.;=&]{1,3}", 6),
        ) {
            let template = parse(&text);
            let named: Vec<_> = template.variable_names().map(str::to_owned).zip(values).collect();
            let uri = expand(&text, named);
            let variables = template.matches(&uri);
            prop_assert!(variables.is_some(), "{} from {}", uri, text);
        }

        #[test]
        fn what_matches_expands_to_the_same_uri((text, uri) in tangled(&NAMES)) {
            if let Some(variables) = parse(&text).matches(&uri) {
                let values = variables.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
                prop_assert_eq!(expand(&text, values), uri, "{}", text);
            }
        }

        #[test]
        fn the_split_is_the_first_of_all_that_expand_to_the_uri((text, uri) in tangled(&NAMES[..2])) {
            let template = parse(&text);
            let expected = first_split(&template, &uri, &[]);
            prop_assert_eq!(template.matches(&uri), expected, "{} from {}", uri, text);
        }

        #[test]
        fn random_texts_never_panic_and_stay_within_the_bound(
            text in prop_oneof![any::<String>(), "[a-c{}%4*:,?/#+.&;]{0,24}"],
            uri in prop_oneof![any::<String>(), "[a-c%4F:,?/#+.&;=]{0,40}"],
        ) {
            if let Ok(template) = UriTemplate::parse(&text) {
                prop_assert!(steps_of(&template, &uri) <= steps_max(&template, &uri));
            }
        }
    }
}
