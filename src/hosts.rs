//! Hosts, origins and addresses as configurations, `Host` and `Origin` headers write them.

use std::fmt;
use std::net::Ipv6Addr;

use http::Uri;

/// A host: names and IPv4 addresses are equal regardless of case, IPv6 addresses by value. `Display` writes
/// the normal form: lower case, and IPv6 in brackets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Host<'a> {
    Name(&'a str),
    V6(Ipv6Addr),
}

impl<'a> Host<'a> {
    /// Reads a host without port; IPv6 may come without brackets.
    pub(crate) fn parse(text: &'a str) -> Option<Host<'a>> {
        if let Ok(address) = text.parse() {
            return Some(Host::V6(address));
        }
        match Host::with_port(text)? {
            (host, None) => Some(host),
            _ => None,
        }
    }

    /// Reads `host[:port]`; `None` when the text is not exactly that.
    pub(crate) fn with_port(authority: &'a str) -> Option<(Host<'a>, Option<u16>)> {
        let (host, after) = if let Some(rest) = authority.strip_prefix('[') {
            let (inside, after) = rest.split_once(']')?;
            (Host::V6(inside.parse().ok()?), after)
        } else {
            let (name, after) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            (Host::Name(is_name(name).then_some(name)?), after)
        };
        // `localhost:` without digits is refused below, since servers read it differently.
        if after.is_empty() {
            return Some((host, None));
        }
        let digits = after.strip_prefix(':')?;
        // `parse` alone would accept a sign.
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        Some((host, Some(is_number.then_some(digits)?.parse().ok()?)))
    }

    /// Returns true for the spellings of this machine that browsers send; they turn others, such as 127.1,
    /// into these.
    pub(crate) fn is_loopback(self) -> bool {
        match self {
            Host::Name(name) => name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1",
            Host::V6(address) => address == Ipv6Addr::LOCALHOST,
        }
    }
}

/// Returns true for an address that begins with https, or with http if its host is this machine: one on the
/// way cannot change the answers.
#[cfg_attr(not(feature = "service"), allow(dead_code, reason = "the service uses it"))]
pub(crate) fn is_https_or_here(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else {
        return false;
    };
    match (uri.scheme_str(), uri.host().and_then(Host::parse)) {
        (Some("https"), Some(_)) => true,
        (Some("http"), Some(host)) => host.is_loopback(),
        _ => false,
    }
}

/// Returns true for the address of a message broker: `nats://` or `tls://`, a host, and perhaps a port.
pub(crate) fn is_broker_url(address: &str) -> bool {
    let rest = address
        .strip_prefix("nats://")
        .or_else(|| address.strip_prefix("tls://"));
    matches!(rest.map(Host::with_port), Some(Some(_)))
}

impl PartialEq for Host<'_> {
    fn eq(&self, other: &Host<'_>) -> bool {
        match (self, other) {
            (Host::Name(name), Host::Name(other)) => name.eq_ignore_ascii_case(other),
            (Host::V6(address), Host::V6(other)) => address == other,
            _ => false,
        }
    }
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(&name.to_ascii_lowercase()),
            Host::V6(address) => write!(f, "[{address}]"),
        }
    }
}

/// Returns true for a DNS name or an IPv4 address.
fn is_name(text: &str) -> bool {
    // Underscores are not allowed in host names, but names of containers have them.
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let has_only_allowed = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    // 253 is the longest name that DNS can carry (RFC 1035 section 2.3.4).
    starts_well && has_only_allowed && !text.contains("..") && text.len() <= 253
}

/// An origin: `scheme://host[:port]`. The port is none where it is the scheme's own. `Display` writes the
/// form that browsers send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WebOrigin<'a> {
    scheme: &'a str,
    host: Host<'a>,
    port: Option<u16>,
}

impl<'a> WebOrigin<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<WebOrigin<'a>> {
        let (scheme, authority) = text.split_once("://")?;
        let (host, port) = Host::with_port(authority)?;
        let mut origin = WebOrigin { scheme, host, port };
        // Browsers leave the scheme's own port out, configurations may name it.
        if port == Some(80) && origin.has_scheme("http") || port == Some(443) && origin.has_scheme("https") {
            origin.port = None;
        }
        is_scheme(scheme).then_some(origin)
    }

    /// Returns true for the pages of servers on this machine, on any port.
    pub(crate) fn is_loopback(self) -> bool {
        (self.has_scheme("http") || self.has_scheme("https")) && self.host.is_loopback()
    }

    fn has_scheme(self, scheme: &str) -> bool {
        self.scheme.eq_ignore_ascii_case(scheme)
    }
}

impl PartialEq for WebOrigin<'_> {
    fn eq(&self, other: &WebOrigin<'_>) -> bool {
        self.host == other.host && self.port == other.port && self.has_scheme(other.scheme)
    }
}

impl fmt::Display for WebOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.to_ascii_lowercase(), self.host)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// Returns true for a URI scheme (RFC 3986 section 3.1) of at most 64 bytes.
pub(crate) fn is_scheme(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let has_only_allowed = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    starts_well && has_only_allowed && text.len() <= 64
}

/// Returns true for an address of a service: one of a webhook, without query and fragment.
pub(crate) fn is_service_url(text: &str) -> bool {
    is_webhook_url(text) && !text.contains(['?', '#'])
}

/// Returns true for an address that a webhook may call, as far as its text shows.
pub(crate) fn is_webhook_url(text: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn host_text(text: &str) -> Option<String> {
        Some(Host::parse(text)?.to_string())
    }

    fn origin_text(text: &str) -> Option<String> {
        Some(WebOrigin::parse(text)?.to_string())
    }

    #[test]
    fn host_takes_its_normal_form() {
        assert_eq!(host_text("Bus.Example.ORG").as_deref(), Some("bus.example.org"));
        assert_eq!(host_text("10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!(host_text("0:0:0:0:0:0:0:1").as_deref(), Some("[::1]"));
        assert_eq!(host_text("[FE80::1]").as_deref(), Some("[fe80::1]"));
    }

    #[test]
    fn broker_is_a_host_and_perhaps_a_port() {
        for right in [
            "nats://a",
            "tls://a.example:4222",
            "nats://[::1]:4222",
            "nats://10.0.0.7:1",
        ] {
            assert!(is_broker_url(right), "{right}");
        }
        for wrong in [
            "a:4222",
            "http://a",
            "nats://a@b",
            "nats://a/",
            "nats://a:",
            "tls://",
            "nats://a:99999",
        ] {
            assert!(!is_broker_url(wrong), "{wrong}");
        }
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
            assert_eq!(host_text(wrong), None, "{wrong}");
        }
        assert_eq!(host_text(&"a".repeat(254)), None);
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
            assert_eq!(origin_text(written).as_deref(), Some(normal));
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
            assert_eq!(origin_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn scheme_follows_the_rfc() {
        assert!(is_scheme("Workspace") && is_scheme("x+y-1.z"));
        for wrong in ["", "1a", "+a", "a_b", "a:", "a b", "é"] {
            assert!(!is_scheme(wrong), "{wrong}");
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
