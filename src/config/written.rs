//! The configuration as written: for each key at most one value, with the place it came from.
//!
//! `file`, `environment` and the overrides fill it, later ones replacing earlier ones; [`Written::validate`] is the
//! only way from here to a [`Config`]. It never touches the outside world.

use super::error::{ConfigError, Place};
use super::key::{KEYS, Key};
use super::kind::Raw;
use super::{Config, Overrides, field, time};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Most characters of a refused value that a message repeats.
const SHOWN_MAX: usize = 60;

/// What was written, by dotted path.
#[derive(Debug, Default)]
pub(super) struct Written {
    entries: BTreeMap<&'static str, Entry>,
    lists: BTreeMap<&'static str, Vec<Value>>,
    /// The folder of the file, where it is not the one in which the service was started.
    file_dir: Option<PathBuf>,
}

/// One written value.
#[derive(Debug)]
pub(super) struct Entry {
    raw: Raw,
    shown: String,
    place: Place,
}

impl Entry {
    /// `shown` is the value as its writer sees it; messages repeat its first line.
    pub(super) fn new(raw: Raw, shown: &str, place: Place) -> Self {
        let line = shown.lines().next().unwrap_or_default();
        let mut cut: String = line.chars().take(SHOWN_MAX).collect();
        if cut.len() < shown.len() {
            cut.push('…');
        }
        Self {
            raw,
            shown: cut,
            place,
        }
    }

    /// The value for a message.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

impl Written {
    /// Takes a value, in place of an earlier one of the same key.
    pub(super) fn set(&mut self, key: &'static Key, entry: Entry) {
        self.entries.insert(key.path, entry);
    }

    /// Takes the tables of a list, checked already.
    pub(super) fn set_list(&mut self, list: &'static str, tables: Vec<Value>) {
        self.lists.insert(list, tables);
    }

    /// Takes where the file is, for the paths in it.
    pub(super) fn set_file(&mut self, path: &Path) {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        self.file_dir = dir.map(Path::to_owned);
    }

    /// Takes what the caller decided, over file and environment.
    pub(super) fn set_overrides(&mut self, overrides: &Overrides) {
        let listen = overrides.listen.map(|address| Raw::Text(address.to_string()));
        let level = overrides.log_level.as_ref().map(|level| Raw::Text(level.clone()));
        self.set_override("http.listen", listen);
        self.set_override("workspace.dir", overrides.workspace_dir.as_deref().map(folder));
        self.set_override("store.dir", overrides.data_dir.as_deref().map(folder));
        self.set_override("log.level", level);
    }

    fn set_override(&mut self, path: &str, raw: Option<Raw>) {
        let Some(raw) = raw else { return };
        let key = Key::find(path).expect("overrides name keys of the table: a test sets each of them");
        let shown = if let Raw::Text(text) = &raw {
            format!("{text:?}")
        } else {
            "(not UTF-8)".to_owned()
        };
        self.set(key, Entry::new(raw, &shown, Place::CommandLine));
    }

    /// Checks every value and every pair of values that must agree.
    ///
    /// # Errors
    /// The first wrong value in the order of the table, then the first disagreement.
    pub(super) fn validate(&self) -> Result<Config, ConfigError> {
        let mut sections = Map::new();
        for key in KEYS {
            let section = sections
                .entry(key.section())
                .or_insert_with(|| Value::Object(Map::new()));
            section[key.name()] = self.value(key)?;
        }
        for list in field::LISTS {
            let tables = self.lists.get(list).cloned().unwrap_or_default();
            sections.insert((*list).to_owned(), Value::from(tables));
        }
        let mut config = serde_json::from_value(Value::Object(sections)).expect(
            "the tables and the sections agree: loading the defaults in any test would fail otherwise",
        );
        self.place_files(&mut config);
        self.place_sinks(&mut config);
        check_listen(&config)?;
        check_debounce(&config)?;
        check_schemes(&config)?;
        check_files(&config)?;
        Ok(config)
    }

    /// Without a folder to serve, files of collections are found from the folder of the configuration file.
    fn place_files(&self, config: &mut Config) {
        let Some(dir) = self.file_dir.as_ref().filter(|_| config.workspace.dir.is_none()) else {
            return;
        };
        for collection in &mut config.collection {
            let joined = dir.join(&collection.file);
            // Absolute, so that the printed configuration means the same wherever it is kept.
            collection.file = std::path::absolute(&joined).unwrap_or(joined);
        }
    }

    /// Files of sinks are found from the folder of the configuration file.
    fn place_sinks(&self, config: &mut Config) {
        let Some(dir) = &self.file_dir else { return };
        let journals = config.journal.iter_mut().map(|journal| &mut journal.file);
        let webhooks = config.webhook.iter_mut();
        let webhooks = webhooks.flat_map(|webhook| [&mut webhook.secret_file, &mut webhook.dead_letters]);
        let logs = config.debug_log.iter_mut().map(|log| &mut log.file);
        for file in journals.chain(webhooks.chain(logs).flatten()) {
            let joined = dir.join(&*file);
            *file = std::path::absolute(&joined).unwrap_or(joined);
        }
    }

