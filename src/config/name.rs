//! Names that requests and URIs carry: hosts, origins, URI schemes.
//!
//! Pure: each function checks one written name and answers its normal form, lower case and without what a
//! browser leaves out, so that whoever compares needs no second look. It resolves nothing.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The normal form of a host without port: a DNS name, an IPv4 address or an IPv6 address in brackets.
pub(super) fn host(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = bare.unwrap_or(text).parse::<Ipv6Addr>() {
        return Some(format!("[{address}]"));
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(address.to_string());
    }
    let name = text.to_ascii_lowercase();
    let letters = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let edges = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && !name.contains("..");
    (letters && edges && name.len() <= 253).then_some(name)
}

/// The normal form of an origin, `scheme://host` with the port unless it is the scheme's usual one.
pub(super) fn origin(text: &str) -> Option<String> {
    let (written, rest) = text.split_once("://")?;
    let scheme = scheme(written)?;
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) if !rest.ends_with(']') => (name, Some(port)),
        _ => (rest, None),
    };
    let host = host(name)?;
    let Some(digits) = port else {
        return Some(format!("{scheme}://{host}"));
    };
    let port = digits
        .parse::<u16>()
        .ok()
        .filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))?;
    match (scheme.as_str(), port) {
        ("http", 80) | ("https", 443) => Some(format!("{scheme}://{host}")),
        _ => Some(format!("{scheme}://{host}:{port}")),
    }
}

/// The normal form of a URI scheme (RFC 3986 section 3.1).
pub(super) fn scheme(text: &str) -> Option<String> {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let letters = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    (starts && letters && text.len() <= 64).then(|| text.to_ascii_lowercase())
}

/// Whether this is a lower-case name of letters, digits, `_` and `-`.
pub(super) fn identifier(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
    let letters = text
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b));
    starts && letters && text.len() <= 48
}

/// Whether this is a JSON pointer (RFC 6901), the empty one included.
pub(super) fn json_pointer(text: &str) -> bool {
    let escaped = |part: &str| part.starts_with(['0', '1']);
    (text.is_empty() || text.starts_with('/')) && text.split('~').skip(1).all(escaped)
}

/// Whether this is a path to a field: names with dots between them, or a JSON pointer that is not empty.
pub(super) fn field_path(text: &str) -> bool {
    if text.starts_with('/') {
        return json_pointer(text);
    }
    text.split('.').all(|part| !part.is_empty())
}

/// Whether this is an address that a webhook may go to, as far as text tells.
pub(super) fn webhook(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| {
        let schemes = ["http", "https"].contains(&url.scheme());
        schemes && url.has_host() && url.username().is_empty() && url.password().is_none()
    })
}

/// Whether this is the name of an environment variable that is not one of ours.
pub(super) fn variable(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let letters = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    starts && letters && text.len() <= 128 && !text.starts_with("TIDINGS_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_take_their_normal_form() {
        assert_eq!(host("Bus.Example.ORG").as_deref(), Some("bus.example.org"));
        assert_eq!(host("10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!(host("0:0:0:0:0:0:0:1").as_deref(), Some("[::1]"));
        assert_eq!(host("[FE80::1]").as_deref(), Some("[fe80::1]"));
    }

    #[test]
    fn hosts_carry_nothing_else() {
        for wrong in [
            "",
            "*",
            "a:80",
            "http://a",
            "a/b",
            "a b",
            ".a",
            "-a",
            "a..b",
            "[a]",
            "ä.example",
        ] {
            assert_eq!(host(wrong), None, "{wrong}");
        }
        assert_eq!(host(&"a".repeat(254)), None);
    }

    #[test]
    fn origins_take_the_form_a_browser_sends() {
        assert_eq!(
            origin("HTTPS://App.example:443").as_deref(),
            Some("https://app.example")
        );
        assert_eq!(
            origin("http://app.example:3000").as_deref(),
            Some("http://app.example:3000")
        );
        assert_eq!(origin("http://[::1]").as_deref(), Some("http://[::1]"));
        assert_eq!(origin("http://[::1]:5173").as_deref(), Some("http://[::1]:5173"));
        assert_eq!(
            origin("vscode-webview://1a2b").as_deref(),
            Some("vscode-webview://1a2b")
        );
    }

    #[test]
    fn origins_have_no_path_and_no_wildcard() {
        for wrong in [
            "",
            "null",
            "*",
            "app.example",
            "https://",
            "https://a/",
            "https://*.a",
            "https://a:",
            "https://a:+1",
        ] {
            assert_eq!(origin(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn paths_to_fields_are_dotted_or_pointers() {
        for right in ["a", "author.name", "/a~1b/~0", "/", "a b"] {
            assert!(field_path(right), "{right}");
        }
        for wrong in ["", "a..b", ".a", "a.", "/~2", "/~"] {
            assert!(!field_path(wrong), "{wrong}");
        }
        assert!(json_pointer("") && json_pointer("/items/0") && !json_pointer("items"));
    }

    #[test]
    fn identifiers_are_lower_case() {
        assert!(identifier("a") && identifier("my-notes_2") && identifier(&"a".repeat(48)));
        for wrong in ["", "A", "1a", "_a", "a.b", "a b", "é", &"a".repeat(49)] {
            assert!(!identifier(wrong), "{wrong}");
        }
    }

    #[test]
    fn schemes_follow_the_rfc() {
        assert_eq!(scheme("Workspace").as_deref(), Some("workspace"));
        assert_eq!(scheme("x+y-1.z").as_deref(), Some("x+y-1.z"));
        for wrong in ["", "1a", "+a", "a_b", "a:", "a b", "é"] {
            assert_eq!(scheme(wrong), None, "{wrong}");
        }
    }
}
