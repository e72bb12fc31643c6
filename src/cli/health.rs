//! `tidings health`: tells by its exit status whether a service works, as containers ask every few seconds.

use std::time::Duration;

use clap::Args;
use reqwest::Method;

use super::server::{Service, ServiceArgs};
use super::table::print;
use super::{CliError, block_on, duration, output};
use crate::printable;

/// The limit on the size of an answer in bytes: a line for each sink that fails.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The arguments of `tidings health`.
#[derive(Debug, Args)]
pub(super) struct Health {
    /// Ask whether it is ready: everything is served, and its store keeps changes
    #[arg(short, long)]
    ready: bool,
    /// Time for the whole answer
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    service: ServiceArgs,
}

impl Health {
    pub(super) fn run(&self) -> Result<(), CliError> {
        // Longer than the limit below, which is for the whole answer and names itself.
        let service = self.service.open_within("health", self.timeout * 2)?;
        let asked = block_on(async {
            match tokio::time::timeout(self.timeout, self.ask(&service)).await {
                Ok(answered) => answered,
                Err(_) => {
                    let text = format!("{} did not answer within {:?}", service.url, self.timeout);
                    Err(CliError::Failed(text))
                }
            }
        });
        match asked {
            Ok(text) if output::is_quiet() => drop(text),
            Ok(text) => print(&format!("{}\n", printable::lines(text.trim_end())))?,
            // Docker knows 0 and 1 alone, and reserves 2.
            Err(error) => return Err(CliError::Failed(error.to_string())),
        }
        Ok(())
    }

    async fn ask(&self, service: &Service) -> Result<String, CliError> {
        let path = match self.ready {
            true => "/readyz",
            false => "/healthz",
        };
        let answer = service.ask(service.request(Method::GET, path)).await?;
        let body = service.bytes(answer, ANSWER_BYTES_MAX).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}
