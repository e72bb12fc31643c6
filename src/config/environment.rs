//! The environment: `TIDINGS_SECTION__KEY=value` sets `section.key`.
//!
//! Only names with two underscores, the two aliases, and near misses of both are ours. Others stay alone: Kubernetes
//! gives each container `TIDINGS_PORT` and `TIDINGS_SERVICE_HOST` beside a Service named tidings.

use super::error::{Mistake, Place};
use super::hint;
use super::load::{Draft, Written};
use super::schema::{Form, Key};
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
            draft.set(key, typed(key.form, &value), written);
        } else if let Some(hint) = mistake(&name) {
            let text = format!("unknown environment variable {name}: {hint}");
            draft.mistakes.push(Mistake::new(Place::Variable(name), text));
        }
    }
}

/// A hint when the name means one of our variables and is none of them.
fn mistake(name: &str) -> Option<String> {
    if ALIASES.iter().any(|(alias, _)| *alias == name) {
        return None;
    }
    if name.contains("__") {
        return Some(hint::for_variable(name));
    }
    // One underscore instead of two, or one wrong letter in an alias: too near for a coincidence.
    let flat = |key: &&Key| key.variable().replace("__", "_").eq_ignore_ascii_case(name);
    let near_alias = |(alias, _): &&(&str, &str)| strsim::osa_distance(alias, name) <= 1;
    let is_slip = Key::of_sections().any(|key| flat(&key)) || ALIASES.iter().any(|alias| near_alias(&alias));
    is_slip.then(|| hint::for_variable(name))
}

/// The text of a variable in the type of its key. Text that does not fit stays text, which its rule then refuses.
fn typed(form: Form, text: &str) -> Value {
    let value = match form {
        Form::Flag => text.parse::<bool>().ok().map(Value::from),
        Form::Integer | Form::Any => text.parse::<i64>().ok().map(Value::from),
        Form::Array if text.trim().is_empty() => Some(Value::Array(Vec::new())),
        Form::Array => Some(text.split(',').map(|item| Value::from(item.trim())).collect()),
        _ => None,
    };
    value.unwrap_or_else(|| text.into())
}
