//! The media type of a file, and whether its body is text.

use bytes::Bytes;
use tidings_actors::Body;

/// Types by extension that the general table lacks or takes for something else, such as TypeScript for video.
const BY_EXTENSION: &[(&str, &str)] = &[
    ("adoc", "text/asciidoc"),
    ("cjs", "text/javascript"),
    ("cts", "text/x-typescript"),
    ("go", "text/x-go"),
    ("graphql", "application/graphql"),
    ("java", "text/x-java"),
    ("jsonl", "application/jsonl"),
    ("kt", "text/x-kotlin"),
    ("markdown", "text/markdown"),
    ("md", "text/markdown"),
    ("mdx", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mts", "text/x-typescript"),
    ("ndjson", "application/x-ndjson"),
    ("proto", "text/x-protobuf"),
    ("py", "text/x-python"),
    ("rb", "text/x-ruby"),
    ("rs", "text/x-rust"),
    ("rst", "text/x-rst"),
    ("sql", "application/sql"),
    ("swift", "text/x-swift"),
    ("toml", "application/toml"),
    ("ts", "text/x-typescript"),
    ("tsx", "text/x-typescript"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// Types outside `text/` whose content is text.
const TEXTUAL: &[&str] = &[
    "application/ecmascript",
    "application/graphql",
    "application/javascript",
    "application/json",
    "application/json5",
    "application/jsonl",
    "application/sql",
    "application/toml",
    "application/x-csh",
    "application/x-httpd-php",
    "application/x-javascript",
    "application/x-latex",
    "application/x-ndjson",
    "application/x-perl",
    "application/x-sh",
    "application/x-sql",
    "application/x-subrip",
    "application/x-tcl",
    "application/x-tex",
    "application/x-yaml",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
];

const PLAIN: &str = "text/plain";
const BINARY: &str = "application/octet-stream";

/// Returns the media type and the body of a file. The name decides; where it gives no type, the bytes do.
///
/// A body is text only if it is UTF-8.
pub(super) fn describe(name: &str, bytes: Vec<u8>) -> (&'static str, Body) {
    let known = by_name(name);
    let is_text = match known {
        Some(media_type) => is_textual(media_type),
        // Text has no zero bytes, and nearly every binary format does.
        None => !bytes.contains(&0),
    };
    if !is_text {
        return (known.unwrap_or(BINARY), Body::blob(bytes));
    }
    match String::from_utf8(bytes) {
        Ok(text) => (known.unwrap_or(PLAIN), Body::text(text)),
        Err(other) => {
            let bytes = Bytes::from(other.into_bytes());
            (known.unwrap_or(BINARY), Body::Blob(bytes))
        }
    }
}

/// Returns the media type of the extension.
fn by_name(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    let extension = extension.to_ascii_lowercase();
    for (known, media_type) in BY_EXTENSION {
        if *known == extension {
            return Some(media_type);
        }
    }
    // The general table has `application/octet-stream` for extensions without a type.
    mime_guess::from_ext(&extension)
        .first_raw()
        .filter(|media_type| *media_type != BINARY)
}

fn is_textual(media_type: &str) -> bool {
    media_type.starts_with("text/")
        || ["+json", "+xml", "+yaml"]
            .iter()
            .any(|suffix| media_type.ends_with(suffix))
        || TEXTUAL.contains(&media_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn of(name: &str, bytes: &[u8]) -> (&'static str, bool) {
        let (media_type, body) = describe(name, bytes.to_vec());
        assert_eq!(body.as_bytes(), bytes);
        (media_type, body.as_text().is_some())
    }

    #[test]
    fn name_gives_the_media_type() {
        for (name, media_type) in [
            ("a.md", "text/markdown"),
            ("A.MD", "text/markdown"),
            ("Cargo.toml", "application/toml"),
            ("a.yaml", "application/yaml"),
            ("a.rs", "text/x-rust"),
            ("a.ts", "text/x-typescript"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.csv", "text/csv"),
            ("a.txt", "text/plain"),
            ("a.html", "text/html"),
        ] {
            assert_eq!(of(name, b"x"), (media_type, true), "{name}");
        }
        assert_eq!(of("a.png", b"x"), ("image/png", false));
        assert_eq!(of("a.pdf", b"%PDF"), ("application/pdf", false));
    }

    #[test]
    fn bytes_decide_where_the_name_does_not() {
        assert_eq!(of("LICENSE", "é".as_bytes()), ("text/plain", true));
        assert_eq!(of("a.unheard", b""), ("text/plain", true));
        assert_eq!(of("a.bin", b"text after all"), ("text/plain", true));
        assert_eq!(of("core", b"a\0b"), ("application/octet-stream", false));
        assert_eq!(of("core", b"\xff"), ("application/octet-stream", false));
    }

    #[test]
    fn text_in_another_encoding_is_a_blob() {
        assert_eq!(of("a.txt", b"caf\xe9"), ("text/plain", false));
    }

    #[test]
    fn table_is_sorted_and_textual() {
        assert!(BY_EXTENSION.is_sorted() && TEXTUAL.is_sorted());
        for (extension, media_type) in BY_EXTENSION {
            assert!(is_textual(media_type), "{extension}");
        }
    }

    proptest! {
        #[test]
        fn body_keeps_every_byte(name in "[a-z]{1,4}(\\.(md|png|json|zz|ts))?", bytes in vec(any::<u8>(), 0..40)) {
            let (media_type, body) = describe(&name, bytes.clone());
            prop_assert_eq!(body.as_bytes(), &bytes);
            if body.as_text().is_some() {
                prop_assert!(is_textual(media_type));
            } else {
                prop_assert!(!is_textual(media_type) || std::str::from_utf8(&bytes).is_err());
            }
        }
    }
}
