//! Loads a checked [`Config`] from the file, the environment and the command line.
//!
//! All mistakes are collected before they are reported, so that a file can be corrected in one go.

mod document;
mod environment;
mod keys;
mod hint;
mod print;
mod error;
#[cfg(test)]
mod tests;

pub use error::{ConfigError, Mistake, Place};

use super::{Config, time};
use keys::Key;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Most characters of a refused value that a message repeats.
const SHOWN_MAX: usize = 60;

/// Values that the caller, usually a command line, sets over file and environment; `None` leaves a key alone.
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
    /// `env` is usually the part of `std::env::vars_os` that is UTF-8; variables of other programs are
    /// ignored.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, a key or variable that does not exist, a value of the wrong type
    /// or out of range, and values that do not go together: all of them at once. The text of each names key,
    /// value, place and the allowed values.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<Config, ConfigError> {
        let mut draft = Draft::default();
        if let Some(path) = file {
            document::read_file(path, &mut draft);
        }
        environment::read(env, &mut draft);
        draft.set_overrides(overrides);
        draft.finish()
    }

    /// The whole configuration as a TOML file with a comment per key.
    ///
    /// Loading the text yields this configuration again, provided it came out of [`Config::load`]; values
    /// that no file can have (parts of a millisecond, paths outside UTF-8) are printed as near as possible.
    pub fn to_toml(&self) -> String {
        print::toml(self)
    }

    /// The JSON Schema (2020-12) of the file: description, default and range of each key.
    pub fn json_schema() -> String {
        let schema = serde_json::to_string_pretty(&keys::json_schema()).expect("a schema is JSON");
        schema + "\n"
    }

    /// The keys whose values differ in `after`, apart from those that take effect without a restart.
    pub(crate) fn keys_for_restart(&self, after: &Config) -> Vec<String> {
        keys::keys_for_restart(self, after)
    }
}

/// The values as written, and the mistakes found in them so far.
#[derive(Debug, Default)]
struct Draft {
    /// Sections and lists, as a file has them.
    tree: Value,
    /// For the JSON pointer of each value in `tree`: its text and place.
    written: BTreeMap<String, Written>,
    mistakes: Vec<Mistake>,
    /// Pointers of values that were refused, so that mistakes which only follow from them are left out.
    refused: BTreeSet<String>,
    /// The configuration file.
    file: Option<PathBuf>,
}

/// The text and the place of a value.
#[derive(Debug)]
struct Written {
    shown: String,
    place: Place,
    /// The place of its key.
    key_place: Place,
}

impl Written {
    /// Keeps the first line of `shown`, the value as its writer sees it; a message would be unreadable with
    /// more.
    fn new(shown: &str, place: Place) -> Written {
        let line = shown.lines().next().unwrap_or_default();
        let mut cut: String = line.chars().take(SHOWN_MAX).collect();
        if cut.len() < shown.len() {
            cut.push('…');
        }
        Written {
            shown: cut,
            key_place: place.clone(),
            place,
        }
    }
}

impl Draft {
    /// Sets the value of a key of a section, in place of an earlier one.
    fn set(&mut self, key: &Key, value: Value, written: Written) {
        let pointer = pointer(&key.path);
        let mut at = &mut self.tree;
        for name in key.path.split('.') {
            // Indexing turns null, as which every draft begins, into an object.
            at = &mut at[name];
        }
        *at = value;
        self.refused.remove(&pointer);
        self.written.insert(pointer, written);
    }

    fn set_overrides(&mut self, overrides: &Overrides) {
        let listen = overrides.listen.map(|address| address.to_string());
        self.set_override("http.listen", listen.as_deref().map(Path::new));
        self.set_override("workspace.dir", overrides.workspace_dir.as_deref());
        self.set_override("store.dir", overrides.data_dir.as_deref());
        self.set_override("log.level", overrides.log_level.as_deref().map(Path::new));
    }

    fn set_override(&mut self, path: &str, text: Option<&Path>) {
        let (Some(text), Some(key)) = (text, Key::at(path)) else {
            return;
        };
        // No rule allows an object, so the one that stands for a path outside UTF-8 is refused with the rest.
        let (value, shown) = match text.to_str() {
            Some(text) => (Value::from(text), format!("{text:?}")),
            None => (json!({}), "(not UTF-8)".to_owned()),
        };
        self.set(key, value, Written::new(&shown, Place::CommandLine));
    }

