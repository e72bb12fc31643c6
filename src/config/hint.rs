//! What a misspelled name may have meant.
//!
//! Pure: it compares a name with the table of keys and answers the end of an error message. It never guesses
//! silently; the wrong name stays refused.

use super::environment::OTHER_VARIABLES;
use super::field::{self, Field};
use super::key::{KEYS, Key, SECTIONS};

/// Share of equal letters from which a name counts as a slip of another one.
const SIMILAR: f64 = 0.6;

/// For a key of the file, written as dotted path.
pub(super) fn for_key(written: &str) -> String {
    let name = written.rsplit('.').next().unwrap_or(written);
    let same_name = KEYS.iter().find(|key| key.name() == name).map(|key| key.path);
    let paths = KEYS.iter().map(|key| key.path);
    let sections = SECTIONS.iter().map(|(section, _)| *section);
    let lists = field::LISTS.iter().copied();
    // The key of a table in a misspelled list says more about the list than about itself.
    let list = nearest(written.split('.').next().unwrap_or(written), lists.clone());
    let near = nearest(written, paths.chain(sections).chain(lists))
        .or(list)
        .or(same_name);
    near.map_or_else(|| known(written), |near| format!("did you mean \"{near}\"?"))
}

/// For a key of a table of a list, where `path` is the table's.
pub(super) fn for_field(path: &str, written: &str) -> String {
    let names: Vec<_> = field::fields_of(path).map(Field::name).collect();
    match nearest(written, names.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("the keys here are {}", names.join(", ")),
    }
}

/// For an environment variable.
pub(super) fn for_variable(written: &str) -> String {
    let others = OTHER_VARIABLES.iter().map(|(name, _)| (*name).to_owned());
    let variables: Vec<_> = KEYS.iter().map(Key::variable).chain(others).collect();
    let short = written.strip_prefix("TIDINGS_").unwrap_or(written);
    let shorts = variables.iter().filter_map(|name| name.strip_prefix("TIDINGS_"));
    match nearest(short, shorts) {
        Some(near) => format!("did you mean TIDINGS_{near}?"),
        None => "variables are formed like TIDINGS_HTTP__LISTEN for http.listen".to_owned(),
    }
}

fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    names
        .map(|name| {
            (
                strsim::normalized_damerau_levenshtein(&written, &name.to_lowercase()),
                name,
            )
        })
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

/// What there is, when nothing is near: the keys of the section, or the sections.
fn known(written: &str) -> String {
    let section = written.split('.').next().unwrap_or(written);
    let names: Vec<_> = KEYS
        .iter()
        .filter(|key| key.section() == section)
        .map(Key::name)
        .collect();
    if names.is_empty() {
        let sections: Vec<_> = SECTIONS.iter().map(|(name, _)| *name).collect();
        return format!("the sections are {}", sections.join(", "));
    }
    format!("the keys of [{section}] are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_key_section_and_case_are_seen() {
        assert_eq!(for_key("http.lisen"), "did you mean \"http.listen\"?");
        assert_eq!(for_key("htpp.listen"), "did you mean \"http.listen\"?");
        assert_eq!(for_key("http.keep-alive"), "did you mean \"http.keep_alive\"?");
        assert_eq!(for_key("Session.Max"), "did you mean \"session.max\"?");
        assert_eq!(for_key("sesion"), "did you mean \"session\"?");
    }

    #[test]
    fn a_key_in_the_wrong_section_is_found() {
        assert_eq!(for_key("listen"), "did you mean \"http.listen\"?");
        assert_eq!(for_key("server.page_size"), "did you mean \"mcp.page_size\"?");
    }

    #[test]
    fn without_anything_near_the_known_names_are_listed() {
        assert_eq!(for_key("log.colour"), "the keys of [log] are level, format");
        assert!(for_key("telemetry.zzz").starts_with("the sections are http, session, "));
    }

    #[test]
    fn variables_are_compared_without_their_common_prefix() {
        assert_eq!(
            for_variable("TIDINGS_HTTP_LISTEN"),
            "did you mean TIDINGS_HTTP__LISTEN?"
        );
        assert_eq!(
            for_variable("TIDINGS_HTTP__LISEN"),
            "did you mean TIDINGS_HTTP__LISTEN?"
        );
        assert_eq!(for_variable("TIDINGS_URI"), "did you mean TIDINGS_URL?");
        assert!(for_variable("TIDINGS_XYZZY").starts_with("variables are formed like "));
    }
}
