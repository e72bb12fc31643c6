//! Tests of loading, checking and printing. The page of the documentation is compared in `page`.

mod page;

use super::document::read_text;
use super::keys::values;
use super::*;
use crate::config::{CacheScope, HttpConfig, LogFormat, size};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

fn from_text(text: &str) -> Result<Config, ConfigError> {
    let mut draft = Draft::default();
    read_text(Path::new("tidings.toml"), text, &mut draft);
    draft.finish()
}

/// The mistakes of a text, one a line.
fn refusal(text: &str) -> String {
    from_text(text).unwrap_err().to_string()
}

fn from_variables(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let pairs = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::load(None, pairs, &Overrides::default())
}

fn from_overrides(overrides: &Overrides) -> Result<Config, ConfigError> {
    Config::load(None, std::iter::empty(), overrides)
}

mod sources {
    use super::*;

    #[test]
    fn nothing_loaded_is_the_default() {
        let config = from_overrides(&Overrides::default()).unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(config.http, HttpConfig::default());
        assert_eq!(config.http.listen, "127.0.0.1:8808".parse().unwrap());
        assert_eq!(config.http.body_bytes_max, 4 << 20);
        assert_eq!(config.session.idle_timeout, Duration::from_secs(300));
        assert_eq!(config.bus.in_flight_max, 1024);
        assert_eq!(config.mcp.cache_scope, CacheScope::Private);
        assert_eq!((config.workspace.dir, config.store.dir), (None, None));
    }

    #[test]
    fn library_and_service_have_the_same_defaults() {
        let limits = tidings_actors::Limits::default();
        let config = Config::default();
        assert_eq!(config.session.max, 20_000);
        assert_eq!(limits.sessions_max, config.session.max);
        assert_eq!(limits.subscriptions_max, config.session.subscriptions_max);
        assert_eq!(limits.keep_alive, config.http.keep_alive);
    }

