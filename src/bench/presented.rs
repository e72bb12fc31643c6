//! The credentials that the load presents, kept fresh while it runs.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::bench::BenchError;
use crate::credentials::{Credentials, CredentialsError};
use crate::wire::header_lines::HeaderLines;

/// The time after which a token is looked at again.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// The headers of credentials, and the thread that renews them; it ends with this value.
pub(crate) struct Presented {
    lines: HeaderLines,
    thread: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Presented {
    /// Reads the credentials.
    ///
    /// # Errors
    /// [`BenchError::Failed`] for unusable credentials.
    pub(crate) fn start(credentials: &Credentials) -> Result<Presented, BenchError> {
        let lines = HeaderLines::default();
        if *credentials == Credentials::default() {
            return Ok(Presented { lines, thread: None });
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let prepared = runtime.block_on(credentials.prepare());
        prepared.map_err(|error| BenchError::Failed(error.to_string()))?;
        set(&runtime, credentials, &lines).map_err(|error| BenchError::Failed(error.to_string()))?;
        let thread = match credentials.may_change() {
            true => Some(renew(runtime, credentials.clone(), lines.clone())?),
            false => None,
        };
        Ok(Presented { lines, thread })
    }

    /// Returns the headers, which change when the token does.
    pub(crate) fn lines(&self) -> HeaderLines {
        self.lines.clone()
    }
}

impl Drop for Presented {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // A thread that panicked has nothing left to say.
            thread.join().ok();
        }
    }
}

fn renew(
    runtime: Runtime,
    credentials: Credentials,
    lines: HeaderLines,
) -> Result<(SyncSender<()>, JoinHandle<()>), BenchError> {
    let (stop, stopped) = sync_channel(0);
    let thread = std::thread::Builder::new().name("bench-credentials".to_owned());
    let thread = thread.spawn(move || {
        while stopped.recv_timeout(REFRESH_EVERY) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = set(&runtime, &credentials, &lines) {
                tracing::warn!(%error, "the credentials are not renewed");
            }
        }
    })?;
    Ok((stop, thread))
}

fn set(runtime: &Runtime, credentials: &Credentials, lines: &HeaderLines) -> Result<(), CredentialsError> {
    let headers = runtime.block_on(credentials.headers())?;
    lines.set(
        headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes())),
    );
    Ok(())
}
