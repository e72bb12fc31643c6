//! Loading: the values of file, environment and command line, one over the other, become a checked [`Config`].
//!
//! All mistakes are collected before any is told, so that a file is corrected in one go.

use super::document::{self, beside, cut};
use super::error::{ConfigError, Mistake, Place};
use super::schema::{Form, Key};
use super::{Config, Overrides, environment, time};
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// See [`Config::load`].
pub(super) fn load(
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

/// The values as written, and the mistakes found in them so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Sections and lists, as a file has them.
    pub(super) tree: Map<String, Value>,
    /// For the dotted path of each value, with indices: its text and place.
    pub(super) written: BTreeMap<String, Written>,
    pub(super) mistakes: Vec<Mistake>,
    /// Paths of keys that were refused, so that nothing which follows from it is told as well.
    pub(super) refused: BTreeSet<String>,
    /// The configuration file.
    pub(super) file: Option<PathBuf>,
}

/// The text and the place of a value.
#[derive(Debug)]
pub(super) struct Written {
    shown: String,
    place: Place,
}

impl Written {
    /// `shown` is the value as its writer sees it; messages repeat its first line.
    pub(super) fn new(shown: &str, place: Place) -> Written {
        Written {
            shown: cut(shown),
            place,
        }
    }
}

impl Draft {
    /// Sets the value of a key of a section, in place of an earlier one.
    pub(super) fn set(&mut self, key: &Key, value: Value, written: Written) {
        let (section, name) = key
            .path
            .split_once('.')
            .expect("a key of a section has a dot in its path");
        self.tree.entry(section).or_insert_with(|| json!({}))[name] = value;
        self.refused.remove(&key.path);
        self.written.insert(key.path.clone(), written);
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
    pub(super) fn finish(mut self) -> Result<Config, ConfigError> {
        let mut tree = Value::Object(std::mem::take(&mut self.tree));
        let mut dropped = BTreeMap::new();
        // serde stops at the first wrong value, so each round notes one and takes it out.
        let mut config = loop {
            let error = match serde_path_to_error::deserialize::<_, Config>(&tree) {
                Ok(config) => break config,
                Err(error) => error,
            };
            let steps: Vec<Segment> = error.path().iter().cloned().collect();
            if !self.take_out(&mut tree, &steps, &mut dropped) {
                self.mistakes
                    .push(Mistake::new(Place::Together, error.to_string()));
                return Err(ConfigError::new(self.mistakes));
            }
        };
        self.place_collections(&mut config);
        self.check_listen(&config);
        self.check_debounce(&config);
        self.check_schemes(&config);
        if self.mistakes.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::new(self.mistakes))
        }
    }

    /// Notes the mistake at `steps` and removes the value from `tree`. False when nothing was removed.
    ///
    /// A whole table that lacks something is dropped together with the tables before it, which are right: serde reads
    /// them in order. `dropped` counts them by list, since places are known by the original index.
    fn take_out(
        &mut self,
        tree: &mut Value,
        steps: &[Segment],
        dropped: &mut BTreeMap<String, usize>,
    ) -> bool {
        let (mut path, mut dotted) = (String::new(), String::new());
        let mut last_list = None;
        for (depth, step) in steps.iter().enumerate() {
            match step {
                Segment::Map { key } => {
                    let dot = if path.is_empty() { "" } else { "." };
                    path.push_str(&format!("{dot}{key}"));
                    dotted.push_str(&format!("{dot}{key}"));
                }
                Segment::Seq { index } => {
                    last_list = Some((depth, *index, path.clone()));
                    let before = dropped.get(&path).copied().unwrap_or(0);
                    path.push_str(&format!("[{}]", index + before));
                }
                _ => return false,
            }
            let is_value =
                Key::at(&dotted).is_some_and(|key| !matches!(key.form, Form::Table | Form::Tables));
            if is_value {
                self.refuse(&path, &dotted);
                return remove(tree, &steps[..=depth]);
            }
        }
        let Some((depth, index, list)) = last_list else {
            return false;
        };
        *dropped.entry(list).or_insert(0) += index + 1;
        match at(tree, &steps[..depth]) {
            Some(Value::Array(tables)) if index < tables.len() => {
                tables.drain(..=index);
                true
            }
            _ => false,
        }
    }

    fn refuse(&mut self, path: &str, dotted: &str) {
        self.refused.insert(path.to_owned());
        if let (Some(Written { shown, place }), Some(key)) = (self.written.get(path), Key::at(dotted)) {
            let text = format!(
                "invalid value {shown} for \"{dotted}\" {place}: expected {}",
                key.allowed
            );
            self.mistakes.push(Mistake::new(place.clone(), text));
        }
    }

    /// Without a folder to serve, files of collections are found from the folder of the configuration file.
    fn place_collections(&self, config: &mut Config) {
        let (Some(file), None) = (&self.file, &config.workspace.dir) else {
            return;
        };
        for collection in &mut config.collection {
            collection.file = beside(file, &collection.file);
        }
    }

    /// Adds a mistake between values, unless one of them was refused itself and replaced by its default.
    fn disagree(&mut self, keys: &[&str], text: String) {
        if !keys.iter().any(|key| self.refused.contains(*key)) {
            self.mistakes.push(Mistake::new(Place::Together, text));
        }
    }

    /// Without names to compare the `Host` header with, any web page could reach a public listener by DNS rebinding.
    fn check_listen(&mut self, config: &Config) {
        let addresses = [
            ("http.listen", Some(config.http.listen)),
            ("metrics.listen", config.metrics.listen),
        ];
        for (key, listen) in addresses {
            let Some(listen) = listen.filter(|_| config.http.allowed_hosts.is_empty()) else {
                continue;
            };
            if listen.ip().to_canonical().is_loopback() {
                continue;
            }
            let text = format!(
                "{key} is {listen}, which other machines may reach, but http.allowed_hosts is empty: \
                 set http.allowed_hosts to the names clients use, or listen on 127.0.0.1"
            );
            self.disagree(&[key, "http.allowed_hosts"], text);
        }
    }

    fn check_debounce(&mut self, config: &Config) {
        let (quiet, longest) = (config.workspace.debounce, config.workspace.debounce_max);
        if quiet > longest {
            let text = format!(
                "workspace.debounce_max is {}, shorter than workspace.debounce, which is {}: \
                 raise the first or lower the second",
                time::text(longest),
                time::text(quiet)
            );
            self.disagree(&["workspace.debounce", "workspace.debounce_max"], text);
        }
    }

    /// Two sources under one scheme could claim one URI.
    fn check_schemes(&mut self, config: &Config) {
        let scheme = &config.workspace.scheme;
        if config
            .collection
            .iter()
            .any(|collection| collection.name == *scheme)
        {
            let text = format!(
                "collection.name and workspace.scheme are both \"{scheme}\": choose another for one of them"
            );
            self.disagree(&["workspace.scheme"], text);
        }
    }
}

/// The value at the end of `steps`.
fn at<'a>(tree: &'a mut Value, steps: &[Segment]) -> Option<&'a mut Value> {
    let mut value = tree;
    for step in steps {
        value = match step {
            Segment::Map { key } => value.get_mut(key)?,
            Segment::Seq { index } => value.get_mut(index)?,
            _ => return None,
        };
    }
    Some(value)
}

/// Removes the key at the end of `steps`.
fn remove(tree: &mut Value, steps: &[Segment]) -> bool {
    let Some((Segment::Map { key }, parents)) = steps.split_last() else {
        return false;
    };
    match at(tree, parents) {
        Some(Value::Object(table)) => table.remove(key).is_some(),
        _ => false,
    }
}
