//! The values of `[gateway.upstream.NAME]` that must agree.

use super::Draft;
use crate::config::{Config, UpstreamConfig};

/// Servers behind one gateway.
const UPSTREAMS_MAX: usize = 32;

impl Draft<'_> {
    /// Checks the servers behind a gateway, each alone and all together.
    pub(super) fn check_gateway(&mut self, config: &Config) {
        let upstreams = &config.gateway.upstream;
        if upstreams.len() > UPSTREAMS_MAX {
            let text = format!(
                "there are {} servers in [gateway.upstream], and a gateway has at most {UPSTREAMS_MAX}: run another \
                 gateway for the rest",
                upstreams.len()
            );
            self.note_disagreement(&["gateway.upstream"], &text);
        }
        for upstream in upstreams {
            self.check_upstream(upstream);
        }
        // With one server more, no prefix would say which of the two has an item.
        let mut plain = upstreams.iter().filter(|upstream| upstream.prefix == Some(false));
        if let (Some(first), Some(second)) = (plain.next(), plain.next()) {
            let text = format!(
                "gateway.upstream.{} and gateway.upstream.{} both have prefix = false: one of several servers may be \
                 without a prefix",
                first.name, second.name
            );
            self.note_disagreement(&["gateway.upstream.prefix"], &text);
        }
    }

    fn check_upstream(&mut self, upstream: &UpstreamConfig) {
        let name = &upstream.name;
        let is_program = upstream.command.is_some();
        for (key, is_set, is_for_program) in [
            ("token_file", upstream.token_file.is_some(), false),
            ("bearer_env", upstream.bearer_env.is_some(), false),
            ("env", !upstream.env.is_empty(), true),
            ("pass_env", !upstream.pass_env.is_empty(), true),
        ] {
            // A key of the other kind would be passed over without a word.
            if is_set && is_program != is_for_program {
                let needed = if is_for_program { "command" } else { "url" };
                let text = format!(
                    "gateway.upstream.{name}.{key} is set, but gateway.upstream.{name}.{needed} is not: remove {key}"
                );
                self.note_disagreement(&["gateway.upstream.command", "gateway.upstream.url"], &text);
            }
        }
        if upstream.token_file.is_some() && upstream.bearer_env.is_some() {
            let text = format!(
                "gateway.upstream.{name} has token_file and bearer_env, which name a token each: remove one"
            );
            self.note_disagreement(&["gateway.upstream.token_file"], &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{from_text, refusal};
    use crate::config::UpstreamIsolation;

    #[test]
    fn named_tables_stand_in_the_order_of_the_file() {
        let text = "[gateway.upstream.zoo]\ncommand = ['a', '-b']\nenv = { A = 'x' }\n\
                    [gateway.upstream.a-1]\nurl = 'http://127.0.0.1:1/mcp'\nprefix = false\nisolation = 'client'\n";
        let config = from_text(text).unwrap();
        let names: Vec<&str> = config
            .gateway
            .upstream
            .iter()
            .map(|upstream| &*upstream.name)
            .collect();
        assert_eq!(names, ["zoo", "a-1"]);
        assert_eq!(config.gateway.upstream[0].env["A"], "x");
        assert_eq!(config.gateway.upstream[0].prefix, None);
        assert_eq!(config.gateway.upstream[1].prefix, Some(false));
        assert_eq!(config.gateway.upstream[1].isolation, UpstreamIsolation::Client);
        assert_eq!(
            from_text(&config.to_toml()).unwrap(),
            config,
            "{}",
            config.to_toml()
        );
        assert!(!config.to_toml_without_secrets().contains("\"x\""));
        let schema: serde_json::Value = serde_json::from_str(&crate::config::Config::json_schema()).unwrap();
        let printed: serde_json::Value = toml::from_str(&config.to_toml()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(
            validator.is_valid(&printed),
            "{:?}",
            validator.iter_errors(&printed).next()
        );
    }

    #[test]
    fn mistakes_of_servers_are_named() {
        for (table, expected) in [
            (
                "[gateway.upstream.A]\ncommand = ['a']",
                "for \"gateway.upstream.name\"",
            ),
            ("[gateway.upstream.a]", "needs exactly one of command, url"),
            (
                "[gateway.upstream.a]\ncommand = ['a']\nurl = 'b'",
                "needs exactly one of",
            ),
            ("[gateway.upstream.a]\ncommand = ['a']\nname = 'b'", "unknown key"),
            (
                "gateway.upstream.a = 1",
                "expected a table, written [gateway.upstream.a]",
            ),
            (
                "[gateway.upstream.a]\ncommand = ['a']\ntoken_file = 'b'",
                "remove token_file",
            ),
            ("[gateway.upstream.a]\nurl = 'a'\nenv = { A = 'b' }", "remove env"),
            (
                "[gateway.upstream.a]\nurl = 'a'\ntoken_file = 'b'\nbearer_env = 'C'",
                "remove one",
            ),
            (
                "[gateway.upstream.a]\ncommand = ['a']\nenv = { A = 1 }",
                "a table of at most 64 texts",
            ),
            (
                "[gateway.upstream.a]\ncommand = ['a']\nenv = nan",
                "a table of at most 64 texts",
            ),
            (
                "[gateway.upstream.a]\nurl = 'a'\nprefix = false\n[gateway.upstream.b]\nurl = 'a'\nprefix = false",
                "both have prefix = false",
            ),
        ] {
            assert!(refusal(table).contains(expected), "{table}: {}", refusal(table));
        }
        let many: String = (0..33)
            .map(|n| format!("[gateway.upstream.a{n}]\nurl = 'a'\n"))
            .collect();
        assert!(refusal(&many).contains("at most 32"));
    }
}
