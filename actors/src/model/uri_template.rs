//! URI templates (RFC 6570, levels 1 to 3) and the matching of URIs against them.
//!
//! Templates are matched, never expanded. Clients choose the URIs, so the time of a match is bounded by the
//! length of the template times the length of the URI.

use std::fmt;
use std::hash::{Hash, Hasher};

mod unit;
mod part;
mod reach;

use part::{Operator, Part, Variable};
use unit::Unit;

use super::uri::URI_LEN_MAX;

/// The maximum length of a template in bytes.
pub(crate) const TEMPLATE_LEN_MAX: usize = 2048;

/// The maximum number of variables of a template.
pub(crate) const TEMPLATE_VARIABLES_MAX: usize = 32;

/// A parsed RFC 6570 template against which URIs can be matched.
///
/// It supports levels 1 to 3: `{v}`, `{+v}`, `{#v}`, `{.v}`, `{/v}`, `{;v}`, `{?v}` and `{&v}`, each with one
/// or several variables. A variable may occur only once. Two templates are equal if their texts are.
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
    /// Parses a template of at most 2,048 bytes and 32 variables.
    ///
    /// # Errors
    /// [`InvalidUriTemplate`] if the text is not a template of level 1 to 3, is over a limit, or repeats a
    /// variable.
    ///
    /// ```
    /// use tidings_actors::UriTemplate;
    /// assert!(UriTemplate::parse("file:///{+path}").is_ok());
    /// assert!(UriTemplate::parse("file:///{path*}").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<UriTemplate, InvalidUriTemplate> {
        if text.len() > TEMPLATE_LEN_MAX {
            // The error may be logged, so it does not quote a text of any length.
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

    /// The text of the template, unchanged.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of the variables, in the order and spelling of the template.
    pub fn variable_names(&self) -> impl Iterator<Item = &str> {
        self.variables().map(|variable| variable.name.as_str())
    }

    fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().flat_map(|part| match part {
            Part::Literal(_) => None,
            Part::Variable(variable) => Some(variable),
        })
    }

    /// Returns the percent-decoded values from which this template produces `uri`, or `None` if there are
    /// none.
    ///
    /// Variables of `{v}` and `{+v}` are present and not empty; those of the other operators may be absent or
    /// empty. If several splits are possible, earlier variables decide first: they are present rather than
    /// absent, then as short as possible. A URI with bad percent-encoding, encoded bytes that are not UTF-8,
    /// characters that URIs do not have, or more than 2,048 bytes never matches. `%2f` and `%2F` are equal; a
    /// plain `a` in the template does not match `%61` in the URI.
    ///
    /// A decoded value may contain anything, including `/`, `..` and NUL: check it before using it as a path.
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
        // Bounds the memory of the table, since a client chooses the URI.
        if uri.len() > URI_LEN_MAX {
            return None;
        }
        let units = unit::read_units(uri, Unit::of_uri).ok()?;
        reach::split(&self.parts, &units).map(Variables)
    }

    fn push_expression(&mut self, body: &str, mut offset: usize) -> Result<(), InvalidUriTemplate> {
        let mut operator = Operator::Simple;
        let mut names = body;
        if body.starts_with(|first| OPERATORS.contains(first)) {
            // All operators are ASCII, so the first byte is the whole character.
            let (sign, rest) = body.split_at(1);
            let sign = char::from(sign.as_bytes()[0]);
            operator = Operator::of(sign).ok_or_else(|| InvalidUriTemplate::ReservedOperator {
                template: self.text.clone(),
                offset,
                operator: sign,
            })?;
            names = rest;
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
        let template = self.text.clone();
        // Checked before the name, so that `{b*}` is reported as level 4 and not as a bad name.
        if let Some(at) = name.find(['*', ':']) {
            return Err(InvalidUriTemplate::Modifier {
                template,
                offset: offset + at,
                modifier: name[at..].to_owned(),
            });
        }
        if !name.split('.').all(is_name_word) {
            return Err(InvalidUriTemplate::VariableName {
                template,
                offset,
                name: name.to_owned(),
            });
        }
        let units = self.read_units(name, offset)?;
        // A second occurrence had to have an equal value, and finding one takes exponential time.
        if self.variable_names().any(|known| known == name) {
            return Err(InvalidUriTemplate::RepeatedVariable {
                template,
                offset,
                name: name.to_owned(),
            });
        }
        // Each variable adds a row to the table of every match.
        if self.variable_names().count() == TEMPLATE_VARIABLES_MAX {
            return Err(InvalidUriTemplate::TooManyVariables { template, offset });
        }
        Ok(Variable::new(name, &units, operator, is_last))
    }

    fn read_units(&self, text: &str, offset: usize) -> Result<Vec<Unit>, InvalidUriTemplate> {
        unit::read_units(text, Unit::of_literal).map_err(|at| {
            let template = self.text.clone();
            let offset = offset + at;
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

/// The operators of RFC 6570, section 2.2, including those reserved for later.
const OPERATORS: &str = "+#./;?&=,!@|";

/// Returns true if `word` can stand between the dots of a variable name.
fn is_name_word(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_%".contains(&byte))
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

/// The values of one match by name, in the order of the template, without the variables that the URI omits.
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
    /// Returns the decoded value of `name`, or `None` if the template has no such variable or the URI omits
    /// it.
    ///
    /// ```
    /// # use tidings_actors::UriTemplate;
    /// let variables = UriTemplate::parse("x{/y}")?.matches("x/%C3%A9").expect("an expansion");
    /// assert_eq!(variables.get("y"), Some("é"));
    /// # Ok::<_, tidings_actors::InvalidUriTemplate>(())
    /// ```
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        Some(value)
    }

    /// The names and decoded values, in the order of the template.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The error of a text that is not a supported template. `offset` counts bytes from the start of the
/// template.
///
/// ```
/// use tidings_actors::{InvalidUriTemplate, UriTemplate};
/// let error = UriTemplate::parse("a/{b").expect_err("the brace is open");
/// assert!(matches!(error, InvalidUriTemplate::UnclosedExpression { offset: 2, .. }));
/// let expected = "uri template `a/{b`, byte 2: the expression has no end; close it with `}`";
/// assert_eq!(error.to_string(), expected);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant explains its fields")]
pub enum InvalidUriTemplate {
    /// The text is too long; only its start is quoted.
    #[error(
        "uri template `{start}…`, byte {TEMPLATE_LEN_MAX}: {len} bytes are too long; keep to {TEMPLATE_LEN_MAX}"
    )]
    TooLong { start: String, len: usize },
    /// There are too many variables.
    #[error("uri template `{template}`, byte {offset}: too many variables; keep to {TEMPLATE_VARIABLES_MAX}")]
    TooManyVariables { template: String, offset: usize },
    /// A `{` has no `}`.
    #[error("uri template `{template}`, byte {offset}: the expression has no end; close it with `}}`")]
    UnclosedExpression { template: String, offset: usize },
    /// A literal contains a character that is not allowed, such as a stray `}`.
    #[error("uri template `{template}`, byte {offset}: {character:?} cannot stand here; percent-encode it")]
    Character {
        template: String,
        offset: usize,
        character: char,
    },
    /// A `%` has no two hexadecimal digits, or the encoded bytes are not UTF-8 and could never match.
    #[error(
        "uri template `{template}`, byte {offset}: bad percent-encoding; write UTF-8 as `%` and two hex digits"
    )]
    PercentEncoding { template: String, offset: usize },
    /// The operator is one that RFC 6570 reserves: `=`, `,`, `!`, `@` or `|`.
    #[error(
        "uri template `{template}`, byte {offset}: operator `{operator}` has no meaning yet; use one of + # . / ; ? &"
    )]
    ReservedOperator {
        template: String,
        offset: usize,
        operator: char,
    },
    /// There is a modifier of level 4: `*` or `:n`.
    #[error("uri template `{template}`, byte {offset}: modifier `{modifier}` is level 4; leave it out")]
    Modifier {
        template: String,
        offset: usize,
        modifier: String,
    },
    /// A name is empty or has characters that are not allowed.
    #[error(
        "uri template `{template}`, byte {offset}: `{name}` names no variable; use letters, digits, `_` and inner `.`"
    )]
    VariableName {
        template: String,
        offset: usize,
        name: String,
    },
    /// A variable occurs twice. Matching equal values would take exponential time.
    #[error(
        "uri template `{template}`, byte {offset}: variable `{name}` stands here again; give each its own name"
    )]
    RepeatedVariable {
        template: String,
        offset: usize,
        name: String,
    },
}

