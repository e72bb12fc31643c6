//! Tests of loading from several sources, of values that must agree, and of lists of tables.

mod page;

use super::keys::Key;
use super::*;
use crate::config::{CacheScope, HttpConfig, LogFormat};
use std::io::Write as _;
use std::time::Duration;

pub(super) fn from_text(text: &str) -> Result<Config, ConfigError> {
    Draft::new(Path::new("tidings.toml"), text).finish()
}

/// The mistakes of a text, one a line.
pub(super) fn refusal(text: &str) -> String {
    from_text(text).unwrap_err().to_string()
}

pub(super) fn from_variables(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let pairs = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::load(None, pairs, &Overrides::default())
}

/// Every key within a table, those of the tables within included.
pub(super) fn all_keys(table: &'static Key) -> Vec<&'static Key> {
    let inner = table.keys.iter().flat_map(all_keys);
    table.keys.iter().chain(inner).collect()
}

fn from_overrides(overrides: &Overrides) -> Result<Config, ConfigError> {
    Config::load(None, std::iter::empty(), overrides)
}

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
    assert_eq!(limits.pending_subscriptions, config.session.pending_subscriptions);
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
        .mistakes
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
        "http.listen is 0.0.0.0:80, which other machines may reach, but http.allowed_hosts",
        "http.listen is 0.0.0.0:80, which other machines may reach, but nobody has credentials",
    ];
    assert_eq!(told.len(), beginnings.len(), "{told:#?}");
    for (told, beginning) in std::iter::zip(&told, beginnings) {
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

#[test]
fn public_listener_needs_host_names() {
    for listen in ["0.0.0.0:8808", "[::]:8808", "192.168.1.5:80"] {
        let text = format!("http.listen = '{listen}'\n");
        let error = refusal(&text);
        assert!(
            error.contains("set http.allowed_hosts to the names clients use"),
            "{error}"
        );
        let text = format!("{text}auth.anonymous = 'all'\n");
        let config = from_text(&format!("{text}http.allowed_hosts = ['A.example']")).unwrap();
        assert_eq!(config.http.allowed_hosts, ["a.example"]);
    }
}

#[test]
fn public_listener_needs_credentials() {
    for (key, other) in [
        ("http.listen", ""),
        ("metrics.listen", "http.listen = '127.0.0.1:0'\n"),
    ] {
        let text = format!("{other}{key} = '192.168.1.5:80'\nhttp.allowed_hosts = ['a.example']\n");
        let error = refusal(&text);
        let beginning = format!(
            "{key} is 192.168.1.5:80, which other machines may reach, but nobody has credentials: set [[auth.token]]"
        );
        assert!(error.starts_with(&beginning), "{error}");
        assert!(from_text(&format!("{text}auth.anonymous = 'all'")).is_ok());
        assert!(refusal(&format!("{text}auth.anonymous = 'none'")).starts_with(&beginning));
        let token = "[[auth.token]]\nname = 'a'\nfile = 'a'";
        assert!(from_text(&format!("{text}{token}")).is_ok());
    }
    assert!(refusal("[[auth.issuer]]\nurl = 'https://a.example'").contains("auth.resource is not"));
    let issuer = "[[auth.issuer]]\nurl = 'https://a.example'\nintrospect = 'client'\n";
    let auth = format!("auth.resource = 'https://b.example/mcp'\n{issuer}");
    assert!(from_text(&auth).is_ok());
    let refused = refusal(&format!("{auth}{issuer}"));
    assert!(
        refused.starts_with("several [[auth.issuer]] have introspect"),
        "{refused}"
    );
}

#[test]
fn key_file_of_issuer_is_beside_the_configuration() {
    for (written, read) in [
        ("keys.json", "/etc/tidings/keys.json"),
        ("/run/keys.json", "/run/keys.json"),
        ("https://a.example/keys", "https://a.example/keys"),
        ("", ""),
    ] {
        let issuer = format!("[[auth.issuer]]\nurl = 'https://a.example'\njwks = '{written}'\n");
        let text = format!("auth.resource = 'https://b.example/mcp'\n{issuer}");
        let config = Draft::new(Path::new("/etc/tidings/tidings.toml"), &text)
            .finish()
            .unwrap();
        assert_eq!(config.auth.issuer[0].jwks, read);
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
fn part_of_tls_alone_is_refused() {
    assert_eq!(
        refusal("tls.certificate = 'a.pem'"),
        "tls.certificate is set, but tls.key is not: set tls.key too, or remove tls.certificate"
    );
    assert_eq!(
        refusal("tls.client_crl = 'a.pem'"),
        "tls.client_crl is set, but tls.client_ca is not: set tls.client_ca too, or remove tls.client_crl"
    );
    assert!(refusal("tls.client_ca = 'a.pem'").contains("tls.certificate is not"));
    assert!(from_text("[tls]\ncertificate = 'a'\nkey = 'b'").is_ok());
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
fn callers_of_a_reachable_listener_are_limited() {
    let reachable =
        "[http]\nlisten = '0.0.0.0:80'\nallowed_hosts = ['a.example']\n[auth]\nanonymous = 'all'\n";
    let of = |text: &str| from_text(text).unwrap().session.per_peer_max;
    assert_eq!(of(""), None);
    assert_eq!(of(reachable), Some(1_000));
    assert_eq!(of(&format!("{reachable}[session]\nper_peer_max = 0")), None);
    assert_eq!(of(&format!("{reachable}[session]\nper_peer_max = 7")), Some(7));
}

#[test]
fn zero_stands_for_none() {
    let text = "[session]\nstall_timeout = '0s'\nage_max = '1h'\nper_peer_max = 0\n[mcp]\ninstructions = ''";
    let config = from_text(text).unwrap();
    assert_eq!(config.session.stall_timeout, None);
    assert_eq!(config.session.age_max, Some(Duration::from_secs(3600)));
    assert_eq!(
        (config.session.per_peer_max, config.mcp.instructions),
        (None, None)
    );
}

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
    for (line, beginning) in std::iter::zip(error.lines(), beginnings) {
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
