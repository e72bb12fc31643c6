//! Loads a checked [`Config`] from the file, the environment and the command line.
//!
//! All mistakes are collected before they are reported, so that a file can be corrected in one go.

mod cluster;
mod document;
mod environment;
mod gateway;
mod keys;
mod print;
mod error;
#[cfg(test)]
mod tests;

pub use error::{ConfigError, Mistake, Place};

use super::{Anonymous, AuthConfig, Config, PageEnabled, TlsConfig};
use crate::hosts;
use crate::units::time;
use keys::ROOT;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Most characters of a refused value that a message repeats.
const SHOWN_MAX: usize = 60;

/// `session.per_peer_max` of a listener that other machines can reach, unless it is set.
const PER_PEER_MAX: usize = 1_000;

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
        let path = file.unwrap_or(Path::new(""));
        let text = match file {
            Some(path) => std::fs::read_to_string(path),
            None => Ok(String::new()),
        };
        let mut draft = Draft::new(path, text.as_deref().unwrap_or_default());
        if let Err(error) = &text {
            let text = format!("cannot read the configuration file {}: {error}", path.display());
            draft.note(&draft.place(0), &text);
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
        let values = self.to_json();
        let mut text = String::new();
        for section in &ROOT.keys {
            print::print(&mut text, section, &values[section.name()]);
        }
        text
    }

    /// [`to_toml`](Config::to_toml) with `***` in place of what may be secret: variables of programs, and in
    /// http and https addresses user, password, query and fragment.
    pub fn to_toml_without_secrets(&self) -> String {
        let mut shown = self.clone();
        let variables = shown
            .gateway
            .upstream
            .iter_mut()
            .flat_map(|upstream| upstream.env.values_mut());
        variables.for_each(|value| "***".clone_into(value));
        crate::printable::without_secrets(&shown.to_toml()).into_owned()
    }

    /// The JSON Schema (2020-12) of the file: description, default and range of each key.
    pub fn json_schema() -> String {
        let settings = SchemaSettings::draft2020_12()
            .with_transform(RecursiveTransform(keys::require_keys))
            .with_transform(RecursiveTransform(keys::name_tables))
            .with_transform(RecursiveTransform(keys::allow_none));
        serde_json::to_string_pretty(&keys::generate(settings)).expect("a schema is JSON") + "\n"
    }

    /// Every value as a file would have it.
    fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("sections hold plain values, which JSON can carry")
    }
}

/// A value with its text, as its writer sees it, and its place.
struct Written {
    value: Value,
    shown: String,
    place: Place,
}

impl Written {
    fn new(value: Value, text: &str, place: Place) -> Written {
        // A message would be unreadable with more than the beginning of the first line.
        let line = text.lines().next().unwrap_or_default();
        let mut shown: String = line.chars().take(SHOWN_MAX).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Written { value, shown, place }
    }
}

/// The text of the file, the values over it, and the mistakes found so far.
#[derive(Default)]
struct Draft<'a> {
    path: PathBuf,
    text: &'a str,
    /// The values that replace those of the file, by path of their keys.
    over: BTreeMap<&'static str, Written>,
    mistakes: Vec<Mistake>,
    /// Keys of refused values, so that mistakes which only follow from them are left out.
    refused: BTreeSet<&'static str>,
    /// Names that are used once within a list, and files that one sink alone may write.
    taken: BTreeSet<String>,
}

