//! Addresses as people type them: with or without a scheme, a host and the path of the MCP endpoint.
//!
//! Errors never repeat an address that may hold a password.

use std::fmt;
use std::net::SocketAddr;

use reqwest::Url;

use super::{CliError, usage};
use crate::http_client;

/// The path of the MCP endpoint of a service.
const MCP_PATH: &str = "/mcp";

const EXPECTED: &str = "expected an address such as http://127.0.0.1:8808, localhost:8808 or 8808";

/// Reads an address: `http://host:1/path`, `host:1`, `:1` or `1`, where a missing scheme is http and a
/// missing host is this machine.
///
/// # Errors
/// The remedy.
pub(super) fn typed(text: &str) -> Result<Url, &'static str> {
    // A URL copied from a page or a file often brings white space along.
    let text = text.trim();
    let url = match text.contains("://") {
        true => Url::parse(text),
        false => Url::parse(&format!("http://{}", with_host(text))),
    };
    let url = url.map_err(|_| EXPECTED)?;
    http_client::accept_url(&url)?;
    Ok(url)
}

/// Adds this machine to an address that begins with a port.
fn with_host(text: &str) -> String {
    let rest = text.strip_prefix(':').unwrap_or(text);
    let port = rest.split('/').next().unwrap_or_default();
    match !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("127.0.0.1:{rest}"),
        false => text.to_owned(),
    }
}

/// Reads the address of an MCP endpoint. One without scheme and path is a service's, whose endpoint is at
/// `/mcp`; a path that is given is kept.
///
/// # Errors
/// The address, without its secrets, and the remedy.
pub(super) fn endpoint(text: &str) -> Result<Url, String> {
    let mut url =
        typed(text).map_err(|reason| format!("cannot reach \"{}\": {reason}", http_client::shown(text)))?;
    // An address with a scheme was copied from somewhere, and its path is meant as it is.
    if !text.contains("://") && url.path() == "/" {
        url.set_path(MCP_PATH);
    }
    Ok(url)
}

/// Reads an address to listen on: `127.0.0.1:1`, `localhost:1`, `:1` or `1`; without a host it is this
/// machine alone.
///
/// # Errors
/// The expected form.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    let place = with_host(text.trim());
    let place = match place.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => place,
    };
    place.parse().map_err(|_| {
        "write an address and a port, such as 127.0.0.1:8808, localhost:8808, 8808, or 0.0.0.0:8808 for other \
         machines"
            .to_owned()
    })
}

/// Returns the address of the usual endpoint of a server whose address has no path.
pub(super) fn usual_endpoint(url: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    // A path that was named is no oversight, so another one is only suggested.
    if url.path() != "/" {
        return None;
    }
    url.set_path(MCP_PATH);
    Some(url.into())
}

/// Returns true for a word that is an address rather than a resource's URI: an http address, or a port with
/// or without a host.
pub(super) fn is_address(word: &str) -> bool {
    if let Some((scheme, _)) = word.split_once("://") {
        return matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https");
    }
    let place = word.split('/').next().unwrap_or_default();
    let port = match place.rsplit_once(':') {
        // Other words with several colons are URNs.
        Some((host, _)) if host.contains(':') && !host.starts_with('[') => return false,
        Some((_, port)) => port,
        None if place == "localhost" => return true,
        None => place,
    };
    port.parse::<u16>().is_ok()
}

/// The address of a service, without the path of its MCP endpoint. Messages show it without a user name and
/// a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ServiceUrl(String);

impl From<String> for ServiceUrl {
    fn from(text: String) -> ServiceUrl {
        match typed(&text) {
            Ok(url) => ServiceUrl::of(url),
            // Checked by `accept`, since clap repeats a value that it cannot parse.
            Err(_) => ServiceUrl(text),
        }
    }
}

impl ServiceUrl {
    fn of(mut url: Url) -> ServiceUrl {
        // One variable serves commands for the HTTP API and for MCP, so both forms mean the service.
        let path = url.path().trim_end_matches('/');
        if let Some(base) = path.strip_suffix(MCP_PATH) {
            let base = base.to_owned();
            url.set_path(&base);
        }
        ServiceUrl(url.into())
    }

