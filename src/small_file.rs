//! Files of a bounded size, read as a whole: certificates, tokens, lists that people write.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file of at most `bytes_max` bytes.
///
/// # Errors
/// It cannot be read, or it has more bytes.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    rest(File::open(path)?, bytes_max)
}

/// Reads a text of at most `bytes_max` bytes.
///
/// # Errors
/// As [`read`], and if it is not UTF-8.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text(File::open(path)?, bytes_max)
}

/// Reads the text that an open file has from its place on.
///
/// # Errors
/// As [`read_text`].
pub(crate) fn text(source: impl Read, bytes_max: u64) -> io::Result<String> {
    let text = String::from_utf8(rest(source, bytes_max)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

fn rest(source: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Its size before would say little: some files have none, and others grow.
    // One byte more than allowed tells a file at the limit from a longer one.
    source.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let text = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_up_to_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "four");
        assert_eq!(
            read(&path, 3).unwrap_err().to_string(),
            "it has more than 3 bytes"
        );
        // A file without an end and without a size.
        assert!(read(Path::new("/dev/zero"), 1_000).is_err());
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 3).unwrap_err().to_string(), "it is not UTF-8");
        assert_eq!(read(&path, 3).unwrap(), [0xff]);
    }
}
