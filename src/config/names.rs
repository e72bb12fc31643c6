//! The syntax of hosts, origins, URI schemes, paths to fields and other names in the configuration.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns the normal form of a host without port: a DNS name, an IPv4 address or an IPv6 address in
/// brackets.
pub(super) fn host(text: &str) -> Option<String> {
    let inner = text.strip_prefix('[').unwrap_or(text);
    // One bracket without the other makes neither an address nor a name.
    let bare = match inner.strip_suffix(']') {
        Some(bare) if inner.len() < text.len() => bare,
        _ => text,
    };
    if let Ok(address) = bare.parse::<Ipv6Addr>() {
        return Some(format!("[{address}]"));
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(address.to_string());
    }
    let name = text.to_ascii_lowercase();
    // Underscores are not allowed in host names, but names of containers have them.
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    // 253 is the longest name that DNS can carry (RFC 1035 section 2.3.4).
    let is_name = starts_well && !name.contains("..") && has_only(&name, b"-_.") && name.len() <= 253;
    is_name.then_some(name)
}

/// Returns the normal form of an origin: `scheme://host`, with the port unless it is the usual one of the
/// scheme.
pub(super) fn origin(text: &str) -> Option<String> {
    let (written, rest) = text.split_once("://")?;
    let scheme = scheme(written)?;
    let (name, port) = match rest.rsplit_once(':') {
        // A colon before the closing bracket belongs to the IPv6 address.
        Some((name, port)) if !rest.ends_with(']') => (name, Some(port)),
        _ => (rest, None),
    };
    let host = host(name)?;
    let Some(port) = port else {
        return Some(format!("{scheme}://{host}"));
    };
    // Browsers leave out the usual port in `Origin`, so a form with it would never match.
    match (scheme.as_str(), port_number(port)?) {
        ("http", 80) | ("https", 443) => Some(format!("{scheme}://{host}")),
        (_, port) => Some(format!("{scheme}://{host}:{port}")),
    }
}

/// Returns the normal form of a URI scheme (RFC 3986 section 3.1).
pub(super) fn scheme(text: &str) -> Option<String> {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    (starts && has_only(text, b"+-.") && text.len() <= 64).then(|| text.to_ascii_lowercase())
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
    let known = ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str());
    // The HTTP client parses the address in full when the sink is attached, so this only needs to catch
    // slips. An `@` would mark a user and a password, which do not belong into a file that many may read.
    let plain =
        !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "@<>^|%\\\"`{}".contains(c));
    known && plain && (port.is_empty() || port_number(port).is_some())
}

/// Returns true for the name of an environment variable of another program.
pub(super) fn is_foreign_variable(text: &str) -> bool {
    // Names with the prefix of Tidings are left to keys, of which there may be more one day.
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && has_only(text, b"_") && text.len() <= 128 && !text.starts_with("TIDINGS_")
}

fn port_number(digits: &str) -> Option<u16> {
    // The parser of integers accepts a sign, which a port never has.
    match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => digits.parse().ok(),
        false => None,
    }
}

fn has_only(text: &str, others: &[u8]) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_takes_its_normal_form() {
        assert_eq!(host("Bus.Example.ORG").as_deref(), Some("bus.example.org"));
        assert_eq!(host("10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!(host("0:0:0:0:0:0:0:1").as_deref(), Some("[::1]"));
        assert_eq!(host("[FE80::1]").as_deref(), Some("[fe80::1]"));
    }

    #[test]
    fn host_with_anything_else_is_refused() {
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
            "[::1",
            "ä.example",
        ] {
            assert_eq!(host(wrong), None, "{wrong}");
        }
        assert_eq!(host(&"a".repeat(254)), None);
    }

    #[test]
    fn origin_takes_the_form_a_browser_sends() {
        for (written, normal) in [
            ("HTTPS://App.example:443", "https://app.example"),
            ("http://app.example:3000", "http://app.example:3000"),
            ("http://[::1]", "http://[::1]"),
            ("http://[::1]:5173", "http://[::1]:5173"),
            ("vscode-webview://1a2b", "vscode-webview://1a2b"),
        ] {
            assert_eq!(origin(written).as_deref(), Some(normal));
        }
    }

    #[test]
    fn origin_with_path_or_wildcard_is_refused() {
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