    /// Checks that a service can be reached by it.
    pub(super) fn accept(&self, subcommand: &str) -> Result<(), CliError> {
        match typed(&self.0) {
            Ok(_) => Ok(()),
            Err(reason) => Err(usage(subcommand, &format!("cannot reach \"{self}\": {reason}"))),
        }
    }

    /// Returns the address of a path of the service, which begins with a slash. The service may be mounted
    /// below a path of its own.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.0.trim_end_matches('/'))
    }

    /// Returns the address of its MCP endpoint.
    pub(super) fn endpoint(&self) -> String {
        self.at(MCP_PATH)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&http_client::shown(&self.0))
    }
}

impl fmt::Debug for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_addresses_are_completed() {
        for (text, service, mcp) in [
            ("9000", "http://127.0.0.1:9000/", "http://127.0.0.1:9000/mcp"),
            (":9000", "http://127.0.0.1:9000/", "http://127.0.0.1:9000/mcp"),
            (":9000/mcp", "http://127.0.0.1:9000/", "http://127.0.0.1:9000/mcp"),
            (
                "localhost:9000",
                "http://localhost:9000/",
                "http://localhost:9000/mcp",
            ),
            ("[::1]:9000", "http://[::1]:9000/", "http://[::1]:9000/mcp"),
            ("bus.example", "http://bus.example/", "http://bus.example/mcp"),
            ("h:1/base/mcp/", "http://h:1/base", "http://h:1/base/mcp/"),
            ("http://h:1", "http://h:1/", "http://h:1/"),
            ("https://h/mcp", "https://h/", "https://h/mcp"),
        ] {
            if text.starts_with("https") && !cfg!(feature = "tls") {
                continue;
            }
            assert_eq!(ServiceUrl::from(text.to_owned()).as_str(), service, "{text}");
            assert_eq!(endpoint(text).unwrap().as_str(), mcp, "{text}");
        }
        let base = ServiceUrl::from("h:1/base/mcp".to_owned());
        assert_eq!(base.at("/v1/sessions"), "http://h:1/base/v1/sessions");
        assert_eq!(base.endpoint(), "http://h:1/base/mcp");
    }

    #[test]
    fn wrong_addresses_are_refused() {
        for text in [
            "",
            ":",
            "99999",
            "http://",
            "ftp://h",
            "demo://a",
            "a b",
            "user:pass@h:1",
        ] {
            assert!(typed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn listeners_are_of_this_machine_unless_named() {
        for (text, expected) in [
            ("9000", "127.0.0.1:9000"),
            (":9000", "127.0.0.1:9000"),
            ("localhost:9000", "127.0.0.1:9000"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:0", "[::1]:0"),
        ] {
            assert_eq!(listen(text), Ok(expected.parse().unwrap()), "{text}");
        }
        for text in ["", "nowhere", "h:1", "70000", "127.0.0.1", ":", "localhost:"] {
            assert!(listen(text).unwrap_err().contains("127.0.0.1:8808"), "{text}");
        }
    }

    #[test]
    fn addresses_differ_from_uris() {
        for address in [
            "http://h",
            "HTTPS://h/mcp",
            "localhost",
            "localhost:9000",
            ":9",
            "9000",
            "[::1]:9",
            "h:1/mcp",
        ] {
            assert!(is_address(address), "{address}");
        }
        for uri in [
            "demo://a",
            "urn:isbn:1",
            "file:///a",
            "mailto:a",
            "data:,x",
            "h",
            "",
        ] {
            assert!(!is_address(uri), "{uri}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            is_address(&text);
            let url = ServiceUrl::from(text.clone());
            if typed(&text).is_ok() {
                let again = ServiceUrl::from(url.as_str().to_owned());
                prop_assert_eq!(again.as_str(), url.as_str());
            }
        }
    }
}
