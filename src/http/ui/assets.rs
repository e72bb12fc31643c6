//! The files of the page, each compressed beside its source.
//!
//! They are built into the program, so the page needs no folder and no other host. A test compares each
//! compressed file with its source.

use std::sync::LazyLock;

use ::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::Full;
use sha2::{Digest, Sha256};

use crate::http::problem::{Problem, ProblemKind};

/// One file.
pub(super) struct Asset {
    name: &'static str,
    media_type: &'static str,
    gz: &'static [u8],
}

macro_rules! assets {
    ($($name:literal: $media_type:literal,)+) => {
        [$(Asset {
            name: $name,
            media_type: $media_type,
            gz: include_bytes!(concat!("assets/", $name, ".gz")),
        },)+]
    };
}

/// All files.
const ASSETS: &[Asset] = &assets! {
    "index.html": "text/html; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "overview.js": "text/javascript; charset=utf-8",
    "sessions.js": "text/javascript; charset=utf-8",
    "resources.js": "text/javascript; charset=utf-8",
    "why.js": "text/javascript; charset=utf-8",
    "changes.js": "text/javascript; charset=utf-8",
    "subscribers.js": "text/javascript; charset=utf-8",
};

/// The names of all files.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ASSETS.iter().map(|asset| asset.name)
}

/// The etags of all files, by their content.
static ETAGS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| ASSETS.iter().map(etag_of).collect());

fn etag_of(asset: &Asset) -> HeaderValue {
    let hash = Sha256::digest(asset.gz);
    let digits: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(format!("\"{digits}\"")).expect("hexadecimal digits in quotes are a header")
}

impl Asset {
    /// Returns the file of a path.
    pub(super) fn at(path: &str) -> Option<&'static Asset> {
        let name = match path.strip_prefix("/ui/")? {
            "" => "index.html",
            name => name,
        };
        ASSETS.iter().find(|asset| asset.name == name)
    }

    /// Answers with the file, or with 304 to a client that has it.
    ///
    /// # Errors
    /// 406 to a client that does not take gzip: the files are kept in no other form.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Result<Response<Full<Bytes>>, Problem> {
        if !takes_gzip(headers) {
            let text = "the page is kept compressed; send Accept-Encoding: gzip";
            return Err(ProblemKind::NotAcceptable.because(text));
        }
        // Computed once: the files never change while the program runs.
        let at = ASSETS.iter().position(|asset| asset.name == self.name);
        let etag = ETAGS[at.unwrap_or_default()].clone();
        let mut response = match has(headers, &etag) {
            true => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response
            }
            false => {
                let mut response = Response::new(Full::new(Bytes::from_static(self.gz)));
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
                headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                response
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, etag);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        Ok(response)
    }
}

/// Returns true for a client that says it takes gzip (RFC 9110, section 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let mut any = None;
    for value in headers.get_all(header::ACCEPT_ENCODING) {
        for coding in value.to_str().unwrap_or_default().split(',') {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = weight.trim().trim_start_matches("q=").trim();
            let is_taken = !matches!(weight.parse::<f32>(), Ok(weight) if weight <= 0.0);
            match name.trim() {
                // A coding that is named counts more than the asterisk, wherever it stands.
                name if name.eq_ignore_ascii_case("gzip") => return is_taken,
                "*" => any = Some(is_taken),
                _ => {}
            }
        }
    }
    any == Some(true)
}

/// Returns true if the client has the file with this etag.
fn has(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let own = etag.to_str().unwrap_or_default();
    headers.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        let named = value.to_str().unwrap_or_default();
        named
            .split(',')
            .any(|one| matches!(one.trim(), "*") || one.trim().trim_start_matches("W/") == own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::collections::BTreeSet;
    use std::io::Read as _;
    use std::path::Path;

    /// The most bytes of all files together, so that they fit into the program.
    const BYTES_MAX: usize = 45_000;

    fn folder() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/ui/assets"))
    }

    #[test]
    fn compressed_files_are_those_of_the_sources() {
        for asset in ASSETS {
            let mut content = Vec::new();
            GzDecoder::new(asset.gz).read_to_end(&mut content).unwrap();
            let source = std::fs::read(folder().join(asset.name)).unwrap();
            assert!(
                content == source,
                "{} has changed; run tests/browser/pack",
                asset.name
            );
        }
    }

    #[test]
    fn folder_has_the_files_and_no_others() {
        let present: BTreeSet<_> = std::fs::read_dir(folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let named = ASSETS
            .iter()
            .flat_map(|asset| [asset.name.to_owned(), format!("{}.gz", asset.name)]);
        assert_eq!(present, named.collect());
    }

    #[test]
    fn files_are_small() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.gz.len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn files_name_no_other_host() {
        for asset in ASSETS {
            let source = std::fs::read_to_string(folder().join(asset.name)).unwrap();
            for word in [
                "//cdn",
                "https://",
                "innerHTML",
                "insertAdjacentHTML",
                "localStorage",
                "eval(",
            ] {
                assert!(!source.contains(word), "{} has {word}", asset.name);
            }
        }
    }

    #[test]
    fn gzip_is_taken_by_those_that_say_so() {
        let takes = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            takes_gzip(&headers)
        };
        assert!(!takes_gzip(&HeaderMap::new()));
        for value in [
            "gzip",
            "br, GZIP;q=0.5",
            "*",
            "deflate, gzip, br, zstd",
            "*;q=0, gzip",
        ] {
            assert!(takes(value), "{value}");
        }
        for value in ["", "br", "identity", "gzip;q=0", "gzip;q=0.0, *", "*;q=0"] {
            assert!(!takes(value), "{value}");
        }
    }
}
