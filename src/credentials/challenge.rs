//! The answer of a server that lets a request not in: its status, and the `WWW-Authenticate` header.

use std::fmt;

/// The limit on a text of the server in a message of ours, in characters.
const TEXT_MAX: usize = 200;

/// A refusal with 401 or 403.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) struct Challenge {
    /// 401 or 403.
    pub(crate) status: u16,
    /// The code of RFC 6750, such as `invalid_token`.
    pub(crate) error: Option<String>,
    /// The text for people.
    pub(crate) description: Option<String>,
    /// The scopes that the request needs.
    pub(crate) scope: Option<String>,
    /// The address of the metadata that name the authorization server (RFC 9728).
    pub(crate) resource_metadata: Option<String>,
}

impl Challenge {
    /// Reads a refusal with this status and header.
    pub(crate) fn parse(status: u16, header: Option<&str>) -> Challenge {
        let mut challenge = Challenge {
            status,
            error: None,
            description: None,
            scope: None,
            resource_metadata: None,
        };
        for (name, value) in header.map(parameters).unwrap_or_default() {
            let field = match name.as_str() {
                "error" => &mut challenge.error,
                "error_description" => &mut challenge.description,
                "scope" => &mut challenge.scope,
                "resource_metadata" => &mut challenge.resource_metadata,
                _ => continue,
            };
            // Of several challenges the first counts.
            field.get_or_insert(value);
        }
        challenge
    }

    /// Reads a response with this status; none unless it is a refusal of the client.
    ///
    /// A 403 without the header counts as well: it is no error that another request would mend.
    pub(crate) fn of(status: u16, header: Option<&str>) -> Option<Challenge> {
        matches!(status, 401 | 403).then(|| Challenge::parse(status, header))
    }

    /// Returns true if the token is good and lacks a scope.
    pub(crate) fn is_insufficient_scope(&self) -> bool {
        self.status == 403 && self.error.as_deref() == Some("insufficient_scope")
    }
}

impl fmt::Display for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, &self.error) {
            (401, None) => f.write_str("it asks for credentials")?,
            (401, Some(_)) => f.write_str("it refuses the credentials")?,
            _ if self.is_insufficient_scope() => f.write_str("the credentials lack a scope")?,
            _ => f.write_str("the credentials have no right to this")?,
        }
        write!(f, " (HTTP {}", self.status)?;
        if let Some(error) = &self.error {
            write!(f, ", {}", clean(error))?;
        }
        if let Some(description) = &self.description {
            write!(f, ": {}", clean(description))?;
        }
        if let Some(scope) = &self.scope {
            write!(f, "; needed scope: {}", clean(scope))?;
        }
        f.write_str(")")
    }
}

/// Returns a text of the server without control characters, up to a bounded length.
pub(crate) fn clean(text: &str) -> String {
    let visible = text.chars().filter(|letter| !letter.is_control());
    visible.take(TEXT_MAX).collect()
}

/// Returns the parameters of all challenges in a header, with names in lower case.
fn parameters(header: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = header;
    while let Some(at) = rest.find('=') {
        let before = rest[..at].trim_end();
        // The name stands behind a scheme, a comma or a space.
        let name = before.rsplit([' ', ',', '\t']).next().unwrap_or_default();
        let value;
        (value, rest) = take_value(rest[at + 1..].trim_start());
        if !name.is_empty() {
            found.push((name.to_ascii_lowercase(), value));
        }
    }
    found
}

/// Splits off a value: a quoted string with its escapes undone, or a token.
fn take_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_of_every_form_are_read() {
        let parsed = Challenge::parse(
            403,
            Some(
                r#"Basic realm="a, error=\"x\"", Bearer error="insufficient_scope" , scope="read  write",error_description=plain, Scope=second"#,
            ),
        );
        assert_eq!(parsed.error.as_deref(), Some("insufficient_scope"));
        assert_eq!(parsed.scope.as_deref(), Some("read  write"));
        assert_eq!(parsed.description.as_deref(), Some("plain"));
        assert!(parsed.is_insufficient_scope());
        let bare = Challenge::parse(401, Some("Bearer"));
        assert_eq!((bare.error, bare.scope), (None, None));
    }

    #[test]
    fn text_names_status_scope_and_reason() {
        for (status, header, expected) in [
            (401, None, "it asks for credentials (HTTP 401)"),
            (
                401,
                Some("Bearer error=\"invalid_token\", error_description=\"it\u{1b}[31m ended\""),
                "it refuses the credentials (HTTP 401, invalid_token: it[31m ended)",
            ),
            (
                401,
                Some("Bearer scope=\"read\""),
                "it asks for credentials (HTTP 401; needed scope: read)",
            ),
            (
                403,
                Some("Bearer error=\"insufficient_scope\", scope=\"write\""),
                "the credentials lack a scope (HTTP 403, insufficient_scope; needed scope: write)",
            ),
            (403, None, "the credentials have no right to this (HTTP 403)"),
        ] {
            assert_eq!(Challenge::parse(status, header).to_string(), expected);
        }
        assert_eq!(Challenge::of(404, None), None);
    }

    proptest! {
        #[test]
        fn any_header_is_read(header in "[ -~\\t]{0,60}") {
            let text = Challenge::parse(401, Some(&header)).to_string();
            prop_assert!(!text.contains(char::is_control));
        }

        #[test]
        fn quoted_scope_survives(scope in "[a-z :/\\\\\"]{0,20}") {
            let escaped = scope.replace('\\', "\\\\").replace('"', "\\\"");
            let header = format!("Bearer realm=x, scope=\"{escaped}\"");
            prop_assert_eq!(Challenge::parse(401, Some(&header)).scope, Some(scope));
        }
    }
}