impl<'a> Draft<'a> {
    fn new(path: &Path, text: &'a str) -> Draft<'a> {
        let mut draft = Draft::default();
        draft.path.push(path);
        draft.text = text;
        draft
    }

    fn set_overrides(&mut self, overrides: &Overrides) {
        let listen = overrides.listen.map(|address| PathBuf::from(address.to_string()));
        let set = [
            ("http.listen", listen.as_deref()),
            ("workspace.dir", overrides.workspace_dir.as_deref()),
            ("store.dir", overrides.data_dir.as_deref()),
            ("log.level", overrides.log_level.as_deref().map(Path::new)),
        ];
        for (path, text) in set {
            let Some(text) = text else { continue };
            // No schema allows an object, so the one that stands for a path outside UTF-8 is refused.
            let (value, shown) = match text.to_str() {
                Some(text) => (Value::from(text), format!("{text:?}")),
                None => (json!({}), "(not UTF-8)".to_owned()),
            };
            let written = Written::new(value, &shown, Place::CommandLine);
            self.over.insert(path, written);
        }
    }

    /// Checks every value, and every pair of values that must agree.
    fn finish(mut self) -> Result<Config, ConfigError> {
        let document = self.parse();
        let tree = self.table(&ROOT, &Place::Together, &document);
        let limits_peers = tree["session"].get("per_peer_max").is_some();
        match Config::deserialize(tree) {
            Ok(mut config) => {
                // No one of many machines may take every session.
                if !limits_peers && !config.http.listen.ip().to_canonical().is_loopback() {
                    config.session.per_peer_max = Some(PER_PEER_MAX);
                }
                // Without a folder to serve, files of collections are found from that of the file.
                if config.workspace.dir.is_none() {
                    for collection in &mut config.collection {
                        collection.file = beside(&self.path, &collection.file);
                    }
                }
                self.check_agreement(&config);
                if self.mistakes.is_empty() {
                    return Ok(config);
                }
            }
            // A size beyond the address space of the machine.
            Err(error) => self.note(&Place::Together, &error.to_string()),
        }
        self.mistakes.sort();
        let mistakes = self.mistakes;
        Err(ConfigError { mistakes })
    }

    /// Notes a mistake.
    fn note(&mut self, place: &Place, text: &str) {
        // The TOML parser explains itself in several lines; a log has one for each mistake.
        let text = text.lines().collect::<Vec<_>>().join(", ");
        let place = place.clone();
        self.mistakes.push(Mistake { place, text });
    }

    /// Checks the values that must agree with each other.
    fn check_agreement(&mut self, config: &Config) {
        let http = &config.http;
        let metrics = config.metrics.listen;
        for (key, listen) in [("http.listen", Some(http.listen)), ("metrics.listen", metrics)] {
            // Without names to compare the `Host` header with, any web page could reach the listener by DNS
            // rebinding.
            if let Some(listen) = listen
                && http.allowed_hosts.is_empty()
                && !listen.ip().to_canonical().is_loopback()
            {
                let text = format!(
                    "{key} is {listen}, which other machines may reach, but http.allowed_hosts is empty: \
                     set http.allowed_hosts to the names clients use, or listen on 127.0.0.1"
                );
                self.note_disagreement(&[key, "http.allowed_hosts"], &text);
            }
            if let Some(listen) = listen
                && !listen.ip().to_canonical().is_loopback()
                && !config.auth.has_credentials()
                && config.auth.anonymous != Anonymous::All
            {
                let text = format!(
                    "{key} is {listen}, which other machines may reach, but nobody has credentials: set [[auth.token]], \
                     [[auth.issuer]] or [[auth.certificate]], or auth.anonymous = \"all\", or listen on 127.0.0.1"
                );
                self.note_disagreement(&[key, "auth.anonymous"], &text);
            }
        }
        self.check_page(config);
        self.check_issuers(&config.auth);
        self.check_tls(&config.tls);
        self.check_certificates(config);
        self.check_cluster(config);
        self.check_gateway(config);
        let workspace = &config.workspace;
        if workspace.debounce > workspace.debounce_max {
            let [least, most] = [workspace.debounce, workspace.debounce_max].map(time::text);
            let text = format!(
                "workspace.debounce_max is {most}, shorter than workspace.debounce, which is {least}: \
                 raise the first or lower the second"
            );
            self.note_disagreement(&["workspace.debounce", "workspace.debounce_max"], &text);
        }
        // Two sources under one scheme could claim one URI.
        let scheme = &workspace.scheme;
        let mut names = config.collection.iter().map(|collection| &collection.name);
        if names.any(|name| name == scheme) {
            let text = format!(
                "collection.name and workspace.scheme are both \"{scheme}\": choose another for one of them"
            );
            self.note_disagreement(&["workspace.scheme"], &text);
        }
    }

    /// Checks that a page which other machines can reach is for callers with credentials.
    fn check_page(&mut self, config: &Config) {
        let listen = config.http.listen;
        if config.page.enabled == PageEnabled::Yes
            && !listen.ip().to_canonical().is_loopback()
            && !config.auth.has_credentials()
        {
            let text = format!(
                "page.enabled is true and http.listen is {listen}, which other machines may reach, but nobody has \
                 credentials: set [[auth.token]], [[auth.issuer]] or [[auth.certificate]], or page.enabled = \
                 \"loopback\", or listen on 127.0.0.1"
            );
            self.note_disagreement(&["page.enabled", "http.listen"], &text);
        }
    }

    /// Checks that no part of TLS is set without the part that it needs.
    fn check_tls(&mut self, tls: &TlsConfig) {
        for (key, value, needed, by) in [
            ("tls.certificate", &tls.certificate, "tls.key", &tls.key),
            ("tls.key", &tls.key, "tls.certificate", &tls.certificate),
            (
                "tls.client_ca",
                &tls.client_ca,
                "tls.certificate",
                &tls.certificate,
            ),
            ("tls.client_crl", &tls.client_crl, "tls.client_ca", &tls.client_ca),
        ] {
            if value.is_some() && by.is_none() {
                let text = format!("{key} is set, but {needed} is not: set {needed} too, or remove {key}");
                self.note_disagreement(&[key, needed], &text);
            }
        }
    }

    /// Checks that a certificate which is to give roles can be presented.
    fn check_certificates(&mut self, config: &Config) {
        if !config.auth.certificate.is_empty() && config.tls.client_ca.is_none() {
            let text = "[[auth.certificate]] is set, but tls.client_ca is not, so no client can present one: set \
                        tls.client_ca to the authorities of the clients, or remove it";
            self.note_disagreement(&["auth.certificate", "tls.client_ca"], text);
        }
    }

    fn check_issuers(&mut self, auth: &AuthConfig) {
        if !auth.issuer.is_empty() && auth.resource.is_none() {
            let text = "auth.issuer is set, but auth.resource is not: set it to the address of /mcp as clients know it, \
                        which tokens must be meant for";
            self.note_disagreement(&["auth.issuer", "auth.resource"], text);
        }
        let introspecting = auth.issuer.iter().filter(|issuer| issuer.introspect.is_some());
        if introspecting.count() > 1 {
            let text = "several [[auth.issuer]] have introspect, but an opaque token does not say whose it is, and must \
                        not be shown to others: leave it with one";
            self.note_disagreement(&["auth.issuer.introspect"], text);
        }
        for (index, issuer) in auth.issuer.iter().enumerate() {
            let url = &issuer.url;
            if auth.issuer[..index].iter().any(|other| other.url == *url) {
                let text = format!("two [[auth.issuer]] have the url \"{url}\": remove one");
                self.note_disagreement(&["auth.issuer.url"], &text);
            }
            for (key, address) in [("auth.issuer.url", url), ("auth.issuer.jwks", &issuer.jwks)] {
                if address.contains("://") && !hosts::is_https_or_here(address) {
                    let text = format!(
                        "{key} is \"{address}\", which is neither https nor on this machine, so others could make \
                         tokens: use https"
                    );
                    self.note_disagreement(&[key], &text);
                }
            }
        }
    }

    /// Notes a mistake between values, unless one of them was refused itself and replaced by its default.
    fn note_disagreement(&mut self, keys: &[&str], text: &str) {
        if !keys.iter().any(|key| self.refused.contains(key)) {
            self.note(&Place::Together, text);
        }
    }
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
