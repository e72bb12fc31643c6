//! The `Sec-Fetch-*` headers (W3C Fetch Metadata), by which a browser tells whose page causes a request.
//!
//! Scripts cannot set them, and clients other than browsers send none of them.

use ::http::{HeaderMap, HeaderName, Method, header};

/// The header that tells whether the page is one of this origin, of this site, or of another one.
pub(super) const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const USER: HeaderName = HeaderName::from_static("sec-fetch-user");

/// Returns true for a method that may change something. CONNECT opens a WebSocket over HTTP/2, as GET does
/// over HTTP/1.1.
pub(crate) fn may_change(method: &Method) -> bool {
    !method.is_safe() && *method != Method::CONNECT
}

/// Returns the `Sec-Fetch-Site` of a request that a page of another origin may not cause; none for every
/// other request.
///
/// Such a page may not write, since some writes need no preflight, and it may not read without telling its
/// origin, since such a read is of no use to it but holds a stream.
pub(super) fn foreign_site(method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    if says(headers, &SITE, "cross-site") {
        let may_read = headers.contains_key(header::ORIGIN) || is_followed_link(headers);
        return (may_change(method) || !may_read).then_some("cross-site");
    }
    // A page of another port of this machine.
    (says(headers, &SITE, "same-site") && may_change(method)).then_some("same-site")
}

/// Returns true for the page that a user asked for, for example by a link on another one.
fn is_followed_link(headers: &HeaderMap) -> bool {
    says(headers, &USER, "?1") && says(headers, &DEST, "document")
}

/// Returns true if one of the headers of this name has this value.
fn says(headers: &HeaderMap, name: &HeaderName, value: &str) -> bool {
    headers.get_all(name).iter().any(|sent| {
        sent.as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(value.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::HeaderValue;

    fn foreign(method: &Method, sent: &[(&'static str, &'static str)]) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(*name, HeaderValue::from_static(value));
        }
        foreign_site(method, &headers)
    }

    #[test]
    fn writes_of_other_pages_are_foreign() {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            for site in ["cross-site", "same-site"] {
                let sent = [("sec-fetch-site", site), ("origin", "http://localhost:3000")];
                assert_eq!(foreign(&method, &sent), Some(site), "{method}");
            }
            for site in ["same-origin", "none"] {
                assert_eq!(foreign(&method, &[("sec-fetch-site", site)]), None, "{method}");
            }
            assert_eq!(foreign(&method, &[]), None, "{method}");
        }
    }

    #[test]
    fn reads_across_sites_without_origin_are_foreign() {
        let site = ("sec-fetch-site", "cross-site");
        let other = Some("cross-site");
        assert_eq!(foreign(&Method::GET, &[site]), other);
        assert_eq!(foreign(&Method::GET, &[("sec-fetch-site", "none"), site]), other);
        let from_loopback = [site, ("origin", "http://127.0.0.1:3000")];
        assert_eq!(foreign(&Method::GET, &from_loopback), None);
        assert_eq!(foreign(&Method::OPTIONS, &from_loopback), None);
        assert_eq!(foreign(&Method::GET, &[("sec-fetch-site", "same-site")]), None);
    }

    #[test]
    fn followed_link_may_read() {
        let site = ("sec-fetch-site", "cross-site");
        let link = [site, ("sec-fetch-user", "?1"), ("sec-fetch-dest", "document")];
        assert_eq!(foreign(&Method::GET, &link), None);
        assert_eq!(foreign(&Method::POST, &link), Some("cross-site"));
        // A frame that the page opens by itself.
        let frame = [site, ("sec-fetch-dest", "iframe")];
        assert_eq!(foreign(&Method::GET, &frame), Some("cross-site"));
    }
}
