//! Opening a file without ever waiting for somebody else.
//!
//! Owns: how files are opened. Never: reads one. Called by the sources on blocking threads.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file for reading. A pipe in its place is opened at once, whether or not anybody writes to it, so the
/// caller asks what was opened.
pub(in crate::source) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    ))]
    {
        use std::os::unix::fs::OpenOptionsExt;
        /// Makes the opening of a pipe without a writer return at once; files ignore it.
        const O_NONBLOCK: i32 = 0o4000;
        options.custom_flags(O_NONBLOCK);
    }
    options.open(path)
}
