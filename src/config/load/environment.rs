//! The environment: `TIDINGS_SECTION__KEY=value` sets `section.key`.
//!
//! Only names with two underscores, the two aliases, and near misses of both are ours. Others stay alone:
//! Kubernetes gives each container `TIDINGS_PORT` and `TIDINGS_SERVICE_HOST` beside a Service named tidings.

use super::error::Place;
use super::hint;
use super::keys::Key;
use super::{Draft, Written};
use serde_json::Value;

/// The beginning of all names of ours.
pub(super) const PREFIX: &str = "TIDINGS_";

/// Alias of the variable of `log.level`; the full name wins where both are set.
const LOG_ALIAS: &str = "TIDINGS_LOG";

/// Variables of ours that stand outside the pattern, with their meaning.
pub(super) const ALIASES: [(&str, &str); 2] = [
    (
        LOG_ALIAS,
        "Short for `TIDINGS_LOG__LEVEL`, which wins where both are set.",
    ),
    (
        "TIDINGS_URL",
        "Address of the service for the client subcommands; `tidings serve` ignores it.",
    ),
];

/// Reads every variable of ours into `draft`.
pub(super) fn read(variables: impl Iterator<Item = (String, String)>, draft: &mut Draft) {
    let mut ours: Vec<_> = variables.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    // Sorted, so that the alias comes before the full name, which then replaces it.
    ours.sort();
    for (name, value) in ours {
        let key = match name.as_str() {
            LOG_ALIAS => Key::at("log.level"),
            other => Key::of_sections().find(|key| key.variable() == other),
        };
        if let Some(key) = key {
            let written = Written::new(&format!("{value:?}"), Place::Variable(name));
            draft.set(key, typed(key, &value), written);
        } else if let Some(hint) = mistake(&name) {
            let text = format!("unknown environment variable {name}: {hint}");
            draft.note(Place::Variable(name), &text);
        }
    }
}

/// Returns a hint if the name means one of our variables and is none of them.
fn mistake(name: &str) -> Option<String> {
    if ALIASES.iter().any(|(alias, _)| *alias == name) {
        return None;
    }
    // Beside two underscores: one in their place, or one wrong letter in an alias, is too near for a
    // coincidence.
    let is_ours = name.contains("__")
        || Key::of_sections().any(|key| key.variable().replace("__", "_").eq_ignore_ascii_case(name))
        || ALIASES
            .iter()
            .any(|(alias, _)| strsim::osa_distance(alias, name) <= 1);
    is_ours.then(|| hint::for_variable(name))
}

/// The text of a variable in the type of its key. Text that does not fit stays text, which its rule then
/// refuses.
fn typed(key: &Key, text: &str) -> Value {
    let types = &key.schema["type"];
    if types == "array" {
        let items = text.split(',').map(str::trim);
        return items.filter(|_| !text.trim().is_empty()).collect();
    }
    let number = text.parse::<i64>();
    match (types.as_str(), number, text) {
        (Some("boolean"), _, "true" | "false") => Value::from(text == "true"),
        // Sizes are numbers or texts with a unit.
        (Some("integer") | None, Ok(number), _) => Value::from(number),
        _ => Value::from(text),
    }
}
