//! A token in a file, read again when the file changes.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use http::header::HeaderValue;

use super::{Challenge, CredentialsError, TokenFuture, TokenSource, bearer};
use crate::file_watch::FileStamp;
use crate::small_file;

/// The limit on the size of a token file, in bytes.
const BYTES_MAX: u64 = 64 * 1024;

/// The token that was read last, and the state of its file then; none for a pipe, which can be read once.
struct Held {
    value: HeaderValue,
    stamp: Option<FileStamp>,
}

pub(super) struct TokenFile {
    path: PathBuf,
    held: Mutex<Option<Held>>,
}

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> TokenFile {
        TokenFile {
            path,
            held: Mutex::new(None),
        }
    }

    /// Returns the token. The file is read if it changed or `anew` is true.
    ///
    /// A token that was read before is kept while the file cannot be read, since it may be replaced just now.
    fn current(&self, anew: bool) -> Result<HeaderValue, CredentialsError> {
        // The state is replaced as a whole, so a panic elsewhere leaves a usable one.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.read(held.as_ref(), anew), held.as_ref()) {
            (Ok(None), Some(before)) => Ok(before.value.clone()),
            (Ok(Some(new)), _) => Ok(held.insert(new).value.clone()),
            (Ok(None), None) => Err(self.error("it holds nothing")),
            (Err(reason), Some(before)) => {
                let path = self.path.display();
                tracing::warn!(%path, reason, "the token file cannot be read; the token before is used");
                Ok(before.value.clone())
            }
            (Err(reason), None) => Err(self.error(&reason)),
        }
    }

    /// Reads the file; returns none if it is as it was.
    fn read(&self, held: Option<&Held>, anew: bool) -> Result<Option<Held>, String> {
        let metadata = std::fs::metadata(&self.path).map_err(|error| error.to_string())?;
        if metadata.is_dir() {
            return Err("it is a folder; name a file with the token alone".to_owned());
        }
        let stamp = metadata.is_file().then(|| FileStamp::of(&metadata));
        if let Some(held) = held
            && (held.stamp.is_none() || (!anew && held.stamp == stamp))
        {
            return Ok(None);
        }
        let text = small_file::read_text(&self.path, BYTES_MAX).map_err(|error| error.to_string())?;
        let value = bearer(&text)?;
        Ok(Some(Held { value, stamp }))
    }

    fn error(&self, reason: &str) -> CredentialsError {
        CredentialsError::File {
            kind: "token",
            path: self.path.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// Reads the secret in a file, without the space around it.
pub(crate) fn read_secret(kind: &'static str, path: &Path) -> Result<String, CredentialsError> {
    let error = |reason: String| CredentialsError::File {
        kind,
        path: path.to_owned(),
        reason,
    };
    let text = small_file::read_text(path, BYTES_MAX).map_err(|fault| error(fault.to_string()))?;
    match text.trim() {
        "" => Err(error("it is empty".to_owned())),
        secret => Ok(secret.to_owned()),
    }
}

impl TokenSource for TokenFile {
    fn authorization(&self) -> TokenFuture<'_, Option<HeaderValue>> {
        Box::pin(async { self.current(false).map(Some) })
    }

    fn renew<'a>(
        &'a self,
        rejected: Option<&'a HeaderValue>,
        challenge: &'a Challenge,
    ) -> TokenFuture<'a, bool> {
        Box::pin(async move {
            // A token that lacks a right is not replaced by waiting for another one.
            let value = self.current(challenge.status == 401)?;
            Ok(Some(&value) != rejected)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &HeaderValue) -> &str {
        value.to_str().unwrap()
    }

    #[test]
    fn changed_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "first\n").unwrap();
        let file = TokenFile::new(path.clone());
        assert_eq!(text(&file.current(false).unwrap()), "Bearer first");
        std::fs::write(&path, " second-one ").unwrap();
        assert_eq!(text(&file.current(false).unwrap()), "Bearer second-one");
        // Gone or half written: the token before is used.
        std::fs::write(&path, "").unwrap();
        assert_eq!(text(&file.current(false).unwrap()), "Bearer second-one");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text(&file.current(true).unwrap()), "Bearer second-one");
    }

    #[tokio::test]
    async fn refusal_reads_the_file_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "aaaaa").unwrap();
        let file = TokenFile::new(path.clone());
        let first = file.authorization().await.unwrap().unwrap();
        let refused = Challenge::parse(401, None);
        assert!(!file.renew(Some(&first), &refused).await.unwrap());
        // A change that the facts of the file do not show.
        std::fs::write(&path, "bbbbb").unwrap();
        file.held.lock().unwrap().as_mut().unwrap().stamp = FileStamp::at(&path);
        assert_eq!(file.authorization().await.unwrap().unwrap(), first);
        assert!(file.renew(Some(&first), &refused).await.unwrap());
        assert_eq!(
            text(&file.authorization().await.unwrap().unwrap()),
            "Bearer bbbbb"
        );
    }

    #[test]
    fn unusable_file_is_named_without_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for (content, expected) in [
            (None, "No such file"),
            (Some(String::new()), "it is empty"),
            (Some("two s3cr3ts".to_owned()), "has a space"),
            (Some("x".repeat(70_000)), "more than 65536 bytes"),
        ] {
            if let Some(content) = &content {
                std::fs::write(&path, content).unwrap();
            }
            let error = TokenFile::new(path.clone())
                .current(false)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("cannot use the token file "), "{error}");
            assert!(error.contains(expected) && !error.contains("s3cr3ts"), "{error}");
        }
        let folder = TokenFile::new(dir.path().to_owned()).current(false).unwrap_err();
        assert!(folder.to_string().contains("it is a folder"), "{folder}");
    }
}