/// The number of characters of a too long template that its error quotes.
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

    /// Returns the values as `name=value` in order, or `None` if there is no match.
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
    fn simple_takes_unreserved_and_is_never_empty() {
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
    fn reserved_takes_every_character_of_a_uri() {
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
    fn label_and_path_fill_variables_in_order() {
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
    fn empty_parameter_has_no_equals_sign() {
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
    fn query_parameters_are_ordered_and_optional() {
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
    fn earlier_variables_are_as_short_as_possible() {
        check(&[
            ("{a}{b}{c}", "wxyz", Some("a=w b=x c=yz")),
            ("{a}-{b}", "1-2-3", Some("a=1 b=2-3")),
            ("{a}x{b}y", "1x2x3y4y", Some("a=1 b=2x3y4")),
        ]);
    }

    #[test]
    fn bad_encoding_and_characters_never_match() {
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
    fn level_four_is_rejected_with_its_offset() {
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
    fn each_mistake_has_its_error_and_offset() {
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
    fn limits_of_length_and_variables_are_exact() {
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

    /// Filling the table takes, per position, at most every head in both states, every literal and a few
    /// steps per part.
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
                let steps = steps_of(&template, &uri);
                let bound = steps_max(&template, &uri);
                assert!(
                    steps <= bound,
                    "{steps} steps of {bound}: {template} against {}",
                    &uri[..8]
                );
            }
        }
    }

    #[test]
    fn mismatch_in_first_literal_fills_no_table() {
        let template = parse("note://{a}/{b}{?c}");
        assert!(steps_of(&template, &format!("file:///{}", "a".repeat(1000))) < 10);
    }

    /// An operator and the values of its variables.
    type Expression = (&'static str, Vec<Option<String>>);

    fn text_without(banned: &'static str, len_min: usize) -> impl Strategy<Value = String> {
        let character = prop_oneof![any::<char>(), proptest::char::range(' ', '~')];
        let character = character.prop_filter("splits must be unambiguous", move |c| !banned.contains(*c));
        proptest::collection::vec(character, len_min..6).prop_map(|chars| chars.into_iter().collect())
    }

    /// ASCII without `!`, `%` and `,`.
    const ASCII_UNSPLIT: [std::ops::RangeInclusive<char>; 4] = ['\0'..=' ', '"'..='$', '&'..='+', '-'..='~'];

    /// Expressions whose values split in one way: they contain no separator, and without names only the last
    /// are absent.
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

    /// Writes the expressions as a template with `separator` between them. Returns it with the named values.
    fn template_of(expressions: &[Expression], separator: &str) -> (String, Vec<(String, String)>) {
        let mut text = String::from("tidings://");
        let mut values = Vec::new();
        let mut count = 0;
        for (operator, slots) in expressions {
            let names: Vec<_> = (count..count + slots.len()).map(|n| format!("v{n}")).collect();
            count += slots.len();
            text += &format!("{{{operator}{}}}{separator}", names.join(","));
            for (name, value) in std::iter::zip(names, slots) {
                values.extend(value.clone().map(|value| (name, value)));
            }
        }
        (text, values)
    }

    const NAMES: [&str; 6] = ["a", "aa", "b", "a.a", "b.b", "bb"];

    /// Templates over a tiny alphabet, so that most of them are ambiguous.
    fn ambiguous_template(names: &'static [&'static str]) -> impl Strategy<Value = String> {
        let expression = ("[+#./;?&]{0,1}", 1..3_usize, "[ab,/.;=&]{0,2}");
        proptest::collection::vec(expression, 0..=names.len()).prop_map(|expressions| {
            let mut text = String::new();
            let mut names = names.iter();
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

    /// An ambiguous template with one of its expansions, which may have one character inserted or removed.
    fn ambiguous(names: &'static [&'static str]) -> impl Strategy<Value = (String, String)> {
        let values = proptest::collection::vec(proptest::option::weighted(0.8, "[ab.]{0,2}"), names.len());
        let edit = proptest::option::of((any::<prop::sample::Index>(), "[ab,/.;=&?#]{0,1}"));
        (ambiguous_template(names), values, edit).prop_map(|(text, values, edit)| {
            let template = parse(&text);
            let mut present = Vec::new();
            for (name, value) in std::iter::zip(template.variable_names(), values) {
                present.extend(value.map(|value| (name.to_owned(), value)));
            }
            let mut uri = expand(&text, present);
            match edit {
                Some((at, added)) if !added.is_empty() => uri.insert_str(at.index(uri.len() + 1), &added),
                Some((at, _)) if !uri.is_empty() => drop(uri.remove(at.index(uri.len()))),
                _ => {}
            }
            (text, uri)
        })
    }

    /// Tries all values in the documented order of preference by expansion; `chosen` are those of the first
    /// variables.
    fn first_split(
        template: &UriTemplate,
        uri: &str,
        chosen: &[(String, Option<String>)],
    ) -> Option<Variables> {
        let Some(variable) = template.variables().nth(chosen.len()) else {
            let mut present = Vec::new();
            for (name, value) in chosen {
                present.extend(value.clone().map(|value| (name.clone(), value)));
            }
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
        fn match_inverts_expansion(
            expressions in proptest::collection::vec(expression(), 0..5),
        ) {
            let (text, values) = template_of(&expressions, "!k!");
            let uri = expand(&text, values.clone());
            prop_assume!(uri.len() <= URI_LEN_MAX);
            prop_assert_eq!(parse(&text).matches(&uri), Some(Variables(values)), "{} from {}", uri, text);
        }

        #[test]
        fn every_ambiguous_expansion_matches(
            text in ambiguous_template(&NAMES),
            values in proptest::collection::vec("[ab,/.;=&]{1,3}", 6),
        ) {
            let template = parse(&text);
            let names = template.variable_names().map(str::to_owned);
            let uri = expand(&text, std::iter::zip(names, values));
            let variables = template.matches(&uri);
            prop_assert!(variables.is_some(), "{} from {}", uri, text);
        }

        #[test]
        fn matched_values_expand_to_the_same_uri((text, uri) in ambiguous(&NAMES)) {
            if let Some(variables) = parse(&text).matches(&uri) {
                let values = variables.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
                prop_assert_eq!(expand(&text, values), uri, "{}", text);
            }
        }

        #[test]
        fn split_is_the_first_in_order_of_preference((text, uri) in ambiguous(&NAMES[..2])) {
            let template = parse(&text);
            let expected = first_split(&template, &uri, &[]);
            prop_assert_eq!(template.matches(&uri), expected, "{} from {}", uri, text);
        }

        #[test]
        fn random_input_stays_within_the_bound(
            text in prop_oneof![any::<String>(), "[a-c{}%4*:,?/#+.&;]{0,24}"],
            uri in prop_oneof![any::<String>(), "[a-c%4F:,?/#+.&;=]{0,40}"],
        ) {
            if let Ok(template) = UriTemplate::parse(&text) {
                prop_assert!(steps_of(&template, &uri) <= steps_max(&template, &uri));
            }
        }
    }
}
