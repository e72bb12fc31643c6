//! A layer between the service and its disk, which records every write and sync, fails or delays them, and
//! stops the clock. It is a shared library, compiled from C beside this file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The source of the layer. Its header describes the format of the log.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/durability/disk_layer.c");

/// The bytes of `struct control` of the layer.
const CONTROL_BYTES: [u8; 16] = [0; 16];

/// No space left on the device.
pub(super) const ENOSPC: i32 = 28;
/// An input or output error.
pub(super) const EIO: i32 = 5;

/// A control of the layer, and the place of its number in the shared file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// Milliseconds that each sync waits before it is done.
    SyncDelay = 0,
    /// The error number of each sync.
    SyncError = 4,
    /// The error number of each write, and of each new or growing file.
    WriteError = 8,
    /// The second since 1970 at which the clock of the wall stands.
    ClockSecond = 12,
}

/// The layer for one folder; the processes below it are given its variables.
#[derive(Debug)]
pub(super) struct DiskLayer {
    control: File,
    variables: Vec<(&'static str, PathBuf)>,
}

impl DiskLayer {
    /// Lays the layer over the folder `root`, with its files in `folder`.
    pub(super) fn over(root: &Path, folder: &Path) -> DiskLayer {
        let file = folder.join("disk.control");
        fs::write(&file, CONTROL_BYTES).unwrap();
        let control = File::options().write(true).open(&file).unwrap();
        let variables = vec![
            ("LD_PRELOAD", library().to_owned()),
            ("DISK_ROOT", root.to_owned()),
            ("DISK_CONTROL", file),
        ];
        DiskLayer { control, variables }
    }

    /// Records every change of a file in `log`.
    pub(super) fn recording(mut self, log: &Path) -> DiskLayer {
        File::create(log).unwrap();
        self.variables.push(("DISK_LOG", log.to_owned()));
        self
    }

    /// Returns the variables of the environment that a process needs.
    pub(super) fn variables(&self) -> &[(&'static str, PathBuf)] {
        &self.variables
    }

    /// Sets a control, at once and for every process; 0 turns it off.
    pub(super) fn set(&self, control: Control, number: i32) {
        let written = self.control.write_all_at(&number.to_ne_bytes(), control as u64);
        written.unwrap();
    }
}

/// Compiles the layer, once in each run of the tests.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let library = folder.join("disk_layer.so");
        // Another run of the tests may use the library, so it is replaced as a whole.
        let unfinished = folder.join(format!("disk_layer.{}.so", std::process::id()));
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-o"])
            .arg(&unfinished)
            .args([SOURCE, "-ldl", "-pthread"])
            .output();
        let compiled = compiled.expect("a C compiler, which Rust needs to link too");
        let text = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{text}");
        fs::rename(&unfinished, &library).unwrap();
        library
    })
}
