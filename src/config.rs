//! Every knob of the service: read from a TOML file, the environment and the command line, checked, and handed out.
//!
//! This module owns the names, ranges and defaults; one table in `key` has them all. Values come as written from
//! `file` and `environment` into `written`, whose one `validate` makes the [`Config`] that the service uses.
//! Everything is checked before anything is bound or opened. The parts of the service receive their section
//! and never look at the environment themselves; nothing here starts, binds or logs.

mod error;
mod section;
mod collection;
mod sink;
mod key;
mod field;
mod list;
mod kind;
mod written;
mod file;
mod environment;
mod hint;
mod print;
mod name;
pub(crate) mod size;
pub(crate) mod time;
mod folder;
mod address;
#[cfg(test)]
mod reference;

pub use collection::{CollectionConfig, FilterConfig, FilterTest, ViewConfig, ViewKind};
pub use error::{ConfigError, Place};
pub use section::{
    BusConfig, CacheScope, EventsConfig, HttpConfig, LogConfig, LogFormat, McpConfig, MetricsConfig,
    RegisterConfig, SessionConfig, ShutdownConfig, StoreConfig, ToolsConfig, WorkspaceConfig, WsConfig,
};
pub use sink::{
    DebugLogConfig, FeedConfig, FsyncPolicy, JournalConfig, SinkClass, SinkOverflow, WebhookConfig,
};

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use written::Written;

/// The configuration in use; `docs/configuration.md` explains each key.
///
/// [`Config::load`] is the way to one that is checked. Deserializing, or setting fields by hand, checks no ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The listener.
    pub http: HttpConfig,
    /// Connected MCP clients.
    pub session: SessionConfig,
    /// What the bus keeps.
    pub bus: BusConfig,
    /// What MCP clients are told.
    pub mcp: McpConfig,
    /// The folder whose files are served.
    pub workspace: WorkspaceConfig,
    /// The tools of that folder.
    pub tools: ToolsConfig,
    /// The executable `register` of that folder.
    pub register: RegisterConfig,
    /// Where versions outlive the process.
    pub store: StoreConfig,
    /// The streams of `GET /v1/events`.
    pub events: EventsConfig,
    /// The connections of `GET /v1/ws`.
    pub ws: WsConfig,
    /// What is logged.
    pub log: LogConfig,
    /// What is measured, and where it is shown.
    pub metrics: MetricsConfig,
    /// How the service ends.
    pub shutdown: ShutdownConfig,
    /// JSON files whose items are served.
    #[serde(default)]
    pub collection: Vec<CollectionConfig>,
    /// JSON-lines files that are told of every change.
    #[serde(default)]
    pub journal: Vec<JournalConfig>,
    /// Receivers of signed POST requests.
    #[serde(default)]
    pub webhook: Vec<WebhookConfig>,
    /// Logs of what became of notices.
    #[serde(default)]
    pub debug_log: Vec<DebugLogConfig>,
}

/// What the caller, usually a command line, sets over file and environment; `None` leaves a key alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// `http.listen`.
    pub listen: Option<SocketAddr>,
    /// `workspace.dir`.
    pub workspace_dir: Option<PathBuf>,
    /// `store.dir`.
    pub data_dir: Option<PathBuf>,
    /// `log.level`.
    pub log_level: Option<String>,
}

impl Config {
    /// Reads and checks the configuration: defaults, over them the file, the environment, the overrides.
    ///
    /// `env` is usually what `std::env::vars_os` has in UTF-8; variables that do not start with `TIDINGS_` are ignored.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, a key or variable that does not exist, a value of the wrong type or out
    /// of range, and values that do not go together. The text names key, value, place and what is allowed.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<Self, ConfigError> {
        let mut written = Written::default();
        if let Some(path) = file {
            file::read(path, &file::open(path)?, &mut written)?;
        }
        environment::read(env, &mut written)?;
        written.set_overrides(overrides);
        written.validate()
    }

    /// The whole configuration as a TOML file with a comment per key.
    ///
    /// Loading the text yields this configuration again, provided it came out of [`Config::load`]; values that
    /// no file can have (parts of a millisecond, paths outside UTF-8) are printed as near as possible.
    pub fn to_toml(&self) -> String {
        print::toml(self)
    }
}

impl Default for Config {
    /// What loading nothing yields.
    fn default() -> Self {
        Written::default()
            .validate()
            .expect("the defaults go together: a test loads them")
    }
}

#[cfg(test)]
mod tests {
    use super::key::{KEYS, Key};
    use super::kind::Kind;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::Value;
    use std::io::Write as _;
    use std::time::Duration;

    fn from_text(text: &str) -> Result<Config, ConfigError> {
        let mut written = Written::default();
        file::read(Path::new("tidings.toml"), text, &mut written)?;
        written.validate()
    }

