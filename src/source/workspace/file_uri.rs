//! The mapping between files and URIs: `{scheme}:///{path}`.
//!
//! It is one to one: a URI that is spelled differently (an unnecessary escape, `..`) names no file.

use super::file_path::FilePath;
use crate::uri_encoding::EXCEPT_PATH_SEGMENT;
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use tidings_actors::{InvalidUri, ResourceUri};

/// Returns the URI of a file. Fails if it is longer than a URI may be.
pub(super) fn uri_of(scheme: &str, path: &FilePath) -> Result<ResourceUri, InvalidUri> {
    ResourceUri::new(&encode(scheme, path))
}

/// Returns the file that a URI names, which need not exist.
pub(super) fn path_of(scheme: &str, uri: &str) -> Option<FilePath> {
    let rest = uri.strip_prefix(scheme)?.strip_prefix(":///")?;
    let mut path = FilePath::root();
    for segment in rest.split('/') {
        let name = percent_decode_str(segment).decode_utf8().ok()?;
        // No file has such a name, and these would lead to other folders.
        if matches!(&*name, "" | "." | "..") || name.contains(['/', '\0']) {
            return None;
        }
        path = path.join(&name);
    }
    // Any other spelling of the same path is not its URI.
    if encode(scheme, &path) == uri {
        Some(path)
    } else {
        None
    }
}

fn encode(scheme: &str, path: &FilePath) -> String {
    let mut uri = format!("{scheme}://");
    for name in path.names() {
        uri.push('/');
        uri.extend(utf8_percent_encode(name, EXCEPT_PATH_SEGMENT));
    }
    uri
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
    fn uri_keeps_characters_of_path_segments() {
        let uri = uri_of("workspace", &path(&["notes", "a b?#%é[1]!$&'()*+,;=:@-._~.md"])).unwrap();
        assert_eq!(
            uri.as_str(),
            "workspace:///notes/a%20b%3F%23%25%C3%A9%5B1%5D!$&'()*+,;=:@-._~.md"
        );
    }

    #[test]
    fn uri_in_another_spelling_names_no_file() {
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
    fn path_too_long_for_a_uri_has_none() {
        assert!(uri_of("w", &path(&["é".repeat(400)])).is_err());
    }

    proptest! {
        #[test]
        fn path_comes_back_from_its_uri(names in vec("[^/\0]{1,12}", 1..5)) {
            prop_assume!(names.iter().all(|name| name != "." && name != ".."));
            let path = path(&names);
            let uri = uri_of("workspace", &path).unwrap();
            prop_assert!(uri.as_str().is_ascii());
            prop_assert_eq!(path_of("workspace", uri.as_str()), Some(path));
        }

        #[test]
        fn uri_that_names_a_file_is_its_uri(rest in "([a-c/.%]|%2E|%20|%C3%A9){0,12}") {
            let text = format!("w:///{rest}");
            if let Some(path) = path_of("w", &text) {
                let uri = uri_of("w", &path).unwrap();
                prop_assert_eq!(uri.as_str(), text);
            }
        }
    }
}