    #[test]
    fn later_sources_win() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let text = "[http]\nlisten = '127.0.0.1:1'\n[store]\ndir = 'file'\n[session]\nmax = 1\n";
        file.write_all(text.as_bytes()).unwrap();
        let env = [
            ("TIDINGS_HTTP__LISTEN", "127.0.0.1:2"),
            ("TIDINGS_STORE__DIR", "env"),
            ("TIDINGS_LOG", "env"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let overrides = Overrides {
            listen: Some("127.0.0.1:3".parse().unwrap()),
            workspace_dir: Some("cli".into()),
            ..Overrides::default()
        };
        let config = Config::load(Some(file.path()), env.clone().into_iter(), &overrides).unwrap();
        assert_eq!(config.http.listen.port(), 3);
        assert_eq!(config.workspace.dir, Some("cli".into()));
        assert_eq!(config.store.dir, Some("env".into()));
        assert_eq!(config.session.max, 1);

        let overrides = Overrides {
            data_dir: Some("cli".into()),
            log_level: Some("cli".to_owned()),
            ..Overrides::default()
        };
        let config = Config::load(Some(file.path()), env.into_iter(), &overrides).unwrap();
        assert_eq!(config.http.listen.port(), 2);
        assert_eq!(
            (config.store.dir, config.log.level.as_str()),
            (Some("cli".into()), "cli")
        );
    }

    #[test]
    fn mistakes_of_all_sources_are_told_at_once() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let text = "[session]\nmax = 0\nmaxx = 1\n[http]\nkeep_alive = 15\n[[journal]]\nname = 'J'\nfile = 'j'\n\
                    [[journal]]\nname = 'k'\nqueue = 0\nclass = 'all'\n[[webhook]]\nname = 'w'\nurl = 'x'\n";
        file.write_all(text.as_bytes()).unwrap();
        let env = [
            ("TIDINGS_SESSON__MAX", "1"),
            ("TIDINGS_MCP__PAGE_SIZE", "0"),
            ("TIDINGS_MCP__TTL", "1"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let overrides = Overrides {
            listen: Some("0.0.0.0:80".parse().unwrap()),
            ..Overrides::default()
        };
        let error = Config::load(Some(file.path()), env.into_iter(), &overrides).unwrap_err();
        let path = format!("in {} (line ", file.path().display());
        let told: Vec<_> = error
            .mistakes()
            .iter()
            .map(|m| m.to_string().replace(&path, "("))
            .collect();
        let beginnings = [
            "invalid value 0 for \"session.max\" (2)",
            "unknown key \"session.maxx\" (3)",
            "invalid value 15 for \"http.keep_alive\" (5)",
            "invalid value 'J' for \"journal.name\" (7)",
            "\"journal.file\" is missing (9)",
            "invalid value 0 for \"journal.queue\" (11)",
            "invalid value 'all' for \"journal.class\" (12)",
            "[webhook] (13) needs exactly one of secret_file, secret_variable",
            "invalid value 'x' for \"webhook.url\" (15)",
            "invalid value \"0\" for \"mcp.page_size\" in the environment variable TIDINGS_MCP__PAGE_SIZE",
            "invalid value \"1\" for \"mcp.ttl\" in the environment variable TIDINGS_MCP__TTL",
            "unknown environment variable TIDINGS_SESSON__MAX: did you mean TIDINGS_SESSION__MAX?",
            "http.listen is 0.0.0.0:80, which other machines may reach",
        ];
        assert_eq!(told.len(), beginnings.len(), "{told:#?}");
        for (told, beginning) in told.iter().zip(beginnings) {
            assert!(told.starts_with(beginning), "{told}\nis not\n{beginning}");
        }
        assert_eq!(error.to_string().lines().count(), told.len());
    }

    #[test]
    fn public_override_without_hosts_is_refused() {
        let overrides = Overrides {
            listen: Some("0.0.0.0:80".parse().unwrap()),
            ..Overrides::default()
        };
        let error = from_overrides(&overrides).unwrap_err().to_string();
        assert!(error.starts_with("http.listen is 0.0.0.0:80"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn folder_outside_utf8_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let folder = std::ffi::OsStr::from_bytes(b"a\xff").into();
        let overrides = Overrides {
            workspace_dir: Some(folder),
            ..Overrides::default()
        };
        assert_eq!(
            from_overrides(&overrides).unwrap_err().to_string(),
            "invalid value (not UTF-8) for \"workspace.dir\" on the command line: \
             expected a path in UTF-8, or \"\" for none"
        );
    }

    #[test]
    fn missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent.toml");
        let error = Config::load(Some(&path), std::iter::empty(), &Overrides::default()).unwrap_err();
        let text = format!(
            "cannot read the configuration file {}: No such file",
            path.display()
        );
        assert!(error.to_string().starts_with(&text), "{error}");
    }
}

mod file {
    use super::*;

    #[test]
    fn dotted_keys_inline_tables_and_sections_agree() {
        let expected = from_text("[session]\nmax = 0x10\n").unwrap();
        assert_eq!(expected.session.max, 16);
        assert_eq!(from_text("session.max = 16").unwrap(), expected);
        assert_eq!(from_text("session = { max = 1_6 }").unwrap(), expected);
        assert_eq!(from_text("[session]").unwrap(), Config::default());
    }

    #[test]
    fn unknown_key_is_named_with_line_and_neighbour() {
        for (text, expected) in [
            (
                "# mine\n[http]\nlisen = \"127.0.0.1:1\"\n",
                "unknown key \"http.lisen\" in tidings.toml (line 3): did you mean \"http.listen\"?",
            ),
            (
                "\n[htpp]\nlisten = 1\n",
                "unknown key \"htpp.listen\" in tidings.toml (line 3): did you mean \"http.listen\"?",
            ),
            (
                "page_size = 1",
                "unknown key \"page_size\" in tidings.toml (line 1): did you mean \"mcp.page_size\"?",
            ),
            (
                "[stoer]",
                "unknown key \"stoer\" in tidings.toml (line 1): did you mean \"store\"?",
            ),
        ] {
            assert_eq!(refusal(text), expected);
        }
    }

    #[test]
    fn column_is_counted_in_characters() {
        let error = from_text("mcp = { name = \"é\", nam = 1 }").unwrap_err();
        let Place::File { line, column, .. } = error.mistakes()[0].place() else {
            panic!("{error}")
        };
        assert_eq!((*line, *column), (1, 21));
    }

    #[test]
    fn wrong_value_names_key_line_value_and_range() {
        assert_eq!(
            refusal("[session]\n\nmax = 0"),
            "invalid value 0 for \"session.max\" in tidings.toml (line 3): expected an integer from 1 to 1000000"
        );
        assert_eq!(
            refusal("[http]\nkeep_alive = \"10m\""),
            "invalid value \"10m\" for \"http.keep_alive\" in tidings.toml (line 2): \
             expected a duration from \"1s\" to \"5m\""
        );
        assert!(
            refusal("http.body_bytes_max = 1023").ends_with("expected a size from \"1KiB\" to \"64MiB\"")
        );
        assert!(refusal("mcp.cache_scope = 'shared'").ends_with("expected \"private\" or \"public\""));
    }

    #[test]
    fn wrong_types_are_refused() {
        for text in [
            "session.max = '5'",
            "session.max = 5.0",
            "session.max = -1",
            "session.max = 99999999999999999999",
            "workspace.hidden = 'true'",
            "http.keep_alive = 15",
            "http.keep_alive = 07:30:00",
            "http.body_bytes_max = '2048'",
            "http.allowed_hosts = 'a.example'",
            "http.allowed_hosts = ['a.example', 1]",
            "http.allowed_hosts = ['a', '*']",
            "http.listen = 'localhost:80'",
            "[http.listen]\nhost = 'a'",
            "[[mcp.name]]",
        ] {
            assert!(
                refusal(text).starts_with("invalid value "),
                "{text}: {}",
                refusal(text)
            );
        }
    }

    #[test]
    fn bounds_of_ranges_are_allowed() {
        for text in [
            "session.max = 1",
            "session.max = 1000000",
            "http.body_bytes_max = 1024",
            "http.body_bytes_max = '64MiB'",
            "http.keep_alive = '1s'",
            "http.keep_alive = '300000ms'",
            "mcp.instructions = ''",
        ] {
            assert!(from_text(text).is_ok(), "{text}: {}", refusal(text));
        }
        for text in [
            "session.max = 1000001",
            "http.body_bytes_max = '65MiB'",
            "http.keep_alive = '999ms'",
            "http.keep_alive = '301s'",
            "mcp.name = ''",
        ] {
            assert!(from_text(text).is_err(), "{text}");
        }
        let hosts = |count| format!("http.allowed_hosts = {:?}", vec!["a"; count]);
        assert!(from_text(&hosts(256)).is_ok() && from_text(&hosts(257)).is_err());
    }

    #[test]
    fn section_of_another_type_is_refused() {
        assert_eq!(
            refusal("http = 80"),
            "invalid value 80 for \"http\" in tidings.toml (line 1): expected a section, written [http]"
        );
        assert!(refusal("[[http]]").contains("expected a section, written [http]"));
        assert!(refusal("[collection]\nname = 'a'\n").contains("each written [[collection]]"));
    }

    #[test]
    fn broken_text_is_located() {
        let text = refusal("[http]\nlisten = ");
        assert!(
            text.starts_with("tidings.toml is not valid TOML (line 2, column "),
            "{text}"
        );
        assert!(!text.contains('\n'), "{text}");
        assert!(refusal("[log]\nlevel = 'a'\nlevel = 'b'").contains("(line 3, column 1)"));
    }

    #[test]
    fn long_value_is_cut_in_messages() {
        let long = "x".repeat(1000);
        let error = refusal(&format!("workspace.scheme = '''{long}\n{long}'''"));
        assert!(
            error.contains(&format!("{}… for", "x".repeat(SHOWN_MAX - 3))),
            "{error}"
        );
    }
}

mod agreement {
    use super::*;

    #[test]
    fn public_listener_needs_host_names() {
        for listen in ["0.0.0.0:8808", "[::]:8808", "192.168.1.5:80"] {
            let text = format!("http.listen = '{listen}'\n");
            let error = refusal(&text);
            assert!(
                error.contains("set http.allowed_hosts to the names clients use"),
                "{error}"
            );
            let config = from_text(&format!("{text}http.allowed_hosts = ['A.example']")).unwrap();
            assert_eq!(config.http.allowed_hosts, ["a.example"]);
        }
    }

    #[test]
    fn public_address_of_metrics_needs_host_names() {
        let error = refusal("metrics.listen = '0.0.0.0:9464'");
        assert!(error.starts_with("metrics.listen is 0.0.0.0:9464"), "{error}");
        let config = from_text("metrics.listen = '127.0.0.1:0'").unwrap();
        assert_eq!(config.metrics.listen, Some("127.0.0.1:0".parse().unwrap()));
    }

    #[test]
    fn loopback_listener_needs_no_host_names() {
        for listen in ["127.0.0.1:0", "127.8.8.8:1", "[::1]:8808", "[::ffff:127.0.0.1]:1"] {
            let config = from_text(&format!("http.listen = '{listen}'")).unwrap();
            assert_eq!(config.http.listen, listen.parse().unwrap());
        }
    }

    #[test]
    fn debounce_max_below_debounce_is_refused() {
        assert_eq!(
            refusal("workspace.debounce = '5s'"),
            "workspace.debounce_max is 1s, shorter than workspace.debounce, which is 5s: \
             raise the first or lower the second"
        );
        assert!(from_text("workspace.debounce = '1s'").is_ok());
        // The default that stands in for a refused value disagrees with nothing.
        let error = refusal("[workspace]\ndebounce = '5s'\ndebounce_max = 3");
        assert!(
            error.starts_with("invalid value 3") && !error.contains('\n'),
            "{error}"
        );
    }

    #[test]
    fn choices_become_variants() {
        let config = from_text("mcp.cache_scope = 'public'\nlog.format = 'json'").unwrap();
        assert_eq!(
            (config.mcp.cache_scope, config.log.format),
            (CacheScope::Public, LogFormat::Json)
        );
    }

    #[test]
    fn zero_stands_for_none() {
        let text =
            "[session]\nstall_timeout = '0s'\nage_max = '1h'\nper_peer_max = 0\n[mcp]\ninstructions = ''";
        let config = from_text(text).unwrap();
        assert_eq!(config.session.stall_timeout, None);
        assert_eq!(config.session.age_max, Some(Duration::from_secs(3600)));
        assert_eq!(
            (config.session.per_peer_max, config.mcp.instructions),
            (None, None)
        );
    }
}

mod variables {
    use super::*;

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

mod hints {
    use super::super::hint::for_key;

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

mod lists {
    use super::*;

    const HEAD: &str = "[[collection]]\nname = 'notes'\nitem = 'note'\nfile = 'n.json'\n";

    #[test]
    fn collection_is_read_with_defaults_and_views() {
        let text = format!(
            "{HEAD}[[collection.view]]\nname = 'open'\nfilter = {{ field = 'status', equals = 'open' }}\n\
             [[collection.view]]\nname = 'page'\ngroup_by = 'pageUrl'\n[[collection]]\nname = 'b'\nitem = 'c'\nfile = 'd'\n"
        );
        let config = from_text(&text).unwrap();
        let [first, second] = &config.collection[..] else {
            panic!("{:?}", config.collection)
        };
        assert_eq!((first.pointer.as_str(), first.id.as_str()), ("", "id"));
        assert_eq!((first.title.as_deref(), second.views.len()), (None, 0));
        let [open, page] = &first.views[..] else {
            panic!("{first:?}")
        };
        let filter = open.filter.as_ref().unwrap();
        assert_eq!(filter.equals, Some("open".into()));
        assert_eq!(page.group_by.as_deref(), Some("pageUrl"));
        let again = from_text(&config.to_toml()).unwrap();
        assert_eq!(again, config, "{}", config.to_toml());
    }

    #[test]
    fn filter_tests_are_printed_as_they_are_read() {
        for test in [
            "equals = 'a\"b'",
            "equals = 1.5",
            "not_equals = true",
            "in = [1, 'two', false]",
            "exists = false",
            "contains = 'x'",
        ] {
            let text =
                format!("{HEAD}[[collection.view]]\nname = 'v'\nfilter = {{ field = '/a~1b/c', {test} }}\n");
            let config = from_text(&text).unwrap();
            assert_eq!(from_text(&config.to_toml()).unwrap(), config, "{test}");
        }
    }

    #[test]
    fn sinks_are_printed_as_they_are_read() {
        let text = "[[journal]]\nname = 'j'\nfile = '/j'\nkinds = ['removed']\nfsync_every = '10ms'\n\
                    [[webhook]]\nname = 'w'\nurl = 'https://h.example/x'\nsecret_variable = 'SECRET'\n\
                    uris = ['note://*']\nretry_for = '0s'\n[[debug_log]]\nname = 'd'\nlists = false\nformat = 'json'\n";
        let config = from_text(text).unwrap();
        assert_eq!(
            (config.journal[0].queue, config.journal[0].files_max),
            (10_000, 5)
        );
        assert_eq!(
            (config.webhook[0].attempts, &config.webhook[0].secret_file),
            (10, &None)
        );
        assert_eq!(
            (config.debug_log[0].sample, config.debug_log[0].lists),
            (1, false)
        );
        assert_eq!(
            from_text(&config.to_toml()).unwrap(),
            config,
            "{}",
            config.to_toml()
        );
    }

    #[test]
    fn unknown_key_is_named_with_its_neighbour() {
        assert_eq!(
            refusal(&format!("{HEAD}titel = 'N'\n")),
            "unknown key \"collection.titel\" in tidings.toml (line 5): did you mean \"title\"?"
        );
        assert_eq!(
            refusal(&format!("{HEAD}[[collection.view]]\nname = 'v'\ngroupby = 'x'\n")),
            "unknown key \"collection.view.groupby\" in tidings.toml (line 7): did you mean \"group_by\"?"
        );
        assert_eq!(
            refusal(&format!(
                "{HEAD}[[collection.view]]\nname = 'v'\nfilter = {{ field = 'a', zzz = 1 }}\n"
            )),
            "unknown key \"collection.view.filter.zzz\" in tidings.toml (line 7): \
             the keys here are field, equals, not_equals, in, exists, contains"
        );
        assert!(refusal("[[colection]]\nname = 'a'\n").ends_with("did you mean \"collection\"?"));
    }

    #[test]
    fn missing_and_surplus_keys_are_named() {
        assert_eq!(
            refusal("\n[[collection]]\nname = 'a'\nitem = 'b'\n"),
            "\"collection.file\" is missing in tidings.toml (line 2): expected a path in UTF-8"
        );
        assert_eq!(
            refusal(&format!("{HEAD}[[collection.view]]\nname = 'v'\n")),
            "[collection.view] in tidings.toml (line 5) needs exactly one of filter, group_by"
        );
        let both = "filter = { field = 'a', equals = 1, exists = true }";
        assert!(
            refusal(&format!("{HEAD}[[collection.view]]\nname = 'v'\n{both}\n"))
                .contains("needs exactly one of equals, not_equals, in, exists, contains")
        );
    }

    #[test]
    fn mistakes_of_several_tables_are_told_once_each() {
        let text = format!(
            "{HEAD}[[collection.view]]\nname = 'V'\ngroup_by = 'a'\n\
             [[collection.view]]\nname = 'w'\nfilter = {{ field = '', equals = 1 }}\n\
             [[collection.view]]\nname = 'x'\nfilter = {{ field = 'a', in = [] }}\n\
             [[collection]]\nname = 'other'\nitem = 1\nfile = ''\n"
        );
        let error = refusal(&text);
        let beginnings = [
            "invalid value 'V' for \"collection.view.name\" in tidings.toml (line 6)",
            "invalid value '' for \"collection.view.filter.field\" in tidings.toml (line 10)",
            "invalid value [] for \"collection.view.filter.in\" in tidings.toml (line 13)",
            "invalid value 1 for \"collection.item\" in tidings.toml (line 16)",
            "invalid value '' for \"collection.file\" in tidings.toml (line 17)",
        ];
        assert_eq!(error.lines().count(), beginnings.len(), "{error}");
        for (line, beginning) in error.lines().zip(beginnings) {
            assert!(line.starts_with(beginning), "{line}\nis not\n{beginning}");
        }
    }

    #[test]
    fn names_and_files_are_used_once() {
        let error = refusal(&format!("{HEAD}{HEAD}"));
        assert!(error.starts_with(
            "\"collection.name\" cannot be \"notes\" in tidings.toml (line 6): the name is taken, choose another"
        ));
        assert!(
            refusal(&format!(
                "{HEAD}[[collection.view]]\nname = 'all'\ngroup_by = 'x'\n"
            ))
            .contains("taken")
        );
        assert!(refusal(&HEAD.replace("'notes'", "'workspace'")).contains("workspace.scheme"));
        let sinks = "[[journal]]\nname = 'j'\nfile = '/f'\n[[debug_log]]\nname = 'j'\nfile = '/f'\n";
        assert_eq!(
            refusal(sinks),
            "two sinks write to /f: choose another file for one of them"
        );
    }

    #[test]
    fn views_of_two_collections_may_share_a_name() {
        let view = "[[collection.view]]\nname = 'v'\ngroup_by = 'x'\n";
        let other = HEAD.replace("note", "book");
        let text = format!("{HEAD}{view}{other}{view}");
        assert!(from_text(&text).is_ok(), "{}", refusal(&text));
    }

    #[test]
    fn wrong_values_are_refused() {
        for (from, to) in [
            ("'notes'", "'Notes'"),
            ("'notes'", "'my_notes'"),
            ("'notes'", "1"),
            ("'note'", "'a b'"),
            ("'n.json'", "''"),
            ("file = 'n.json'", "file = 'n.json'\npointer = 'items'"),
            ("file = 'n.json'", "file = 'n.json'\nid = 'a..b'"),
            ("file = 'n.json'", "file = 'n.json'\nview = 3"),
        ] {
            let text = HEAD.replace(from, to);
            assert!(
                refusal(&text).starts_with("invalid value "),
                "{text}: {}",
                refusal(&text)
            );
        }
    }

    #[test]
    fn relative_files_start_at_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tidings.toml");
        let text = format!("{HEAD}[[journal]]\nname = 'j'\nfile = 'j.jsonl'\n[[debug_log]]\nname = 'd'\n");
        std::fs::write(&path, text).unwrap();
        let config = Config::load(Some(&path), std::iter::empty(), &Overrides::default()).unwrap();
        assert_eq!(config.collection[0].file, folder.path().join("n.json"));
        assert_eq!(config.journal[0].file, folder.path().join("j.jsonl"));
        assert_eq!(config.debug_log[0].file, None);

        let overrides = Overrides {
            workspace_dir: Some("notes".into()),
            ..Overrides::default()
        };
        let config = Config::load(Some(&path), std::iter::empty(), &overrides).unwrap();
        assert_eq!(config.collection[0].file, Path::new("n.json"));
    }
}

mod keys {
    use super::*;

    /// Every key, those of lists included.
    pub(super) fn all(table: &'static Key) -> Vec<&'static Key> {
        let inner = table.keys.iter().flat_map(all);
        table.keys.iter().chain(inner).collect()
    }

    #[test]
    fn keys_stand_in_the_order_of_declaration() {
        assert!(Key::root().names().starts_with("http, session, bus, mcp, "));
        assert!(
            Key::root()
                .names()
                .ends_with(", collection, journal, webhook, debug_log")
        );
        let webhook = Key::at("webhook").unwrap();
        assert!(
            webhook
                .names()
                .starts_with("name, url, secret_file, secret_variable, ")
        );
    }

    #[test]
    fn required_keys_have_examples_that_load() {
        let required: Vec<_> = all(Key::root())
            .into_iter()
            .filter(|key| key.is_required())
            .collect();
        assert_eq!(required.len(), 10, "{required:?}");
        let text = "[[collection]]\nitem = 1\n[[collection.view]]\nfilter = { exists = true }\n\
                    [[journal]]\n[[webhook]]\nsecret_variable = 'X'\n[[debug_log]]\n";
        // One mistake for each: nothing that stands in for a missing value is refused itself.
        assert_eq!(refusal(text).lines().count(), required.len(), "{}", refusal(text));
    }

    #[test]
    fn variable_follows_from_the_path() {
        let key = Key::at("session.subscriptions_max").unwrap();
        assert_eq!(key.variable(), "TIDINGS_SESSION__SUBSCRIPTIONS_MAX");
    }

    #[test]
    fn every_key_is_described_for_a_table_cell() {
        let mut paths = BTreeSet::new();
        for key in all(Key::root()) {
            let path = &key.path;
            let (meaning, at_limit) = key.words();
            let allowed = key.allowed();
            assert!(paths.insert(path), "{path} stands twice");
            assert!(meaning.ends_with('.'), "{path}: {meaning}");
            assert!(
                at_limit.is_empty() || at_limit.ends_with('.'),
                "{path}: {at_limit}"
            );
            assert!(
                !format!("{meaning}{at_limit}{allowed}").contains(['|', '\n']),
                "{path}"
            );
            assert!(!allowed.is_empty(), "{path} has no range");
        }
        assert_eq!(Key::of_sections().count(), 58);
    }

    #[test]
    fn schema_has_default_range_and_description() {
        let schema: Value = serde_json::from_str(&Config::json_schema()).unwrap();
        let session = &schema["properties"]["session"]["properties"];
        assert_eq!(session["max"]["default"], 20_000);
        assert_eq!(
            (&session["max"]["minimum"], &session["max"]["maximum"]),
            (&1.into(), &1_000_000.into())
        );
        assert_eq!(session["idle_timeout"]["default"], "5m");
        assert_eq!(session["idle_timeout"]["x-maximum"], "24h");
        assert!(
            session["max"]["description"]
                .as_str()
                .unwrap()
                .starts_with("Sessions at a time.")
        );
        let journal = &schema["properties"]["journal"]["items"];
        assert_eq!(journal["required"], serde_json::json!(["name", "file"]));
    }

    #[test]
    fn keys_that_changed_are_named() {
        let before = Config::default();
        let mut after = before.clone();
        assert_eq!(before.keys_for_restart(&after), [""; 0]);
        after.http.connections_max += 1;
        after.log.level = "debug".to_owned();
        after.session.max += 1;
        after.journal = from_text("[[journal]]\nname = 'j'\nfile = 'j'\n")
            .unwrap()
            .journal;
        assert_eq!(
            before.keys_for_restart(&after),
            ["http.connections_max", "session.max", "log.level"]
        );
    }
}

mod printing {
    use super::super::print::literal;
    use super::*;

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
            "# A larger one gets 413 and is not read further.",
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
            "workspace.dir" | "store.dir" => return "[^\0]{0,20}".prop_map(Value::from).boxed(),
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
            let used = values(&config);
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