    fn value(&self, key: &Key) -> Result<Value, ConfigError> {
        let Some(entry) = self.entries.get(key.path) else {
            let raw = Raw::from_text(key.kind, key.default);
            return Ok(key
                .kind
                .check(&raw)
                .expect("every default is allowed: a test loads them"));
        };
        key.kind.check(&entry.raw).ok_or_else(|| ConfigError::Value {
            key: key.path.to_owned(),
            value: entry.shown.clone(),
            place: entry.place.clone(),
            expected: key.kind.expects(),
        })
    }
}

fn folder(path: &Path) -> Raw {
    path.to_str()
        .map_or(Raw::Other, |text| Raw::Text(text.to_owned()))
}

/// Without names to compare the `Host` header with, any web page could reach a public listener by DNS rebinding.
fn check_listen(config: &Config) -> Result<(), ConfigError> {
    if !config.http.allowed_hosts.is_empty() {
        return Ok(());
    }
    let addresses = [
        ("http.listen", Some(config.http.listen)),
        ("metrics.listen", config.metrics.listen),
    ];
    let mut open = addresses
        .into_iter()
        .filter_map(|(key, listen)| Some((key, listen?)));
    match open.find(|(_, listen)| !listen.ip().to_canonical().is_loopback()) {
        Some((key, listen)) => Err(ConfigError::HostsMissing { key, listen }),
        None => Ok(()),
    }
}

/// Two sources under one scheme could claim one URI.
fn check_schemes(config: &Config) -> Result<(), ConfigError> {
    let scheme = &config.workspace.scheme;
    match config
        .collection
        .iter()
        .find(|collection| collection.name == *scheme)
    {
        Some(_) => Err(ConfigError::SchemeShared {
            scheme: scheme.clone(),
        }),
        None => Ok(()),
    }
}

/// Two sinks that write to one file would rotate it away from each other.
fn check_files(config: &Config) -> Result<(), ConfigError> {
    let journals = config.journal.iter().map(|journal| &journal.file);
    let letters = config
        .webhook
        .iter()
        .filter_map(|webhook| webhook.dead_letters.as_ref());
    let logs = config.debug_log.iter().filter_map(|log| log.file.as_ref());
    let mut taken = BTreeSet::new();
    match journals
        .chain(letters)
        .chain(logs)
        .find(|file| !taken.insert(*file))
    {
        Some(file) => Err(ConfigError::FileShared { file: file.clone() }),
        None => Ok(()),
    }
}

fn check_debounce(config: &Config) -> Result<(), ConfigError> {
    let (quiet, longest) = (config.workspace.debounce, config.workspace.debounce_max);
    if quiet <= longest {
        return Ok(());
    }
    Err(ConfigError::DebounceOrder {
        longest: time::text(longest),
        quiet: time::text(quiet),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CacheScope, LogFormat};

    fn load(values: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let mut written = Written::default();
        for (path, value) in values {
            let key = Key::find(path).unwrap();
            written.set(
                key,
                Entry::new(Raw::from_text(key.kind, value), value, Place::CommandLine),
            );
        }
        written.validate()
    }

    #[test]
    fn a_public_listener_needs_names() {
        for listen in ["0.0.0.0:8808", "[::]:8808", "192.168.1.5:80"] {
            let error = load(&[("http.listen", listen)]).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("set http.allowed_hosts to the names clients use"),
                "{error}"
            );
            assert_eq!(
                load(&[("http.listen", listen), ("http.allowed_hosts", "a.example")])
                    .unwrap()
                    .http
                    .allowed_hosts,
                ["a.example"]
            );
        }
    }

    #[test]
    fn a_public_address_of_metrics_needs_names_too() {
        let error = load(&[("metrics.listen", "0.0.0.0:9464")]).unwrap_err();
        assert!(
            error.to_string().starts_with("metrics.listen is 0.0.0.0:9464"),
            "{error}"
        );
        let config = load(&[("metrics.listen", "127.0.0.1:0")]).unwrap();
        assert_eq!(config.metrics.listen, Some("127.0.0.1:0".parse().unwrap()));
    }

    #[test]
    fn a_loopback_listener_needs_none() {
        for listen in ["127.0.0.1:0", "127.8.8.8:1", "[::1]:8808", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(
                load(&[("http.listen", listen)]).unwrap().http.listen,
                listen.parse().unwrap()
            );
        }
    }

    #[test]
    fn the_longest_wait_is_not_shorter_than_the_quiet_time() {
        let error = load(&[("workspace.debounce", "5s")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "workspace.debounce_max is 1s, shorter than workspace.debounce, which is 5s: \
             raise the first or lower the second"
        );
        assert!(load(&[("workspace.debounce", "1s")]).is_ok());
    }

    #[test]
    fn every_choice_has_its_variant() {
        let config = load(&[("mcp.cache_scope", "public"), ("log.format", "json")]).unwrap();
        assert_eq!(
            (config.mcp.cache_scope, config.log.format),
            (CacheScope::Public, LogFormat::Json)
        );
    }

    #[test]
    fn long_values_are_cut_in_messages() {
        let long = "x".repeat(1000);
        let error = load(&[("workspace.scheme", &format!("{long}\n{long}"))])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("{}… for", "x".repeat(SHOWN_MAX))),
            "{error}"
        );
    }
}
