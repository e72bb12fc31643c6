//! The mistakes of a configuration, in words that name the key, the place and the remedy.

use std::fmt;
use std::path::PathBuf;

/// Every reason why a configuration cannot be used; `Display` has one line for each. Nothing has been bound
/// or opened when it is returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// At least one: those in the file by line, then the environment, then the command line.
    pub mistakes: Vec<Mistake>,
}

/// One mistake; `Display` tells it in one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{text}")]
pub struct Mistake {
    /// Place of the key or value.
    pub place: Place,
    /// The key, the value, the place and the remedy.
    pub text: String,
}

/// The place at which a key or a value was written. Ordered as a reader corrects them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// On the command line, or in other overrides of the caller.
    CommandLine,
    /// Between several values, which may come from several places.
    Together,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path, line, .. } => write!(f, "in {} (line {line})", path.display()),
            Place::Variable(name) => write!(f, "in the environment variable {name}"),
            Place::CommandLine => f.write_str("on the command line"),
            Place::Together => f.write_str("in the configuration"),
        }
    }
}
