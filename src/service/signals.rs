//! The signals of the service: the end, the reload of the configuration, and the size limit of files.

use anyhow::Context as _;
use nix::sys::signal::Signal::SIGXFSZ;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask the service to stop.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> anyhow::Result<Signals> {
        outlive_file_size_limit()?;
        let terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
        let interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
        Ok(Signals { terminate, interrupt })
    }

    /// Waits for one of them and returns its name.
    pub(super) async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Lets a write beyond the size limit of files fail, where the default action of SIGXFSZ would end the
/// process without a word.
fn outlive_file_size_limit() -> anyhow::Result<()> {
    let exceeded = signal(SignalKind::from_raw(SIGXFSZ as i32)).context("SIGXFSZ cannot be handled")?;
    // The handler stays for the life of the process; the failed write says all that there is to know.
    drop(exceeded);
    Ok(())
}

pub(super) fn hangup() -> anyhow::Result<Signal> {
    signal(SignalKind::hangup()).context("SIGHUP cannot be handled")
}
