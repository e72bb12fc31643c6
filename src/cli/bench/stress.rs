//! `tidings bench stress`: storms against a service of this program's own, repeatable by a seed.
//!
//! Owns the command line, and which exit code a verdict becomes. It never speaks to a server itself;
//! [`crate::bench`] does.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;

use super::super::{CliError, Exit, block_on};
use crate::bench::{StressReport, StressSettings, stress};

/// The arguments of `tidings bench stress`.
#[derive(Debug, Args)]
pub(super) struct Stress {
    /// Makes the storm; the same seed makes the same one [default: chosen by the clock]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// No round begins after this long; two are always run
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = super::time)]
    time_limit: Duration,
    /// Clients at once
    #[arg(long, value_name = "N", default_value_t = 60)]
    clients: usize,
    /// Resources that change
    #[arg(long, value_name = "K", default_value_t = 24)]
    resources: usize,
    /// Steps of one round
    #[arg(long, value_name = "N", default_value_t = 1_500)]
    steps: usize,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
}

impl Stress {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let settings = StressSettings {
            seed: self.seed.unwrap_or_else(seed_of_the_clock),
            time_limit: self.time_limit,
            clients: self.clients,
            resources: self.resources,
            steps: self.steps,
        };
        let stop = Arc::new(AtomicBool::new(false));
        super::stop_when_interrupted(stop.clone());
        let program = std::env::current_exe()?;
        let verdict = block_on(async {
            stress(&program, &settings, &stop)
                .await
                .map_err(|error| super::failure("bench stress", error))
        })?;
        self.show(&verdict)
    }

    fn show(&self, verdict: &StressReport) -> Result<Exit, CliError> {
        let text = match self.json {
            true => {
                serde_json::to_string_pretty(verdict).map_err(|error| CliError::Failed(error.to_string()))?
                    + "\n"
            }
            false => words(verdict),
        };
        super::print(&text)?;
        if verdict.faults.is_empty() {
            return Ok(Exit::Ok);
        }
        Err(CliError::Failed(format!(
            "the service did not keep its promises ({} faults); repeat the storm with --seed {}",
            verdict.faults.len(),
            verdict.seed
        )))
    }
}

fn words(verdict: &StressReport) -> String {
    let [first, last] = verdict.resident_kib.map(|kib| kib / 1024);
    let mut text = format!(
        "seed {}: {} rounds, {} steps, {} connections, {} writes, {} notices read, {} webhook deliveries; \
         {first} MiB after the first round, {last} MiB after the last\n",
        verdict.seed,
        verdict.rounds,
        verdict.steps,
        verdict.connects,
        verdict.writes,
        verdict.notices,
        verdict.received,
    );
    for fault in &verdict.faults {
        text += &format!("fault: {fault}\n");
    }
    text
}

/// Any seed will do, as long as it is said.
fn seed_of_the_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_millis() as u64)
}
