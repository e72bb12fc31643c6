//! The environment: `TIDINGS_SECTION__KEY=value` sets `section.key`.
//!
//! It receives the variables as pairs, never reads the process's own, and writes what it finds into [`Written`].
//! The prefix is ours: a variable that carries it and means nothing is an error, not a silent slip.

use super::error::{ConfigError, Place};
use super::hint;
use super::key::{KEYS, Key};
use super::kind::Raw;
use super::written::{Entry, Written};

const PREFIX: &str = "TIDINGS_";

/// Alias of the variable of `log.level`; the full name wins where both are set.
const LOG_ALIAS: &str = "TIDINGS_LOG";

/// Variables of ours that stand outside the pattern, with what they mean.
pub(super) const OTHER_VARIABLES: &[(&str, &str)] = &[
    (
        LOG_ALIAS,
        "Short for `TIDINGS_LOG__LEVEL`, which wins where both are set.",
    ),
    (
        "TIDINGS_URL",
        "Address of the service for the client subcommands; `tidings serve` ignores it.",
    ),
];

/// Takes every variable of ours; others are none of our business.
pub(super) fn read(
    variables: impl Iterator<Item = (String, String)>,
    written: &mut Written,
) -> Result<(), ConfigError> {
    let mut ours: Vec<_> = variables.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    // Sorted, so that the first error does not depend on the order of the environment,
    // and so that the alias comes before the full name, which then replaces it.
    ours.sort();
    for (name, value) in ours {
        let key = match name.as_str() {
            LOG_ALIAS => Key::find("log.level"),
            other => KEYS.iter().find(|key| key.variable() == other),
        };
        match key {
            Some(key) => written.set(key, entry(key, name, &value)),
            None if OTHER_VARIABLES.iter().any(|(other, _)| *other == name) => {}
            None => {
                return Err(ConfigError::UnknownVariable {
                    hint: hint::for_variable(&name),
                    name,
                });
            }
        }
    }
    Ok(())
}

fn entry(key: &Key, name: String, value: &str) -> Entry {
    Entry::new(
        Raw::from_text(key.kind, value),
        &format!("{value:?}"),
        Place::Variable(name),
    )
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, ConfigError, Overrides};
    use std::time::Duration;

    fn load(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let pairs = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::load(None, pairs, &Overrides::default())
    }

    fn refusal(name: &str, value: &str) -> String {
        load(&[(name, value)]).unwrap_err().to_string()
    }

    #[test]
    fn each_type_is_read() {
        let config = load(&[
            ("TIDINGS_HTTP__LISTEN", "127.0.0.1:9000"),
            ("TIDINGS_HTTP__ALLOWED_HOSTS", "bus.example, 10.0.0.7"),
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
        assert_eq!(config.mcp.instructions, "1, 2");
    }

    #[test]
    fn variables_of_others_are_left_alone() {
        let variables = [
            ("PATH", "/bin"),
            ("tidings_http__listen", "x"),
            ("MY_TIDINGS_X", "y"),
            ("TIDINGS_URL", "z"),
        ];
        assert_eq!(load(&variables).unwrap(), Config::default());
    }

    #[test]
    fn log_is_short_for_its_level_and_yields_to_the_full_name() {
        assert_eq!(load(&[("TIDINGS_LOG", "debug")]).unwrap().log.level, "debug");
        let both = [("TIDINGS_LOG__LEVEL", "warn"), ("TIDINGS_LOG", "debug")];
        assert_eq!(load(&both).unwrap().log.level, "warn");
    }

    #[test]
    fn unknown_variables_of_ours_are_refused() {
        for (name, near) in [
            ("TIDINGS_HTTP__LISEN", "TIDINGS_HTTP__LISTEN"),
            ("TIDINGS_HTPP__LISTEN", "TIDINGS_HTTP__LISTEN"),
            ("TIDINGS_HTTP_LISTEN", "TIDINGS_HTTP__LISTEN"),
            ("TIDINGS_Http__Listen", "TIDINGS_HTTP__LISTEN"),
        ] {
            assert_eq!(
                refusal(name, "x"),
                format!("unknown environment variable {name}: did you mean {near}?")
            );
        }
        assert!(
            refusal("TIDINGS_", "x")
                .starts_with("unknown environment variable TIDINGS_: variables are formed")
        );
    }

    #[test]
    fn a_wrong_value_names_variable_key_and_range() {
        assert_eq!(
            refusal("TIDINGS_SESSION__MAX", "many"),
            "invalid value \"many\" for \"session.max\" in the environment variable TIDINGS_SESSION__MAX: \
             expected an integer from 1 to 1000000"
        );
        assert!(refusal("TIDINGS_WORKSPACE__HIDDEN", "yes").ends_with("expected true or false"));
    }
}
