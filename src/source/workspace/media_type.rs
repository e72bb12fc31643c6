//! Which media type a file gets, and whether its body is text.
//!
//! Owns: the choice, made of the file's name and, where that says nothing, of its bytes. Never touches the file
//! system. The reader asks; clients see the answer beside every body.

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

/// The media type and body of a file of that name with these bytes. A body is text only when it is UTF-8.
pub(super) fn describe(name: &str, bytes: Vec<u8>) -> (&'static str, Body) {
    let known = by_name(name);
    let text = match known {
        Some(media_type) => is_textual(media_type),
        None => !bytes.contains(&0),
    };
    if !text {
        return (known.unwrap_or(BINARY), Body::blob(bytes));
    }
    match String::from_utf8(bytes) {
        Ok(text) => (known.unwrap_or(PLAIN), Body::text(text)),
        Err(other) => (
            known.unwrap_or(BINARY),
            Body::Blob(Bytes::from(other.into_bytes())),
        ),
    }
}

/// The media type that the name tells.
fn by_name(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    let extension = extension.to_ascii_lowercase();
    let own = BY_EXTENSION.iter().find(|(known, _)| *known == extension);
    let general = || mime_guess::from_ext(&extension).first_raw();
    // The general table has this one for what it does not know either.
    own.map(|(_, media_type)| *media_type)
        .or_else(general)
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
    fn names_tell_the_type() {
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
    fn bytes_tell_where_the_name_does_not() {
        assert_eq!(of("LICENSE", "é".as_bytes()), ("text/plain", true));
        assert_eq!(of("a.unheard", b""), ("text/plain", true));
        assert_eq!(of("a.bin", b"text after all"), ("text/plain", true));
        assert_eq!(of("core", b"a\0b"), ("application/octet-stream", false));
        assert_eq!(of("core", b"\xff"), ("application/octet-stream", false));
    }

    #[test]
    fn text_in_another_encoding_keeps_its_type_and_is_a_blob() {
        assert_eq!(of("a.txt", b"caf\xe9"), ("text/plain", false));
    }

    #[test]
    fn the_table_is_sorted_and_textual() {
        assert!(BY_EXTENSION.is_sorted() && TEXTUAL.is_sorted());
        for (extension, media_type) in BY_EXTENSION {
            assert!(is_textual(media_type), "{extension}");
        }
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_and_text_is_utf8(name in "[a-z]{1,4}(\\.(md|png|json|zz|ts))?", bytes in vec(any::<u8>(), 0..40)) {
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
