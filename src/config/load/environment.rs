//! The environment: `TIDINGS_SECTION__KEY=value` sets `section.key`.
//!
//! Other variables that begin with `TIDINGS_` are ignored, unless they are a near miss of one that counts:
//! Kubernetes gives each container `TIDINGS_PORT` and `TIDINGS_SERVICE_HOST` beside a Service named tidings.

use super::error::Place;
use super::keys::{Key, nearest};
use super::{Draft, Written};
use serde_json::Value;

/// The beginning of the names of all variables of Tidings.
const PREFIX: &str = "TIDINGS_";

/// The variables outside the pattern, with their meaning; the first sets a key.
pub(super) const ALIASES: [(&str, &str); 3] = [
    (
        "TIDINGS_LOG",
        "Short for `TIDINGS_LOG__LEVEL`, which wins where both are set.",
    ),
    (
        "TIDINGS_URL",
        "Address of the service for the client subcommands; `tidings serve` ignores it.",
    ),
    (
        "TIDINGS_TOKEN",
        "Bearer token that the client subcommands present; `tidings serve` ignores it.",
    ),
];

/// Reads the variables of Tidings into `draft`, and notes near misses.
pub(super) fn read(variables: impl Iterator<Item = (String, String)>, draft: &mut Draft<'_>) {
    let mut named: Vec<_> = variables.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    // TIDINGS_LOG sorts before TIDINGS_LOG__LEVEL, which then replaces its value.
    named.sort();
    for (name, text) in named {
        let key = match name == ALIASES[0].0 {
            true => Key::at("log.level"),
            false => Key::of_sections().find(|key| key.variable() == name),
        };
        let place = Place::Variable(name.clone());
        if let Some(key) = key {
            let written = Written::new(parse(key, &text), &format!("{text:?}"), place);
            draft.over.insert(&key.path, written);
        } else if let Some(hint) = near_miss(&name) {
            draft.note(&place, &format!("unknown environment variable {name}: {hint}"));
        }
    }
}

/// Returns a hint if the name is probably meant for Tidings.
fn near_miss(written: &str) -> Option<String> {
    let aliases = ALIASES.map(|(name, _)| name.to_owned());
    if aliases.iter().any(|alias| alias == written) {
        return None;
    }
    let variables: Vec<_> = Key::of_sections().map(Key::variable).chain(aliases).collect();
    let upper = written.to_ascii_uppercase();
    // Programs of others hardly ever use two underscores, or a name that differs by one letter.
    let is_near = variables
        .iter()
        .any(|name| strsim::osa_distance(name, &upper) <= 1);
    if !is_near && !written.contains("__") {
        return None;
    }
    // The common beginning would make all names look alike.
    let names = variables.iter().map(|name| &name[PREFIX.len()..]);
    Some(match nearest(&written[PREFIX.len()..], names) {
        Some(near) => format!("did you mean {PREFIX}{near}?"),
        None => "variables are formed like TIDINGS_HTTP__LISTEN for http.listen".to_owned(),
    })
}

