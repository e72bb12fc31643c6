//! The configuration in effect as a TOML file that loads to the same configuration.

use super::keys::{Key, NAME};
use serde_json::Value;

/// Appends a section, or each table of a list, with the meaning and the range of every key.
pub(super) fn print(text: &mut String, table: &Key, values: &Value) {
    let path = &table.path;
    let header = match values {
        Value::Array(tables) => return tables.iter().for_each(|values| print(text, table, values)),
        Value::Null => return,
        _ if table.is_named() => format!("[{path}.{}]", values[NAME].as_str().unwrap_or_default()),
        _ if table.is_list() => format!("[[{path}]]"),
        _ => format!("[{path}]"),
    };
    let gap = if text.is_empty() { "" } else { "\n" };
    *text += &format!("{gap}# {}\n{header}\n", table.words().0);
    let is_in_header = table.is_named();
    let keys = table.keys.iter().filter(|key| !key.is_table());
    let keys = keys.filter(|key| !(is_in_header && key.name() == NAME));
    for key in keys.filter(|key| !values[key.name()].is_null()) {
        let (meaning, at_limit) = key.words();
        *text += &format!("# {meaning}\n# Allowed: {}.\n", key.allowed());
        if !at_limit.is_empty() {
            *text += &format!("# {at_limit}\n");
        }
        *text += &format!("{} = {}\n", key.name(), literal(&values[key.name()]));
    }
    // TOML counts a key after the header of a table within to that table, so these come last.
    for key in table.keys.iter().filter(|key| key.is_table()) {
        print(text, key, &values[key.name()]);
    }
}

