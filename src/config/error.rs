//! What can be wrong with a configuration, in words that name the key, the place and the remedy.
//!
//! Made by `file`, `environment` and `written`; read by the person who starts the service. It decides nothing.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a configuration cannot be used. Nothing has been bound or opened when it is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no TOML, or names a key twice.
    #[error("{} is not valid TOML (line {line}, column {column}): {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault in characters, from 1.
        column: usize,
        /// What the parser expected.
        message: String,
    },
    /// The file has a key that does not exist.
    #[error("unknown key \"{key}\" {place}: {hint}")]
    UnknownKey {
        /// Dotted path as written.
        key: String,
        /// Where it stands.
        place: Place,
        /// The nearest key, or those of the section.
        hint: String,
    },
    /// The environment has a variable of ours that does not exist.
    #[error("unknown environment variable {name}: {hint}")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The nearest variable, or how they are formed.
        hint: String,
    },
    /// A table of a list lacks a key that it must have.
    #[error("\"{key}\" is missing {place}: expected {expected}")]
    MissingKey {
        /// Dotted path.
        key: String,
        /// Where its table stands.
        place: Place,
        /// Type and range.
        expected: String,
    },
    /// A table of a list has none or several of keys that exclude each other.
    #[error("[{table}] {place} needs exactly one of {keys}")]
    OneOf {
        /// Dotted path of the table.
        table: String,
        /// Where it stands.
        place: Place,
        /// The keys.
        keys: String,
    },
    /// A name that must be used once is used twice, or reserved.
    #[error("\"{key}\" cannot be \"{value}\" {place}: the name is taken, choose another")]
    Taken {
        /// Dotted path.
        key: String,
        /// The name.
        value: String,
        /// Where it stands.
        place: Place,
    },
    /// A collection and the folder would share a scheme.
    #[error("collection.name and workspace.scheme are both \"{scheme}\": choose another for one of them")]
    SchemeShared {
        /// The scheme.
        scheme: String,
    },
    /// Two sinks would write to one file.
    #[error("two sinks write to {}: choose another file for one of them", file.display())]
    FileShared {
        /// The file.
        file: PathBuf,
    },
    /// A value has the wrong type or is out of range.
    #[error("invalid value {value} for \"{key}\" {place}: expected {expected}")]
    Value {
        /// Dotted path.
        key: String,
        /// The value as written, cut when long.
        value: String,
        /// Where it stands.
        place: Place,
        /// Type and range.
        expected: String,
    },
    /// Other machines could reach the service, but nobody said under which names.
    #[error(
        "{key} is {listen}, which other machines may reach, but http.allowed_hosts is empty: \
         set http.allowed_hosts to the names clients use, or listen on 127.0.0.1"
    )]
    HostsMissing {
        /// The key that sets it.
        key: &'static str,
        /// The address.
        listen: SocketAddr,
    },
    /// The longest wait of the debounce is shorter than the debounce.
    #[error(
        "workspace.debounce_max is {longest}, shorter than workspace.debounce, which is {quiet}: \
         raise the first or lower the second"
    )]
    DebounceOrder {
        /// `workspace.debounce_max` as written in a file.
        longest: String,
        /// `workspace.debounce` as written in a file.
        quiet: String,
    },
}

/// Where a key or a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// In the file.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
    /// In an environment variable.
    Variable(String),
    /// On the command line, or wherever the caller's overrides come from.
    CommandLine,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, .. } => write!(f, "in {} (line {line})", path.display()),
            Self::Variable(name) => write!(f, "in the environment variable {name}"),
            Self::CommandLine => f.write_str("on the command line"),
        }
    }
}
