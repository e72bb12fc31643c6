//! Suggestions for misspelled names. The wrong name stays refused.

use super::environment::{ALIASES, PREFIX};
use super::schema::{Form, Key, Table};

/// Share of equal letters from which a name counts as a slip of another one.
const SIMILAR: f64 = 0.6;

/// The end of the message about an unknown key, written as dotted path without indices.
pub(super) fn for_key(written: &str) -> String {
    let (table, name) = written.rsplit_once('.').unwrap_or(("", written));
    if let Some(table) = Table::at(table).filter(|table| is_in_list(table)) {
        let names: Vec<_> = table.keys.iter().map(Key::name).collect();
        return match nearest(
            written.rsplit('.').next().unwrap_or(written),
            names.iter().copied(),
        ) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the keys here are {}", names.join(", ")),
        };
    }
    let roots = || Table::root().keys.iter();
    let lists = roots().filter(|key| key.form == Form::Tables);
    let same_name = || Key::of_sections().find(|key| key.name() == name);
    let paths = Key::of_sections().chain(roots()).map(|key| key.path.as_str());
    // The key of a table in a misspelled list says more about the list than about itself.
    let first = written.split('.').next().unwrap_or(written);
    let near = nearest(written, paths).or_else(|| nearest(first, lists.map(|key| key.path.as_str())));
    match near.or_else(|| same_name().map(|key| key.path.as_str())) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => known(first),
    }
}

/// The end of the message about an unknown environment variable.
pub(super) fn for_variable(written: &str) -> String {
    let aliases = ALIASES.iter().map(|(name, _)| (*name).to_owned());
    let variables: Vec<_> = Key::of_sections().map(Key::variable).chain(aliases).collect();
    let short = written.strip_prefix(PREFIX).unwrap_or(written);
    let shorts = variables.iter().filter_map(|name| name.strip_prefix(PREFIX));
    match nearest(short, shorts) {
        Some(near) => format!("did you mean {PREFIX}{near}?"),
        None => "variables are formed like TIDINGS_HTTP__LISTEN for http.listen".to_owned(),
    }
}

fn is_in_list(table: &Table) -> bool {
    let first = table.path.split('.').next().unwrap_or_default();
    matches!(Key::at(first), Some(key) if key.form == Form::Tables)
}

fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    let mut best = None;
    for name in names {
        let similarity = strsim::normalized_damerau_levenshtein(&written, &name.to_lowercase());
        let is_better = match best {
            Some((_, before)) => similarity >= before,
            None => similarity >= SIMILAR,
        };
        if is_better {
            best = Some((name, similarity));
        }
    }
    best.map(|(name, _)| name)
}

/// The names there are, for when none is near: the keys of the section, or the sections.
fn known(section: &str) -> String {
    match Table::at(section) {
        Some(table) => {
            let names: Vec<_> = table.keys.iter().map(Key::name).collect();
            format!("the keys of [{section}] are {}", names.join(", "))
        }
        None => {
            let sections = Table::root().keys.iter().filter(|key| key.form == Form::Table);
            let sections: Vec<_> = sections.map(|key| key.path.as_str()).collect();
            format!("the sections are {}", sections.join(", "))
        }
    }
}
