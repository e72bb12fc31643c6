//! The file of saved contexts: `tidings/contexts.json` in the user's configuration folder.
//!
//! It is replaced as a whole, so a reader sees all of it or its predecessor. Of two commands that save at the
//! same time, the later one wins.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::CliError;
use crate::cli::credentials::CredentialsArgs;
use crate::small_file;

/// The limit on the size of the file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// All saved contexts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct Contexts {
    /// The name of the one that commands use unless they name another server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) current: Option<String>,
    #[serde(default)]
    pub(super) context: BTreeMap<String, SavedContext>,
}

/// One saved context.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::cli) struct SavedContext {
    pub(in crate::cli) url: String,
    #[serde(flatten)]
    pub(in crate::cli) credentials: CredentialsArgs,
}

impl Contexts {
    /// Reads the file; without one there is no context.
    pub(in crate::cli) fn load() -> Result<Contexts, CliError> {
        match path() {
            Some(path) => Contexts::load_from(&path),
            None => Ok(Contexts::default()),
        }
    }

    /// Replaces the file.
    pub(super) fn save(&self) -> Result<(), CliError> {
        let path = path().ok_or_else(|| {
            let text = "there is no folder for contexts: set XDG_CONFIG_HOME or HOME";
            CliError::Failed(text.to_owned())
        })?;
        self.save_to(&path)
    }

    /// Returns a context.
    pub(super) fn get(&self, name: &str) -> Result<&SavedContext, CliError> {
        self.context.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.context.keys().map(String::as_str).collect();
            let known = match names.as_slice() {
                [] => "none is saved; save one with `tidings context save NAME URL`".to_owned(),
                names => format!("saved are {}", names.join(", ")),
            };
            CliError::Settings(format!("there is no saved context {name:?}: {known}"))
        })
    }

    /// Takes a context out.
    pub(in crate::cli) fn take(&mut self, name: &str) -> Result<SavedContext, CliError> {
        self.get(name)?;
        Ok(self.context.remove(name).expect("it was found"))
    }

    pub(in crate::cli) fn parse(text: &str) -> Result<Contexts, String> {
        // The place alone: the message of the library may repeat a token.
        serde_json::from_str(text).map_err(|error| {
            format!(
                "line {}, column {}: it is not the JSON of saved contexts",
                error.line(),
                error.column()
            )
        })
    }

    fn load_from(path: &Path) -> Result<Contexts, CliError> {
        let wrong = |reason: &str| {
            let path = path.display();
            CliError::Settings(format!("cannot use the saved contexts in {path}: {reason}"))
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => return Err(wrong(&error.to_string())),
        };
        // Of the open file, so that it cannot be exchanged between the look and the read.
        let metadata = file.metadata().map_err(|error| wrong(&error.to_string()))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(wrong("others than its owner have rights to it; use chmod 600"));
        }
        let text = small_file::text(file, FILE_BYTES_MAX).map_err(|error| wrong(&error.to_string()))?;
        Contexts::parse(&text).map_err(|reason| wrong(&reason))
    }

    fn save_to(&self, path: &Path) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(self).map_err(CliError::failed)? + "\n";
        replace(path, &text).map_err(|error| {
            let path = path.display();
            CliError::Failed(format!("cannot save the contexts in {path}: {error}"))
        })
    }
}

/// Replaces a file and its content at once.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    // Made with the mode 0600, and removed when anything below fails.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    // Otherwise a crash could leave an empty file in the place of the old one.
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Returns the path of the file, by the XDG base directory specification.
fn path() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = match folder {
        // The specification demands that a relative path is ignored.
        Some(folder) if folder.is_absolute() => folder,
        _ => std::env::home_dir()
            .filter(|home| home.is_absolute())?
            .join(".config"),
    };
    Some(folder.join("tidings").join("contexts.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Contexts {
        let text = r#"{"context": {"a": {"url": "http://h", "token": "s3cr3t", "headers": ["X: y"]}}}"#;
        Contexts::parse(text).unwrap()
    }

    #[test]
    fn saved_contexts_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new").join("contexts.json");
        assert!(Contexts::load_from(&path).unwrap().context.is_empty());
        one().save_to(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let read = Contexts::load_from(&path).unwrap();
        assert_eq!(
            read.get("a").unwrap().credentials,
            one().get("a").unwrap().credentials
        );
        assert_eq!(read.get("a").unwrap().url, "http://h");
        // No temporary file is left.
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn file_of_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("contexts.json");
        one().save_to(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = Contexts::load_from(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn errors_and_debug_hide_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("contexts.json");
        one().save_to(&path).unwrap();
        std::fs::write(&path, r#"{"context": {"a": {"url": "h", "headers": "s3cr3t"}}}"#).unwrap();
        let error = Contexts::load_from(&path).unwrap_err();
        assert_eq!(error.exit(), crate::cli::Exit::Config);
        assert!(!error.to_string().contains("s3cr3t"), "{error}");
        assert!(!format!("{:?}", one()).contains("s3cr3t"));
    }
}