/// Converts the text of a variable to the type of its key; a text that does not fit stays, and is refused
/// with the other values.
fn parse(key: &Key, text: &str) -> Value {
    match (key.schema["type"].as_str(), text.parse::<i64>()) {
        (Some("array"), _) if text.trim().is_empty() => Value::Array(Vec::new()),
        (Some("array"), _) => text.split(',').map(str::trim).collect(),
        (Some("boolean"), _) if text == "true" || text == "false" => Value::from(text == "true"),
        (None, _) if key.schema["oneOf"].is_array() && (text == "true" || text == "false") => {
            Value::from(text == "true")
        }
        // Sizes are numbers or texts with a unit, and have two types.
        (Some("integer") | None, Ok(number)) => Value::from(number),
        _ => Value::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::from_variables;
    use crate::config::Config;
    use std::time::Duration;

    fn refusal(name: &str, value: &str) -> String {
        from_variables(&[(name, value)]).unwrap_err().to_string()
    }

    #[test]
    fn variable_of_each_type_is_read() {
        let config = from_variables(&[
            ("TIDINGS_HTTP__LISTEN", "127.0.0.1:9000"),
            ("TIDINGS_HTTP__ALLOWED_HOSTS", "bus.example, 10.0.0.7"),
            ("TIDINGS_HTTP__ALLOWED_ORIGINS", ""),
            ("TIDINGS_HTTP__BODY_BYTES_MAX", "64KiB"),
            ("TIDINGS_HTTP__NOT_SENT_LOW_WATER", "2048"),
            ("TIDINGS_SESSION__SUBSCRIPTIONS_MAX", "50"),
            ("TIDINGS_SESSION__ANNOUNCE_ON_CONNECT", "false"),
            ("TIDINGS_WORKSPACE__DEBOUNCE", "50ms"),
            ("TIDINGS_MCP__INSTRUCTIONS", "1, 2"),
        ])
        .unwrap();
        assert_eq!(config.http.listen.port(), 9000);
        assert_eq!(config.http.allowed_hosts, ["bus.example", "10.0.0.7"]);
        assert_eq!(
            (config.http.body_bytes_max, config.http.not_sent_low_water),
            (65_536, 2048)
        );
        assert_eq!(config.session.subscriptions_max, 50);
        assert!(!config.session.announce_on_connect);
        assert_eq!(config.workspace.debounce, Duration::from_millis(50));
        assert_eq!(config.mcp.instructions.as_deref(), Some("1, 2"));
    }

    #[test]
    fn variables_of_others_are_ignored() {
        let variables = [
            ("PATH", "/bin"),
            ("tidings_http__listen", "x"),
            ("MY_TIDINGS_X", "y"),
            ("TIDINGS_URL", "z"),
            ("TIDINGS_", "z"),
        ];
        assert_eq!(from_variables(&variables).unwrap(), Config::default());
    }

    #[test]
    fn variables_of_kubernetes_are_ignored() {
        // Beside a Service named `tidings` with a port named `http`, and one named `tidings-mcp`.
        let variables = [
            ("TIDINGS_SERVICE_HOST", "10.0.0.1"),
            ("TIDINGS_SERVICE_PORT", "8808"),
            ("TIDINGS_SERVICE_PORT_HTTP", "8808"),
            ("TIDINGS_PORT", "tcp://10.0.0.1:8808"),
            ("TIDINGS_PORT_8808_TCP", "tcp://10.0.0.1:8808"),
            ("TIDINGS_PORT_8808_TCP_PROTO", "tcp"),
            ("TIDINGS_PORT_8808_TCP_PORT", "8808"),
            ("TIDINGS_PORT_8808_TCP_ADDR", "10.0.0.1"),
            ("TIDINGS_MCP_SERVICE_HOST", "10.0.0.2"),
            ("TIDINGS_MCP_PORT", "tcp://10.0.0.2:80"),
        ];
        assert_eq!(from_variables(&variables).unwrap(), Config::default());
    }

    #[test]
    fn log_alias_yields_to_the_full_name() {
        assert_eq!(
            from_variables(&[("TIDINGS_LOG", "debug")]).unwrap().log.level,
            "debug"
        );
        let both = [("TIDINGS_LOG__LEVEL", "warn"), ("TIDINGS_LOG", "debug")];
        assert_eq!(from_variables(&both).unwrap().log.level, "warn");
    }

    #[test]
    fn near_misses_are_refused() {
        for (name, near) in [
            ("TIDINGS_SESSON__MAX", "TIDINGS_SESSION__MAX"),
            ("TIDINGS_HTTP__LISEN", "TIDINGS_HTTP__LISTEN"),
            ("TIDINGS_HTPP__LISTEN", "TIDINGS_HTTP__LISTEN"),
            ("TIDINGS_HTTP_LISTEN", "TIDINGS_HTTP__LISTEN"),
            ("TIDINGS_Http__Listen", "TIDINGS_HTTP__LISTEN"),
            ("TIDINGS_URI", "TIDINGS_URL"),
            ("TIDINGS_LGO", "TIDINGS_LOG"),
        ] {
            assert_eq!(
                refusal(name, "x"),
                format!("unknown environment variable {name}: did you mean {near}?")
            );
        }
        assert!(
            refusal("TIDINGS_XY__ZZY", "x")
                .starts_with("unknown environment variable TIDINGS_XY__ZZY: variables are formed")
        );
    }

    #[test]
    fn wrong_value_names_variable_key_and_range() {
        assert_eq!(
            refusal("TIDINGS_SESSION__MAX", "many"),
            "invalid value \"many\" for \"session.max\" in the environment variable TIDINGS_SESSION__MAX: \
             expected an integer from 1 to 1000000"
        );
        assert!(refusal("TIDINGS_WORKSPACE__HIDDEN", "yes").ends_with("expected true or false"));
    }
}
