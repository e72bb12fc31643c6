//! Which URI a file gets, and which file a URI names.
//!
//! Owns: the mapping between paths below the served folder and `{scheme}:///{path}`; it is one to one, so a URI that
//! is spelled differently (an escape that was not needed, `..`) names no file. Never touches the file system.

use super::path::FilePath;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tidings_actors::{InvalidUri, ResourceUri};

/// What is not `pchar` in RFC 3986 3.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// The URI of a file; fails when it would be longer than a URI may be.
pub(super) fn uri_of(scheme: &str, path: &FilePath) -> Result<ResourceUri, InvalidUri> {
    ResourceUri::new(&text_of(scheme, path))
}

/// The file that a URI names, whether or not it exists; none for any other URI.
pub(super) fn path_of(scheme: &str, uri: &str) -> Option<FilePath> {
    let rest = uri.strip_prefix(scheme)?.strip_prefix(":///")?;
    let mut path = FilePath::root();
    for segment in rest.split('/') {
        let name = percent_decode_str(segment).decode_utf8().ok()?;
        if matches!(&*name, "" | "." | "..") || name.contains(['/', '\0']) {
            return None;
        }
        path = path.join(&name);
    }
    (text_of(scheme, &path) == uri).then_some(path)
}

fn text_of(scheme: &str, path: &FilePath) -> String {
    let mut text = format!("{scheme}://");
    for name in path.names() {
        text.push('/');
        text.extend(utf8_percent_encode(name, ESCAPED));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn path(names: &[impl AsRef<str>]) -> FilePath {
        names
            .iter()
            .fold(FilePath::root(), |path, name| path.join(name.as_ref()))
    }

    #[test]
    fn keeps_what_a_path_segment_may_have_and_escapes_the_rest() {
        let uri = uri_of("workspace", &path(&["notes", "a b?#%é[1]!$&'()*+,;=:@-._~.md"])).unwrap();
        assert_eq!(
            uri.as_str(),
            "workspace:///notes/a%20b%3F%23%25%C3%A9%5B1%5D!$&'()*+,;=:@-._~.md"
        );
    }

    #[test]
    fn a_second_spelling_names_no_file() {
        assert_eq!(path_of("w", "w:///a/b"), Some(path(&["a", "b"])));
        for other in [
            "w:///",
            "w:///a/",
            "w:///a//b",
            "w:///%61",
            "w:///a%2fb",
            "w:///a%2Fb",
            "w:///..",
            "w:///a/%2E%2E",
            "w:///a%00",
            "w:///%FF",
            "w:///%c3%a9",
            "x:///a",
            "w://a/b",
            "w:a",
        ] {
            assert_eq!(path_of("w", other), None, "{other}");
        }
    }

    #[test]
    fn a_path_that_makes_too_long_a_uri_has_none() {
        assert!(uri_of("w", &path(&["é".repeat(400)])).is_err());
    }

    proptest! {
        #[test]
        fn every_path_comes_back_from_its_uri(names in vec("[^/\0]{1,12}", 1..5)) {
            prop_assume!(names.iter().all(|name| name != "." && name != ".."));
            let path = path(&names);
            let uri = uri_of("workspace", &path).unwrap();
            prop_assert!(uri.as_str().is_ascii());
            prop_assert_eq!(path_of("workspace", uri.as_str()), Some(path));
        }

        #[test]
        fn every_uri_that_names_a_file_is_that_files_uri(rest in "([a-c/.%]|%2E|%20|%C3%A9){0,12}") {
            let text = format!("w:///{rest}");
            if let Some(path) = path_of("w", &text) {
                let uri = uri_of("w", &path).unwrap();
                prop_assert_eq!(uri.as_str(), text);
            }
        }
    }
}
