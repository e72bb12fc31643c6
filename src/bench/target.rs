//! The address of the server under test.
//!
//! Load goes to this machine unless the caller allows another one explicitly.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use http::Uri;

use crate::bench::BenchError;
use crate::wire::header_lines::HeaderLines;
use crate::wire::http1::HttpTarget;

/// Sessions of one source address: fewer than the kernel has ports for it.
const SESSIONS_PER_SOURCE: usize = 20_000;

/// Resolves the address, for a target without TLS. Refuses one of another machine unless `allow_remote`.
pub(crate) fn resolve(url: &str, allow_remote: bool) -> Result<HttpTarget, BenchError> {
    // Before an @ there may be a password.
    let shown = if url.contains('@') { "…" } else { url };
    let wrong = |reason: &str| BenchError::Arguments(format!("cannot load {shown:?}: {reason}"));
    let parsed: Uri = url
        .parse()
        .map_err(|_| wrong("it is no address such as http://127.0.0.1:8808/mcp"))?;
    let port_default = match parsed.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return Err(wrong("use an http or https address")),
    };
    let authority = parsed.authority().ok_or_else(|| wrong("it names no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong(
            "an address with a user name or a password is not accepted: present them by --header",
        ));
    }
    let host = authority.host();
    let port = authority.port_u16().unwrap_or(port_default);
    let resolved = (host.trim_matches(['[', ']']), port).to_socket_addrs();
    // Resolved once, so that all sessions load the same address.
    let resolved: Vec<SocketAddr> = resolved
        .map_err(|error| BenchError::Unreachable(format!("cannot resolve {host}: {error}")))?
        .collect();
    // IPv4 first: its loopback network has more source addresses.
    let loopback = resolved.iter().filter(|address| address.ip().is_loopback());
    let nearest = loopback.min_by_key(|address| address.is_ipv6());
    let address = match (nearest, allow_remote) {
        (Some(address), _) => address,
        (None, true) => resolved.first().ok_or_else(|| wrong("its name has no address"))?,
        (None, false) => {
            return Err(wrong(
                "it is not on this machine; this is a load generator, so say --allow-remote if the server is \
                     yours to load",
            ));
        }
    };
    let path = match parsed.path_and_query() {
        Some(path) => path.as_str(),
        None => "/",
    };
    Ok(HttpTarget {
        address: *address,
        authority: authority.as_str().to_owned(),
        path: path.to_owned(),
        headers: HeaderLines::default(),
        tls: None,
    })
}

/// Returns the source address of session `index`, where the default one might run out of ports.
pub(crate) fn source(target: &HttpTarget, index: usize) -> Option<SocketAddr> {
    let nth = index / SESSIONS_PER_SOURCE;
    match target.address.ip() {
        IpAddr::V4(address) if address.is_loopback() && nth > 0 => {
            let source = Ipv4Addr::new(127, 0, 0, u8::try_from(nth + 1).unwrap_or(u8::MAX));
            Some(SocketAddr::new(source.into(), 0))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_address_is_parsed() {
        let target = resolve("http://127.0.0.1:8808/mcp?x=1", false).unwrap();
        assert_eq!(target.address, "127.0.0.1:8808".parse().unwrap());
        assert_eq!(
            (target.authority.as_str(), target.path.as_str()),
            ("127.0.0.1:8808", "/mcp?x=1")
        );
        let secure = resolve("https://127.0.0.1/mcp", false).unwrap();
        assert_eq!(secure.address, "127.0.0.1:443".parse().unwrap());
        assert_eq!(
            resolve("http://[::1]:9/", false).unwrap().address,
            "[::1]:9".parse().unwrap()
        );
    }

    #[test]
    fn other_machines_need_permission() {
        let error = resolve("http://192.0.2.1:80/mcp", false).unwrap_err();
        assert!(error.to_string().contains("--allow-remote"), "{error}");
        assert!(resolve("http://192.0.2.1:80/mcp", true).is_ok());
        for url in [
            "",
            "127.0.0.1:1",
            "ftp://127.0.0.1/",
            "http://user:s3cr3t@127.0.0.1/",
            "http://user:s3cr3t @",
        ] {
            let Err(BenchError::Arguments(reason)) = resolve(url, true) else {
                panic!("{url}");
            };
            assert!(!reason.contains("s3cr3t"), "{reason}");
        }
    }

    #[test]
    fn many_sessions_use_several_addresses() {
        let target = resolve("http://127.0.0.1:1/", false).unwrap();
        assert_eq!(source(&target, 19_999), None);
        assert_eq!(source(&target, 20_000), Some("127.0.0.2:0".parse().unwrap()));
        assert_eq!(source(&target, 59_999), Some("127.0.0.3:0".parse().unwrap()));
        let target = resolve("http://[::1]:1/", false).unwrap();
        assert_eq!(source(&target, 59_999), None);
    }
}
