//! `DIR/register`: the executable that prints further registrations, run again and again.
//!
//! Owns: its timer, its limits and what it printed last. Never publishes: each run's outcome goes to the task over a
//! channel that holds one, so a run waits until the one before was dealt with. Rung by the task when the file
//! changes.

mod document;

use super::process::{Broken, Launch};
use super::program::{self, Unfit};
use crate::config::{RegisterConfig, size, time};
use crate::metrics::{self, Limit};
pub(super) use document::Document;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// Bytes that it may print.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// What came of a run.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It printed this.
    Printed(Arc<Document>),
    /// There is no such file.
    Absent,
    /// It failed, and why.
    Failed(String),
}

/// The executable.
#[derive(Debug)]
pub(super) struct Register {
    dir: PathBuf,
    config: RegisterConfig,
    last: Option<(Value, Arc<Document>)>,
}

impl Register {
    /// `register` of the folder `dir`.
    pub(super) fn new(dir: PathBuf, config: &RegisterConfig) -> Register {
        Register {
            dir,
            config: config.clone(),
            last: None,
        }
    }

    /// Runs it at every interval, and when it is rung for; ends with the task.
    pub(super) async fn repeat(mut self, rung: Arc<Notify>, outcomes: mpsc::Sender<Outcome>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.config.refresh) => {}
                () = rung.notified() => {}
            }
            let outcome = self.run().await;
            if outcomes.send(outcome).await.is_err() {
                return;
            }
        }
    }

    /// Runs it once.
    pub(super) async fn run(&mut self) -> Outcome {
        let (home, path) = (self.dir.clone(), self.dir.join("register"));
        let program = path.clone();
        match tokio::task::spawn_blocking(move || program::check(&home, &path)).await {
            Ok(Ok(())) => {}
            Ok(Err(Unfit::Absent)) => return Outcome::Absent,
            Ok(Err(unfit)) => return Outcome::Failed(format!("it {unfit}")),
            Err(_ending) => return Outcome::Failed("the service is stopping".to_owned()),
        }
        let launch = Launch {
            program,
            arguments: Vec::new(),
            dir: self.dir.clone(),
            input: Vec::new(),
            timeout: self.config.timeout,
            output_bytes_max: OUTPUT_BYTES_MAX,
        };
        let finished = match launch.run().await {
            Ok(finished) if finished.status.success() => finished,
            Ok(finished) => return Outcome::Failed(finished.failure()),
            Err(broken) => return Outcome::Failed(self.explain(&broken)),
        };
        self.read(&finished.stdout)
            .map_or_else(Outcome::Failed, Outcome::Printed)
    }

    fn read(&mut self, printed: &[u8]) -> Result<Arc<Document>, String> {
        let value: Value =
            serde_json::from_slice(printed).map_err(|error| format!("it printed invalid JSON: {error}"))?;
        if let Some((_, document)) = self.last.as_ref().filter(|(last, _)| *last == value) {
            return Ok(document.clone());
        }
        let document = Arc::new(Document::read(&value, &self.dir)?);
        self.last = Some((value, document.clone()));
        Ok(document)
    }

    fn explain(&self, broken: &Broken) -> String {
        match broken {
            Broken::NotStarted(error) => format!("it could not be started: {error}"),
            Broken::Failed(error) => format!("the system failed: {error}"),
            Broken::TimedOut => {
                metrics::limit_reached(Limit::RegisterTimeout);
                format!(
                    "it took longer than {} (register.timeout)",
                    time::text(self.config.timeout)
                )
            }
            Broken::TooMuchOutput => format!("it printed more than {}", size::text(OUTPUT_BYTES_MAX)),
        }
    }
}
