//! The environment: `TIDINGS_SECTION__KEY=value` sets `section.key`.
//!
//! Other variables that begin with `TIDINGS_` are ignored, unless they are a near miss of one that counts:
//! Kubernetes gives each container `TIDINGS_PORT` and `TIDINGS_SERVICE_HOST` beside a Service named tidings.

use super::error::Place;
use super::hint;
use super::keys::Key;
use super::{Draft, Written};
use serde_json::Value;

/// The beginning of the names of all variables of Tidings.
pub(super) const PREFIX: &str = "TIDINGS_";

/// Alias of the variable of `log.level`; the full name wins where both are set.
const LOG_ALIAS: &str = "TIDINGS_LOG";

/// The variables outside the pattern, with their meaning.
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

/// Reads the variables of Tidings into `draft`, and notes near misses.
pub(super) fn read(variables: impl Iterator<Item = (String, String)>, draft: &mut Draft) {
    let mut named: Vec<_> = variables.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    // TIDINGS_LOG sorts before TIDINGS_LOG__LEVEL, which then replaces its value.
    named.sort();
    for (name, value) in named {
        let key = match name.as_str() {
            LOG_ALIAS => Key::at("log.level"),
            other => Key::of_sections().find(|key| key.variable() == other),
        };
        if let Some(key) = key {
            let written = Written::new(&format!("{value:?}"), Place::Variable(name));
            draft.set(key, parse_value(key, &value), written);
        } else if let Some(hint) = near_miss(&name) {
            let text = format!("unknown environment variable {name}: {hint}");
            draft.note(Place::Variable(name), &text);
        }
    }
}

/// Returns a hint if the name is probably meant for Tidings.
fn near_miss(name: &str) -> Option<String> {
    if ALIASES.iter().any(|(alias, _)| *alias == name) {
        return None;
    }
    // Programs of others hardly ever use two underscores, or a name that differs by one letter from an alias.
    let is_meant = name.contains("__")
        || Key::of_sections().any(|key| key.variable().replace("__", "_").eq_ignore_ascii_case(name))
        || ALIASES
            .iter()
            .any(|(alias, _)| strsim::osa_distance(alias, name) <= 1);
    is_meant.then(|| hint::for_variable(name))
}

/// Converts the text of a variable to the type of its key.
fn parse_value(key: &Key, text: &str) -> Value {
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
        // Also text that does not fit, which the rule of the key refuses in its own words.
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