    /// Checks every value, and every pair of values that must agree.
    fn finish(mut self) -> Result<Config, ConfigError> {
        if self.tree.is_null() {
            self.tree = json!({});
        }
        // serde stops at the first wrong value. Each round replaces that value, so that the next one finds
        // another.
        let mut config = loop {
            match serde_path_to_error::deserialize::<_, Config>(&self.tree) {
                Ok(config) => break config,
                Err(error) => {
                    if !self.replace_refused(&pointer(&error.path().to_string())) {
                        self.note(Place::Together, &error.to_string());
                        return Err(ConfigError::new(self.mistakes));
                    }
                }
            }
        };
        self.complete_collections(&mut config);
        self.check_agreement(&config);
        if self.mistakes.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::new(self.mistakes))
        }
    }

    /// Notes that the value at `pointer` is wrong, and replaces it by its default, or by an example where
    /// there is none. Returns false if that cannot help, which would be a contradiction between the keys and
    /// the structs.
    fn replace_refused(&mut self, pointer: &str) -> bool {
        let parent = pointer.rsplit_once('/').unwrap_or_default().0;
        let (Some(key), Some(Value::Object(table))) =
            (Key::at(&dotted(pointer)), self.tree.pointer_mut(parent))
        else {
            return false;
        };
        let removed = table.remove(key.name());
        if key.is_required() {
            table.insert(key.name().to_owned(), key.example());
        }
        self.refuse(key, pointer);
        // An example that is refused as well would be put back for ever.
        removed.is_some() && removed != Some(key.example())
    }

    /// Notes that the value of `key` at `pointer` is wrong.
    fn refuse(&mut self, key: &Key, pointer: &str) {
        self.refused.insert(pointer.to_owned());
        if let Some(Written { shown, place, .. }) = self.written.get(pointer) {
            let expected = key.allowed();
            let text = format!(
                "invalid value {shown} for \"{}\" {place}: expected {expected}",
                key.path
            );
            self.note(place.clone(), &text);
        }
    }

    /// Notes a mistake.
    fn note(&mut self, place: Place, text: &str) {
        self.mistakes.push(Mistake::new(place, text));
    }

    /// The place of the value at `pointer`.
    fn place(&self, pointer: &str) -> Place {
        match self.written.get(pointer) {
            Some(written) => written.place.clone(),
            None => Place::Together,
        }
    }

    /// Without a folder to serve, files of collections are found from the folder of the configuration file.
    fn complete_collections(&self, config: &mut Config) {
        let (Some(file), None) = (&self.file, &config.workspace.dir) else {
            return;
        };
        for collection in &mut config.collection {
            collection.file = beside(file, &collection.file);
        }
    }

    /// Checks the values that must agree with each other.
    fn check_agreement(&mut self, config: &Config) {
        let listeners = [
            ("http.listen", Some(config.http.listen)),
            ("metrics.listen", config.metrics.listen),
        ];
        for (key, listen) in listeners {
            match listen {
                // Without names to compare the `Host` header with, any web page could reach the listener by
                // DNS rebinding.
                Some(listen)
                    if config.http.allowed_hosts.is_empty() && !listen.ip().to_canonical().is_loopback() =>
                {
                    let text = format!(
                        "{key} is {listen}, which other machines may reach, but http.allowed_hosts is empty: \
                         set http.allowed_hosts to the names clients use, or listen on 127.0.0.1"
                    );
                    self.note_disagreement(&[key, "http.allowed_hosts"], &text);
                }
                _ => {}
            }
        }
        let debounce = config.workspace.debounce;
        let longest = config.workspace.debounce_max;
        if debounce > longest {
            let text = format!(
                "workspace.debounce_max is {}, shorter than workspace.debounce, which is {}: \
                 raise the first or lower the second",
                time::text(longest),
                time::text(debounce)
            );
            self.note_disagreement(&["workspace.debounce", "workspace.debounce_max"], &text);
        }
        // Two sources under one scheme could claim one URI.
        let scheme = &config.workspace.scheme;
        if config
            .collection
            .iter()
            .any(|collection| collection.name == *scheme)
        {
            let text = format!(
                "collection.name and workspace.scheme are both \"{scheme}\": choose another for one of them"
            );
            self.note_disagreement(&["workspace.scheme"], &text);
        }
    }

    /// Notes a mistake between values, unless one of them was refused itself and replaced by its default.
    fn note_disagreement(&mut self, keys: &[&str], text: &str) {
        if !keys.iter().any(|key| self.refused.contains(&pointer(key))) {
            self.note(Place::Together, text);
        }
    }
}

/// The JSON pointer of a dotted path, with indices such as in `webhook[0].url`.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace(['.', '['], "/").replace(']', ""))
}

/// The dotted path of a JSON pointer, without the indices in it.
fn dotted(pointer: &str) -> String {
    let names = pointer
        .split('/')
        .skip(1)
        .filter(|name| name.parse::<usize>().is_err());
    names.collect::<Vec<_>>().join(".")
}

/// The path `file` as found from the folder of the file `origin`.
fn beside(origin: &Path, file: &Path) -> PathBuf {
    let joined = match origin.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.join(file),
        // Both were named from the folder in which the service was started, and stay as they are.
        _ => return file.to_owned(),
    };
    std::path::absolute(&joined).unwrap_or(joined)
}
