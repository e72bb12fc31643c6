//! Suggestions for misspelled names. The wrong name stays refused.

use super::environment::{ALIASES, PREFIX};
use super::keys::Key;

/// Share of equal letters from which a name counts as a slip of another one.
const SIMILAR: f64 = 0.6;

/// Returns the end of the message about an unknown key, written as a dotted path without indices.
pub(super) fn for_key(written: &str) -> String {
    let (table, name) = written.rsplit_once('.').unwrap_or(("", written));
    let first = written.split('.').next().unwrap_or(written);
    let root = Key::root();
    let here = Key::at(table).unwrap_or(root);
    let lists = root.keys.iter().filter(|key| key.is_list()).map(Key::name);
    let near = if lists.clone().any(|list| list == first) {
        nearest(name, here.keys.iter().map(Key::name))
    } else {
        let paths = Key::of_sections().chain(&root.keys).map(|key| key.path.as_str());
        let same_name = Key::of_sections().find(|key| key.name() == name);
        nearest(written, paths)
            // A key below a misspelled list says more about the list than about itself.
            .or_else(|| nearest(first, lists))
            .or(same_name.map(|key| key.path.as_str()))
    };
    match near {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("the keys here are {}", here.names()),
    }
}

/// Returns the end of the message about an unknown environment variable.
pub(super) fn for_variable(written: &str) -> String {
    let aliases = ALIASES.iter().map(|(name, _)| (*name).to_owned());
    let variables: Vec<_> = Key::of_sections().map(Key::variable).chain(aliases).collect();
    // The common beginning would make all names look alike.
    let short = written.strip_prefix(PREFIX).unwrap_or(written);
    match nearest(
        short,
        variables.iter().map(|name| name.trim_start_matches(PREFIX)),
    ) {
        Some(near) => format!("did you mean {PREFIX}{near}?"),
        None => "variables are formed like TIDINGS_HTTP__LISTEN for http.listen".to_owned(),
    }
}

/// The name that is most like `written`, the last one of several; `None` if none is near.
fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    let mut best = None;
    let mut best_similarity = SIMILAR;
    for name in names {
        let similarity = strsim::normalized_damerau_levenshtein(&written, &name.to_lowercase());
        if similarity >= best_similarity {
            best = Some(name);
            best_similarity = similarity;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::for_key;

    #[test]
    fn slip_in_key_section_or_case_is_seen() {
        assert_eq!(for_key("http.lisen"), "did you mean \"http.listen\"?");
        assert_eq!(for_key("htpp.listen"), "did you mean \"http.listen\"?");
        assert_eq!(for_key("http.keep-alive"), "did you mean \"http.keep_alive\"?");
        assert_eq!(for_key("Session.Max"), "did you mean \"session.max\"?");
        assert_eq!(for_key("sesion"), "did you mean \"session\"?");
    }

    #[test]
    fn key_in_the_wrong_section_is_found() {
        assert_eq!(for_key("listen"), "did you mean \"http.listen\"?");
        assert_eq!(for_key("server.page_size"), "did you mean \"mcp.page_size\"?");
    }

    #[test]
    fn known_names_are_listed_when_none_is_near() {
        assert_eq!(for_key("log.colour"), "the keys here are level, format");
        assert!(for_key("telemetry.zzz").starts_with("the keys here are http, session, "));
    }
}
