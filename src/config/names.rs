//! The syntax of URI schemes, paths to fields and other names in the configuration.

use crate::hosts::is_scheme;

/// Returns the normal form of a URI scheme (RFC 3986 section 3.1).
pub(super) fn scheme(text: &str) -> Option<String> {
    is_scheme(text).then(|| text.to_ascii_lowercase())
}

/// Returns true for a lower-case name of letters, digits, `_` and `-`.
pub(super) fn is_identifier(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
    starts && has_only(text, b"_-") && !text.contains(|c: char| c.is_ascii_uppercase()) && text.len() <= 48
}

/// Returns true for a JSON pointer (RFC 6901), the empty one included.
pub(super) fn is_json_pointer(text: &str) -> bool {
    // `~` is always part of an escape: `~0` or `~1`.
    let mut escapes = text.split('~').skip(1);
    (text.is_empty() || text.starts_with('/')) && escapes.all(|part| part.starts_with(['0', '1']))
}

/// Returns true for a path to a field: names with dots between them, or a JSON pointer that is not empty.
pub(super) fn is_field_path(text: &str) -> bool {
    if text.starts_with('/') {
        return is_json_pointer(text);
    }
    text.split('.').all(|part| !part.is_empty())
}

/// Returns true for an address that a webhook may call, as far as its text shows.
pub(super) fn is_webhook_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    // The HTTP client parses the address in full when the sink is attached, so this only needs to catch
    // slips. An `@` would mark a user and a password, which do not belong into a file that many may read.
    let is_plain = !host.contains(|c: char| c.is_whitespace() || "@<>^|%\\\"`{}".contains(c));
    let is_web = ["http", "https"]
        .iter()
        .any(|name| scheme.eq_ignore_ascii_case(name));
    let is_port = port.is_empty() || !port.starts_with('+') && port.parse::<u16>().is_ok();
    is_web && is_plain && !host.is_empty() && is_port
}

/// Returns true for the name of an environment variable of another program.
pub(super) fn is_foreign_variable(text: &str) -> bool {
    // Names with the prefix of Tidings are left to keys, of which there may be more one day.
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && has_only(text, b"_") && text.len() <= 128 && !text.starts_with("TIDINGS_")
}

fn has_only(text: &str, others: &[u8]) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_path_is_dotted_or_a_pointer() {
        for right in ["a", "author.name", "/a~1b/~0", "/", "a b"] {
            assert!(is_field_path(right), "{right}");
        }
        for wrong in ["", "a..b", ".a", "a.", "/~2", "/~"] {
            assert!(!is_field_path(wrong), "{wrong}");
        }
        assert!(is_json_pointer("") && is_json_pointer("/items/0") && !is_json_pointer("items"));
    }

    #[test]
    fn identifier_is_lower_case() {
        assert!(is_identifier("a") && is_identifier("my-notes_2") && is_identifier(&"a".repeat(48)));
        for wrong in ["", "A", "1a", "aB", "_a", "a.b", "a b", "é", &"a".repeat(49)] {
            assert!(!is_identifier(wrong), "{wrong}");
        }
    }

    #[test]
    fn scheme_follows_the_rfc() {
        assert_eq!(scheme("Workspace").as_deref(), Some("workspace"));
        assert_eq!(scheme("x+y-1.z").as_deref(), Some("x+y-1.z"));
        for wrong in ["", "1a", "+a", "a_b", "a:", "a b", "é"] {
            assert_eq!(scheme(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn webhook_url_has_host_and_no_user() {
        for right in [
            "https://hooks.example/tidings",
            "HTTP://127.0.0.1:80",
            "http://[::1]:9/x?y",
            "https://ä.example",
        ] {
            assert!(is_webhook_url(right), "{right}");
        }
        for wrong in [
            "",
            "hooks.example",
            "ftp://hooks.example",
            "https://",
            "https:///x",
            "https://user:secret@hooks.example",
            "https://a b/",
            "https://a:99999",
        ] {
            assert!(!is_webhook_url(wrong), "{wrong}");
        }
    }
}