/// A value on one line of TOML.
pub(super) fn literal(value: &Value) -> String {
    let value = toml::Value::try_from(value).expect("values of a configuration are values of TOML");
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::tests::from_text;
    use super::*;
    use crate::config::{Config, Overrides};
    use crate::units::{size, time};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;
    use std::net::SocketAddr;
    use std::time::Duration;

    #[test]
    fn printed_default_loads_to_the_default() {
        assert_eq!(
            from_text(&Config::default().to_toml()).unwrap(),
            Config::default()
        );
    }

    #[test]
    fn every_key_is_printed_once() {
        let document: toml::Table = Config::default().to_toml().parse().unwrap();
        for key in Key::of_sections() {
            let (section, name) = key.path.split_once('.').unwrap();
            assert!(document[section].get(name).is_some(), "{}", key.path);
        }
        let printed: usize = document
            .values()
            .map(|section| section.as_table().unwrap().len())
            .sum();
        assert_eq!(printed, Key::of_sections().count());
    }

    #[test]
    fn values_are_printed_as_people_write_them() {
        let text = Config::default().to_toml();
        for line in [
            "listen = \"127.0.0.1:8808\"",
            "allowed_hosts = []",
            "body_bytes_max = \"4MiB\"",
            "idle_timeout = \"5m\"",
            "announce_on_connect = true",
            "max = 20000",
            "age_max = \"0s\"",
            "# A larger one gets 413 and is kept no further.",
        ] {
            assert!(
                text.lines().any(|printed| printed == line),
                "{line} is missing in\n{text}"
            );
        }
    }

    /// Values that the key allows, as a file would have them in normal form; those of pairs that must agree
    /// always do.
    fn allowed(key: &'static Key) -> BoxedStrategy<Value> {
        let schema = &key.schema;
        let address = any::<SocketAddr>().prop_map(|address| Value::from(address.to_string()));
        match key.path.as_str() {
            "workspace.debounce" => return durations(10, 1000),
            "workspace.debounce_max" => return durations(1000, 60_000),
            "http.allowed_hosts" => return vec("[a-z0-9][a-z0-9-]{0,9}", 1..4).prop_map(Value::from).boxed(),
            "http.allowed_origins" => {
                return vec("https?://[a-z]{1,9}:[1-9]00", 0..4)
                    .prop_map(Value::from)
                    .boxed();
            }
            "http.listen" => return address.boxed(),
            "metrics.listen" => return prop_oneof![Just(Value::from("")), address].boxed(),
            "workspace.scheme" => return "[a-z][a-z0-9+.-]{0,9}".prop_map(Value::from).boxed(),
            // The page needs credentials on some addresses.
            "page.enabled" => return proptest::sample::select(vec![json!("loopback"), json!(false)]).boxed(),
            // Any address may be listened on then.
            "auth.anonymous" => return Just(Value::from("all")).boxed(),
            "auth.resource" => return "https?://[a-z]{1,9}/[a-z]{0,9}".prop_map(Value::from).boxed(),
            "auth.scopes" => return vec("[a-z:]{1,9}", 0..4).prop_map(Value::from).boxed(),
            "workspace.dir" | "store.dir" | "audit.file" => {
                return "[^\0]{0,20}".prop_map(Value::from).boxed();
            }
            // With an engine, values of other sections must agree.
            "cluster.engine"
            | "cluster.password_file"
            | "cluster.credentials"
            | "cluster.token_file"
            | "cluster.user" => {
                return Just(Value::from("")).boxed();
            }
            "cluster.urls" => return Just(json!([])).boxed(),
            "cluster.monitoring" => {
                return vec("https?://[a-z]{1,9}:8222", 0..4)
                    .prop_map(Value::from)
                    .boxed();
            }
            "cluster.namespace" | "cluster.node" => {
                return "[a-zA-Z0-9-]{1,32}".prop_map(Value::from).boxed();
            }
            path if path.starts_with("tls.") || path.starts_with("cluster.tls_") => {
                return "/[a-z]{1,9}".prop_map(Value::from).boxed();
            }
            _ => {}
        }
        let bounds = (schema["minimum"].as_u64(), schema["maximum"].as_u64());
        let shortest = schema["x-minimum"].as_str();
        let choices = schema["oneOf"].as_array();
        match (bounds, shortest, choices) {
            ((Some(min), Some(max)), ..) if schema["type"] == "integer" => {
                (min..=max).prop_map(Value::from).boxed()
            }
            ((Some(min), Some(max)), ..) => (min..=max).prop_map(|bytes| size::text(bytes).into()).boxed(),
            (_, Some(shortest), _) => {
                let bounds = [shortest, schema["x-maximum"].as_str().unwrap()];
                let [min, max] = bounds.map(|bound| time::parse(bound).unwrap().as_millis() as u64);
                durations(min, max)
            }
            (.., Some(choices)) => proptest::sample::select(choices.clone())
                .prop_map(|choice| choice["const"].clone())
                .boxed(),
            _ if schema["type"] == "boolean" => any::<bool>().prop_map(Value::from).boxed(),
            _ => "\\PC[\\s\\S]{0,40}".prop_map(Value::from).boxed(),
        }
    }

    fn durations(min: u64, max: u64) -> BoxedStrategy<Value> {
        let millis = (min..=max).prop_map(Duration::from_millis);
        millis.prop_map(|duration| time::text(duration).into()).boxed()
    }

    fn any_values() -> impl Strategy<Value = Vec<(&'static Key, Value)>> {
        Key::of_sections()
            .map(|key| allowed(key).prop_map(move |value| (key, value)))
            .collect::<Vec<_>>()
    }

    fn lines(values: &[(&Key, Value)]) -> String {
        values
            .iter()
            .map(|(key, value)| format!("{} = {}\n", key.path, literal(value)))
            .collect()
    }

    /// A value as an environment variable carries it.
    fn variable((key, value): &(&Key, Value)) -> (String, String) {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().filter_map(Value::as_str).collect();
                items.join(",")
            }
            other => other.to_string(),
        };
        (key.variable(), text)
    }

    proptest! {
        #[test]
        fn printed_configuration_loads_to_the_same(written in any_values()) {
            let config = from_text(&lines(&written)).unwrap();
            prop_assert_eq!(&from_text(&config.to_toml()).unwrap(), &config);
            let used = config.to_json();
            for (key, value) in &written {
                let (section, name) = key.path.split_once('.').unwrap();
                prop_assert_eq!(&used[section][name], value, "{}", key.path);
            }
        }

        #[test]
        fn file_and_environment_agree(written in any_values()) {
            let from_file = from_text(&lines(&written)).unwrap();
            let env = written.iter().map(variable);
            prop_assert_eq!(Config::load(None, env, &Overrides::default()).unwrap(), from_file);
        }

        #[test]
        fn no_text_makes_the_reader_panic(
            text in "([a-z.\\[\\]='\"0-9 \n#{},é]|http|listen|session|max|\\[\\[journal\\]\\]\n){0,40}"
        ) {
            if let Err(error) = from_text(&text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
