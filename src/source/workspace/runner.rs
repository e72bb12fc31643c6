//! Running the tools of the folder: from a call's arguments to its answer.
//!
//! Owns: the limits of calls and how many run at a time. A call waits for its place, is run on the source's own
//! runtime (so that no thread of the bus forks), and ends with all its processes when nobody waits for it any more.
//! Receives calls through the tools it makes; never publishes them (the registrations do).

use super::process::{Broken, Finished, Launch};
use super::program;
use super::tools::ToolSpec;
use crate::config::{ToolsConfig, size, time};
use crate::metrics::{self, Limit, Source};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidings_actors::{CallbackError, Tool, ToolOutput};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Runs tools.
#[derive(Debug)]
pub(super) struct Runner {
    dir: PathBuf,
    config: ToolsConfig,
    places: Semaphore,
    runtime: Handle,
}

impl Runner {
    /// Runs tools in `dir`, on `runtime`.
    pub(super) fn new(dir: PathBuf, config: &ToolsConfig, runtime: Handle) -> Runner {
        let places = Semaphore::new(config.concurrency_max);
        Runner {
            dir,
            config: config.clone(),
            places,
            runtime,
        }
    }

    /// The tool to publish.
    pub(super) fn tool(self: &Arc<Runner>, spec: &Arc<ToolSpec>) -> Tool {
        let (runner, called) = (self.clone(), spec.clone());
        let answer = move |arguments: Map<String, Value>| {
            let (runner, spec) = (runner.clone(), called.clone());
            async move { runner.call(&spec, arguments).await.map_err(CallbackError::from) }
        };
        let sidecar = &spec.sidecar;
        let mut tool = Tool::new(spec.name.as_str(), answer).input_schema(sidecar.input.value().clone());
        if let Some(title) = &sidecar.title {
            tool = tool.title(title);
        }
        if let Some(description) = &sidecar.description {
            tool = tool.description(description);
        }
        if let Some(schema) = &sidecar.output {
            tool = tool.output_schema(schema.value().clone());
        }
        if let Some(annotations) = &sidecar.annotations {
            tool = tool.annotations(annotations.clone());
        }
        tool
    }

    async fn call(&self, spec: &Arc<ToolSpec>, arguments: Map<String, Value>) -> Result<ToolOutput, String> {
        let name = &spec.name;
        let arguments = Value::Object(arguments);
        if let Some(violations) = spec.sidecar.input.violations(&arguments) {
            return Err(format!("invalid arguments for {name}:\n{violations}"));
        }
        let timeout = spec.sidecar.timeout.unwrap_or(self.config.timeout);
        let place = tokio::time::timeout(timeout, self.places.acquire()).await;
        // The semaphore is never closed, so only the time can be over.
        let Ok(Ok(_place)) = place else {
            let max = self.config.concurrency_max;
            metrics::limit_reached(Limit::ToolConcurrency);
            return Err(format!(
                "{name} is busy: {max} calls run already; try again later (tools.concurrency_max)"
            ));
        };
        let mut input = arguments.to_string().into_bytes();
        input.push(b'\n');
        let launch = Launch {
            program: spec.program.clone(),
            arguments: spec.arguments.clone(),
            dir: self.dir.clone(),
            input,
            timeout,
            output_bytes_max: self.config.output_bytes_max,
        };
        let answered = match self.run(spec.clone(), launch).await {
            Ok(Ok(finished)) => answer(spec, &finished),
            Ok(Err(broken)) => Err(self.explain(spec, timeout, &broken)),
            Err(unfit) => Err(unfit),
        };
        if answered.is_err() {
            metrics::source_failed(Source::Tools);
        }
        answered
    }

    /// Runs a program away from the thread that serves the call; dropped, it ends the processes.
    async fn run(&self, spec: Arc<ToolSpec>, launch: Launch) -> Result<Result<Finished, Broken>, String> {
        let mut running = JoinSet::new();
        running.spawn_on(
            async move {
                // Between the look and the call anything can happen to a file.
                if let Some(home) = spec.home.clone() {
                    let path = launch.program.clone();
                    let checked = tokio::task::spawn_blocking(move || program::check(&home, &path)).await;
                    match checked {
                        Ok(Ok(())) => {}
                        Ok(Err(unfit)) => return Err(format!("the executable of {} {unfit}", spec.name)),
                        Err(_ending) => return Err("the server is stopping".to_owned()),
                    }
                }
                Ok(launch.run().await)
            },
            &self.runtime,
        );
        match running.join_next().await {
            Some(Ok(ended)) => ended,
            _ => Err("the server is stopping".to_owned()),
        }
    }

    fn explain(&self, spec: &ToolSpec, timeout: Duration, broken: &Broken) -> String {
        let name = &spec.name;
        match broken {
            Broken::NotStarted(error) => format!("{name} could not be started: {error}"),
            Broken::Failed(error) => format!("{name} failed: {error}"),
            Broken::TooMuchOutput => {
                metrics::limit_reached(Limit::ToolOutput);
                let max = size::text(self.config.output_bytes_max);
                format!("{name} printed more than {max} and was stopped (tools.output_bytes_max)")
            }
            Broken::TimedOut => {
                metrics::limit_reached(Limit::ToolTimeout);
                let key = match spec.sidecar.timeout {
                    Some(_) => format!("timeout in {}", spec.written),
                    None => "tools.timeout".to_owned(),
                };
                format!(
                    "{name} took longer than {} and was stopped ({key})",
                    time::text(timeout)
                )
            }
        }
    }
}

/// What a process that ended by itself answers.
fn answer(spec: &ToolSpec, finished: &Finished) -> Result<ToolOutput, String> {
    let name = &spec.name;
    if !finished.status.success() {
        return Err(format!("{name} failed with {}", finished.failure()));
    }
    let text = String::from_utf8_lossy(&finished.stdout);
    let text = text.trim_end_matches(['\r', '\n']);
    let object = serde_json::from_str(text).ok().filter(Value::is_object);
    if let Some(schema) = &spec.sidecar.output {
        let Some(value) = &object else {
            return Err(format!(
                "{name} printed no JSON object, which its outputSchema asks for"
            ));
        };
        if let Some(violations) = schema.violations(value) {
            return Err(format!(
                "{name} printed what its outputSchema does not allow:\n{violations}"
            ));
        }
    }
    Ok(ToolOutput {
        structured: object,
        ..ToolOutput::text(text)
    })
}
