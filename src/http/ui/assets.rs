//! The files of the page, each compressed beside its source.
//!
//! They are built into the program, so the page needs no folder and no other host. A client that takes no
//! gzip gets them unpacked. A test compares each compressed file with its source.

use std::io::Read as _;
use std::sync::{LazyLock, OnceLock};

use ::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use flate2::read::GzDecoder;
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
    "cluster.js": "text/javascript; charset=utf-8",
    "upstreams.js": "text/javascript; charset=utf-8",
    "changes.js": "text/javascript; charset=utf-8",
    "subscribers.js": "text/javascript; charset=utf-8",
};

/// The names of all files.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ASSETS.iter().map(|asset| asset.name)
}

/// The most bytes that a file has without its coding, so that a mistake in the build takes no memory.
const PLAIN_MAX: u64 = 1 << 20;

/// The form in which a file is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AssetForm {
    /// As it is kept, with `Content-Encoding: gzip`.
    Gzip,
    /// Without a coding.
    Plain,
}

/// What is kept of a file beside its bytes.
struct KeptAsset {
    /// The forms have etags of their own, since their bytes differ.
    gzip_etag: HeaderValue,
    plain_etag: HeaderValue,
    /// The bytes without a coding, made for the first client that wants them.
    plain: OnceLock<Bytes>,
}

/// What is kept of all files, in their order.
static KEPT: LazyLock<Vec<KeptAsset>> = LazyLock::new(|| ASSETS.iter().map(KeptAsset::of).collect());

impl KeptAsset {
    fn of(asset: &Asset) -> KeptAsset {
        let hash = Sha256::digest(asset.gz);
        let digits: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let etag = |end| {
            let etag = HeaderValue::try_from(format!("\"{digits}{end}\""));
            etag.expect("letters and digits in quotes are a header")
        };
        KeptAsset {
            gzip_etag: etag(""),
            plain_etag: etag("-plain"),
            plain: OnceLock::new(),
        }
    }
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

    /// Answers with the file, or with 304 to a client that has it. A client that names no coding gets the
    /// file as it is: `curl` and probes name none.
    ///
    /// # Errors
    /// 406 to a client that refuses both forms.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Result<Response<Full<Bytes>>, Problem> {
        let Some(form) = form_for(headers) else {
            let text = "the page is served with gzip or without a coding; send Accept-Encoding: gzip";
            return Err(ProblemKind::NotAcceptable.because(text));
        };
        // Computed once: the files never change while the program runs.
        let at = ASSETS.iter().position(|asset| asset.name == self.name);
        let kept = &KEPT[at.unwrap_or_default()];
        let etag = match form {
            AssetForm::Gzip => kept.gzip_etag.clone(),
            AssetForm::Plain => kept.plain_etag.clone(),
        };
        let mut response = match has(headers, &etag) {
            true => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response
            }
            false => {
                let content = match form {
                    AssetForm::Gzip => Bytes::from_static(self.gz),
                    AssetForm::Plain => kept.plain.get_or_init(|| self.unpacked()).clone(),
                };
                let mut response = Response::new(Full::new(content));
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
                if form == AssetForm::Gzip {
                    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                }
                response
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, etag);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        Ok(response)
    }

    fn unpacked(&self) -> Bytes {
        let mut content = Vec::new();
        let read = GzDecoder::new(self.gz).take(PLAIN_MAX).read_to_end(&mut content);
        read.expect("the files are gzip, which a test shows");
        content.into()
    }
}

/// Returns the form that a client takes (RFC 9110, section 12.5.3): gzip if it names it, and the file as it
/// is unless it refuses that or prefers gzip.
fn form_for(headers: &HeaderMap) -> Option<AssetForm> {
    let mut gzip = None;
    let mut identity = None;
    let mut any = None;
    for value in headers.get_all(header::ACCEPT_ENCODING) {
        for coding in value.to_str().unwrap_or_default().split(',') {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = weight.trim().trim_start_matches("q=").trim();
            let weight = weight.parse::<f32>().unwrap_or(1.0);
            match name.trim() {
                name if name.eq_ignore_ascii_case("gzip") => gzip = Some(weight),
                name if name.eq_ignore_ascii_case("identity") => identity = Some(weight),
                "*" => any = Some(weight),
                _ => {}
            }
        }
    }
    // A coding that is named counts more than the asterisk, wherever it stands.
    let gzip = gzip.or(any).unwrap_or(0.0);
    let is_refused = identity.or(any).unwrap_or(1.0) <= 0.0;
    match identity {
        _ if gzip <= 0.0 && is_refused => None,
        Some(identity) if identity > gzip => Some(AssetForm::Plain),
        _ if gzip > 0.0 => Some(AssetForm::Gzip),
        _ => Some(AssetForm::Plain),
    }
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
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The most bytes of all files together, so that they fit into the program.
    const BYTES_MAX: usize = 45_000;

    fn folder() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/ui/assets"))
    }

    #[test]
    fn compressed_files_are_those_of_the_sources() {
        for asset in ASSETS {
            let content = asset.unpacked();
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
    fn form_is_the_one_that_the_client_takes() {
        let form = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            form_for(&headers)
        };
        assert_eq!(form_for(&HeaderMap::new()), Some(AssetForm::Plain));
        for value in [
            "gzip",
            "br, GZIP;q=0.5",
            "*",
            "deflate, gzip, br, zstd",
            "*;q=0, gzip",
            "identity;q=0.5, gzip",
            "gzip, identity",
        ] {
            assert_eq!(form(value), Some(AssetForm::Gzip), "{value}");
        }
        for value in [
            "",
            "br",
            "identity",
            "gzip;q=0",
            "gzip;q=0.0, *",
            "identity, gzip;q=0.5",
            "*;q=0, identity",
        ] {
            assert_eq!(form(value), Some(AssetForm::Plain), "{value}");
        }
        for value in ["*;q=0", "identity;q=0", "br, identity;q=0.0", "gzip;q=0, *;q=0"] {
            assert_eq!(form(value), None, "{value}");
        }
    }
}