    #[test]
    fn nothing_loaded_is_the_default() {
        let config = Config::load(None, std::iter::empty(), &Overrides::default()).unwrap();
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
    fn later_sources_win() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(
            file,
            "[http]\nlisten = '127.0.0.1:1'\n[store]\ndir = 'file'\n[session]\nmax = 1\n"
        )
        .unwrap();
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
    fn a_public_override_is_checked_like_any_other() {
        let overrides = Overrides {
            listen: Some("0.0.0.0:80".parse().unwrap()),
            ..Overrides::default()
        };
        let error = Config::load(None, std::iter::empty(), &overrides).unwrap_err();
        assert!(matches!(error, ConfigError::HostsMissing { .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_outside_utf8_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let folder = std::ffi::OsStr::from_bytes(b"a\xff").into();
        let overrides = Overrides {
            workspace_dir: Some(folder),
            ..Overrides::default()
        };
        let error = Config::load(None, std::iter::empty(), &overrides).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid value (not UTF-8) for \"workspace.dir\" on the command line: \
             expected a path in UTF-8, or \"\" for none"
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent.toml");
        let error = Config::load(Some(&path), std::iter::empty(), &Overrides::default()).unwrap_err();
        assert!(
            matches!(&error, ConfigError::Read { path: named, .. } if *named == path),
            "{error}"
        );
    }

    #[test]
    fn the_printed_default_loads_to_the_default() {
        assert_eq!(
            from_text(&Config::default().to_toml()).unwrap(),
            Config::default()
        );
    }

    /// Values that the key allows, as used; those of pairs that must agree always do.
    fn allowed(key: &Key) -> BoxedStrategy<Value> {
        let millis = |min: Duration, max: Duration| {
            let millis = u64::try_from(min.as_millis()).unwrap()..=u64::try_from(max.as_millis()).unwrap();
            millis
                .prop_map(|millis| Value::from(time::text(Duration::from_millis(millis))))
                .boxed()
        };
        match (key.path, key.kind) {
            ("workspace.debounce", _) => millis(Duration::from_millis(10), Duration::from_secs(1)),
            ("workspace.debounce_max", _) => millis(Duration::from_secs(1), Duration::from_secs(60)),
            (_, Kind::Flag) => any::<bool>().prop_map(Value::from).boxed(),
            (_, Kind::Count { min, max } | Kind::Bytes { min, max }) => {
                (min..=max).prop_map(Value::from).boxed()
            }
            (_, Kind::Time { min, max }) => millis(min, max),
            (_, Kind::Choice(words)) => proptest::sample::select(words).prop_map(Value::from).boxed(),
            (_, Kind::Text { .. }) => "\\PC[\\s\\S]{0,40}".prop_map(Value::from).boxed(),
            (_, Kind::OptionalAddress) => proptest::option::of(any::<SocketAddr>())
                .prop_map(|a| Value::from(a.map_or_else(String::new, |a| a.to_string())))
                .boxed(),
            (_, Kind::Address) => any::<SocketAddr>()
                .prop_map(|a| Value::from(a.to_string()))
                .boxed(),
            (_, Kind::Hosts) => vec("[a-z0-9][a-z0-9-]{0,9}", 1..4).prop_map(Value::from).boxed(),
            (_, Kind::Origins) => vec("https?://[a-z]{1,9}:[1-9]00", 0..4)
                .prop_map(Value::from)
                .boxed(),
            (_, Kind::Scheme) => "[a-z][a-z0-9+.-]{0,9}".prop_map(Value::from).boxed(),
            (_, Kind::Folder) => "[^\0]{0,20}".prop_map(Value::from).boxed(),
        }
    }

    fn any_values() -> impl Strategy<Value = Vec<(&'static Key, Value)>> {
        KEYS.iter()
            .map(|key| allowed(key).prop_map(move |value| (key, value)))
            .collect::<Vec<_>>()
    }

    /// A value as an environment variable carries it.
    fn variable((key, value): &(&Key, Value)) -> (String, String) {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Array(items) => items
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(","),
            other => other.to_string(),
        };
        (key.variable(), text)
    }

    proptest! {
        #[test]
        fn what_is_printed_loads_to_the_same(values in any_values()) {
            let lines = values.iter().map(|(key, value)| format!("{} = {}\n", key.path, print::literal(key.kind, value)));
            let config = from_text(&lines.collect::<String>()).unwrap();
            prop_assert_eq!(&from_text(&config.to_toml()).unwrap(), &config);
            for (key, value) in &values {
                let used = serde_json::to_value(&config).unwrap()[key.section()][key.name()].clone();
                prop_assert_eq!(&used, value, "{}", key.path);
            }
        }

        #[test]
        fn file_and_environment_say_the_same(values in any_values()) {
            let lines = values.iter().map(|(key, value)| format!("{} = {}\n", key.path, print::literal(key.kind, value)));
            let from_file = from_text(&lines.collect::<String>()).unwrap();
            let env = values.iter().map(variable);
            prop_assert_eq!(Config::load(None, env, &Overrides::default()).unwrap(), from_file);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "([a-z.\\[\\]='\"0-9 \n#{},é]|http|listen|session|max){0,40}") {
            if let Err(error) = from_text(&text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
