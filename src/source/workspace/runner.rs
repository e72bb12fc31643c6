//! Calls of the tools: checks the arguments, runs the executable, and reads its answer.

use super::executable;
use super::launcher::ProcessLimits;
use super::process::{Launch, ProcessError, ProcessOutput};
use super::tools::ToolSpec;
use crate::config::ToolsConfig;
use crate::metrics::{self, Limit, Source};
use crate::units::{size, time};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidings_actors::{CallbackError, Tool, ToolOutput};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The time by which a call's own limits come before that of its endpoint.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(10);

/// Runs the tools of a folder, a limited number at a time.
#[derive(Debug)]
pub(super) struct Runner {
    dir: PathBuf,
    config: ToolsConfig,
    permits: Semaphore,
    runtime: Handle,
}

impl Runner {
    /// Returns a runner that runs tools in `dir`, on `runtime`.
    pub(super) fn new(dir: PathBuf, config: &ToolsConfig, runtime: Handle) -> Runner {
        Runner {
            dir,
            config: config.clone(),
            permits: Semaphore::new(config.concurrency_max),
            runtime,
        }
    }

    /// Returns the tool to register.
    pub(super) fn tool(self: &Arc<Runner>, spec: &Arc<ToolSpec>) -> Tool {
        let runner = self.clone();
        let called = spec.clone();
        let mut tool = Tool::new(spec.name.as_str(), move |arguments: Map<String, Value>| {
            let runner = runner.clone();
            let spec = called.clone();
            async move { runner.call(&spec, arguments).await.map_err(CallbackError::from) }
        });
        let sidecar = &spec.sidecar;
        tool = tool.input_schema(sidecar.input.value().clone());
        // A call may wait for its turn as long as it may run, and both end with answers of their own.
        let timeout = sidecar.timeout.unwrap_or(self.config.timeout);
        tool = tool.timeout(timeout * 2 + TIMEOUT_MARGIN);
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
        let timeout = spec.sidecar.timeout.unwrap_or(self.config.timeout);
        // The semaphore is never closed, so an error is always the timeout.
        let Ok(Ok(_permit)) = tokio::time::timeout(timeout, self.permits.acquire()).await else {
            let max = self.config.concurrency_max;
            metrics::limit_reached(Limit::ToolConcurrency);
            return Err(format!(
                "{name} is busy: {max} calls run already; try again later (tools.concurrency_max)"
            ));
        };
        // A line of JSON, so that a shell script can `read` it.
        let input = format!("{arguments}\n").into_bytes();
        let launch = Launch {
            program: spec.program.clone(),
            arguments: spec.arguments.clone(),
            dir: self.dir.clone(),
            input,
            timeout,
            output_bytes_max: self.config.output_bytes_max,
            limits: ProcessLimits::of(&self.config),
        };
        let answered = match self.run(spec.clone(), launch).await {
            Ok(Ok(output)) if output.is_out_of_cpu_time() => {
                metrics::limit_reached(Limit::ToolCpu);
                Err(format!(
                    "{name} used up its processor time and was stopped (tools.cpu_max)"
                ))
            }
            Ok(Ok(output)) => answer(spec, &output),
            Ok(Err(error)) => Err(self.explain(spec, timeout, &error)),
            Err(reason) => Err(reason),
        };
        if answered.is_err() {
            metrics::source_failed(Source::Tools);
        }
        answered
    }

    /// Runs a program on the source's own runtime, so that no thread of the bus forks. Dropping the
    /// future kills its processes.
    async fn run(
        &self,
        spec: Arc<ToolSpec>,
        launch: Launch,
    ) -> Result<Result<ProcessOutput, ProcessError>, String> {
        // A `JoinSet` aborts its tasks when it is dropped, unlike a `JoinHandle`.
        let mut running = JoinSet::new();
        running.spawn_on(
            async move {
                // The file may have changed since the scan that registered the tool.
                if let Some(home) = spec.home.clone() {
                    let path = launch.program.clone();
                    match tokio::task::spawn_blocking(move || executable::check(&home, &path)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(reason)) => return Err(format!("the executable of {} {reason}", spec.name)),
                        Err(_cancelled) => return Err("the server is stopping".to_owned()),
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

    fn explain(&self, spec: &ToolSpec, timeout: Duration, error: &ProcessError) -> String {
        let name = &spec.name;
        match error {
            ProcessError::NotStarted(error) => format!("{name} could not be started: {error}"),
            ProcessError::Failed(error) => format!("{name} failed: {error}"),
            ProcessError::TooMuchOutput => {
                metrics::limit_reached(Limit::ToolOutput);
                let max = size::text(self.config.output_bytes_max);
                format!("{name} printed more than {max} and was stopped (tools.output_bytes_max)")
            }
            ProcessError::TimedOut => {
                metrics::limit_reached(Limit::ToolTimeout);
                let key = match spec.sidecar.timeout {
                    Some(_) => format!("timeout in {}", spec.origin),
                    None => "tools.timeout".to_owned(),
                };
                let timeout = time::text(timeout);
                format!("{name} took longer than {timeout} and was stopped ({key})")
            }
        }
    }
}

/// Reads the answer of a tool that ended by itself.
fn answer(spec: &ToolSpec, output: &ProcessOutput) -> Result<ToolOutput, String> {
    let name = &spec.name;
    if !output.status.success() {
        return Err(format!("{name} failed with {}", output.failure()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let text = text.trim_end_matches(['\r', '\n']);
    // The protocol allows no other JSON as structured content.
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
