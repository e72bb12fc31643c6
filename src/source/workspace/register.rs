//! `DIR/register`: the executable that prints further registrations, run again and again.

use super::executable::{self, NotRunnable};
use super::launcher::ProcessLimits;
use super::process::{Launch, ProcessError};
use super::register_document::RegisterDocument;
use crate::config::RegisterConfig;
use crate::metrics::{self, Limit};
use crate::units::{size, time};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// Most bytes that it may print.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// The outcome of a run.
#[derive(Debug)]
pub(super) enum RegisterOutcome {
    /// It printed this document.
    Printed(Arc<RegisterDocument>),
    /// There is no such file.
    Absent,
    /// It failed, for this reason.
    Failed(String),
}

/// The executable.
#[derive(Debug)]
pub(super) struct Register {
    dir: PathBuf,
    config: RegisterConfig,
    limits: ProcessLimits,
    /// The last document, so that the same one is not read again.
    last: Option<(Value, Arc<RegisterDocument>)>,
}

impl Register {
    /// Returns the executable of the folder `dir`.
    pub(super) fn new(dir: PathBuf, config: &RegisterConfig, limits: ProcessLimits) -> Register {
        Register {
            dir,
            config: config.clone(),
            limits,
            last: None,
        }
    }

    /// Runs it at every interval and when `changed` is notified, until the receiver of the outcomes is gone.
    ///
    /// The channel holds one outcome, so a run waits until the one before was published.
    pub(super) async fn repeat(mut self, changed: Arc<Notify>, outcomes: mpsc::Sender<RegisterOutcome>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.config.refresh) => {}
                () = changed.notified() => {}
            }
            let outcome = self.run().await;
            if outcomes.send(outcome).await.is_err() {
                return;
            }
        }
    }

    /// Runs it once.
    pub(super) async fn run(&mut self) -> RegisterOutcome {
        let home = self.dir.clone();
        let program = self.dir.join("register");
        let path = program.clone();
        // Checked before every run, since the file may have been exchanged.
        match tokio::task::spawn_blocking(move || executable::check(&home, &path)).await {
            Ok(Ok(())) => {}
            Ok(Err(NotRunnable::Absent)) => return RegisterOutcome::Absent,
            Ok(Err(reason)) => return RegisterOutcome::Failed(format!("it {reason}")),
            Err(_cancelled) => return RegisterOutcome::Failed("the service is stopping".to_owned()),
        }
        let launch = Launch {
            program,
            arguments: Vec::new(),
            dir: self.dir.clone(),
            input: Vec::new(),
            timeout: self.config.timeout,
            output_bytes_max: OUTPUT_BYTES_MAX,
            limits: self.limits,
        };
        let printed = match launch.run().await {
            Ok(output) if output.status.success() => self.read(&output.stdout),
            Ok(output) => Err(output.failure()),
            Err(error) => Err(self.explain(&error)),
        };
        match printed {
            Ok(document) => RegisterOutcome::Printed(document),
            Err(reason) => RegisterOutcome::Failed(reason),
        }
    }

    fn read(&mut self, printed: &[u8]) -> Result<Arc<RegisterDocument>, String> {
        let value: Value =
            serde_json::from_slice(printed).map_err(|error| format!("it printed invalid JSON: {error}"))?;
        if let Some((last, document)) = &self.last
            && *last == value
        {
            return Ok(document.clone());
        }
        let document = Arc::new(RegisterDocument::read(&value, &self.dir)?);
        self.last = Some((value, document.clone()));
        Ok(document)
    }

    fn explain(&self, error: &ProcessError) -> String {
        match error {
            ProcessError::NotStarted(error) => format!("it could not be started: {error}"),
            ProcessError::Failed(error) => format!("the system failed: {error}"),
            ProcessError::TimedOut => {
                metrics::limit_reached(Limit::RegisterTimeout);
                let timeout = time::text(self.config.timeout);
                format!("it took longer than {timeout} (register.timeout)")
            }
            ProcessError::TooMuchOutput => {
                format!("it printed more than {}", size::text(OUTPUT_BYTES_MAX))
            }
        }
    }
}
