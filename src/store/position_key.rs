//! The key by which the ids of events are encrypted, kept so that ids stay good after a restart.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use super::body_files::sync_folder;
use super::private_files;

/// The name of the file.
pub(super) const KEY_FILE: &str = "positions.key";
/// The file that takes its name once it is complete.
pub(super) const NEW_KEY_FILE: &str = "positions.key.new";

const KEY_BYTES: usize = 32;

/// Returns the key in the folder of a store, and makes one if there is none.
///
/// # Errors
/// The file cannot be read or written, or is no key.
pub fn position_key(dir: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let file = dir.join(KEY_FILE);
    match fs::read(&file) {
        Ok(bytes) => bytes.try_into().map_err(|_| {
            let text = format!(
                "{} is no key of {KEY_BYTES} bytes; remove it to get a new one",
                file.display()
            );
            io::Error::new(ErrorKind::InvalidData, text)
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut key = [0; KEY_BYTES];
            getrandom::fill(&mut key).map_err(io::Error::other)?;
            // Renamed when it is whole, so that a crash leaves no half of a key.
            let new = dir.join(NEW_KEY_FILE);
            let mut written = private_files::create(&new)?;
            written.write_all(&key)?;
            written.sync_all()?;
            fs::rename(&new, &file)?;
            // An id that was given by a key which the disk lost would be one of another history.
            sync_folder(dir)?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let key = position_key(folder.path()).unwrap();
        assert_eq!(position_key(folder.path()).unwrap(), key);
        assert_ne!(key, [0; KEY_BYTES]);
        let file = folder.path().join(KEY_FILE);
        assert!(!folder.path().join(NEW_KEY_FILE).exists());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::write(&file, "short").unwrap();
        let error = position_key(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("positions.key") && error.contains("remove"),
            "{error}"
        );
    }
}
