//! Progress and log messages of a running tool call.
//!
//! Tools report through [`CallContext`]; the endpoint that serves the call implements [`CallObserver`] and
//! forwards only the events that its client asked for.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::callback::BoxFuture;
use super::uri::ResourceUri;
use super::viewer::Viewer;

/// The severity of a log message, from syslog (RFC 5424). The order of the variants is the order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Details that help to find the cause of a problem.
    Debug,
    /// Normal operation.
    Info,
    /// Normal, but worth noting.
    Notice,
    /// A condition that may lead to an error.
    Warning,
    /// An operation failed.
    Error,
    /// A component of the system has failed.
    Critical,
    /// An operator has to act at once.
    Alert,
    /// The system is unusable.
    Emergency,
}

impl LogLevel {
    /// All levels, least severe first.
    pub const ALL: [LogLevel; 8] = [
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Notice,
        LogLevel::Warning,
        LogLevel::Error,
        LogLevel::Critical,
        LogLevel::Alert,
        LogLevel::Emergency,
    ];
}

/// One report of a running call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CallEvent {
    /// The progress of the call.
    Progress {
        /// The amount done so far, in a unit that the tool chooses.
        progress: f64,
        /// The total amount in the same unit, if the tool knows it.
        total: Option<f64>,
        /// The current step, as text for people.
        message: Option<String>,
    },
    /// A log message.
    Log {
        /// The severity.
        level: LogLevel,
        /// The part of the tool that logs.
        logger: Option<String>,
        /// The message: text or any other JSON value.
        data: Value,
    },
}

/// Forwards the reports of a running call to its client.
pub trait CallObserver: Send + Sync + 'static {
    /// Forwards `event` if the client asked for events of its kind. Resolves once the connection has taken
    /// the event or can never take it, so it may take as long as the client takes to read.
    fn observe(&self, event: CallEvent) -> BoxFuture<()>;
}

/// A running call, as its handler sees it.
///
/// Both methods do nothing if the client did not ask for reports, so a handler calls them unconditionally. A
/// handler cannot flood its client: each report is awaited until the connection has taken it, one at a time
/// for all clones of the context, so a handler runs no faster than its client reads.
///
/// When the client cancels the call, the future of the handler is dropped. A disconnect cancels too where
/// the protocol's revision says so. Work that a handler moved to a task of its own goes on: it has to end
/// with the handler, by a guard or a `JoinSet`. Both methods return at once after the client has
/// disconnected, cancelled the call or received its answer.
///
/// ```
/// use serde_json::{Map, Value};
/// use tidings_actors::{CallContext, LogLevel, Tool, ToolOutput};
/// let sweep = Tool::with_context("sweep", |_: Map<String, Value>, context: CallContext| async move {
///     for room in 1..=3 {
///         context.progress(f64::from(room), Some(3.0), Some("sweeping")).await;
///     }
///     context.log(LogLevel::Notice, Some("broom"), "all rooms are clean".into()).await;
///     Ok(ToolOutput::text("done"))
/// });
/// assert_eq!(sweep.name(), "sweep");
/// ```
#[derive(Clone, Default)]
pub struct CallContext {
    observer: Option<Arc<dyn CallObserver>>,
    viewer: Option<Arc<dyn Viewer>>,
}

impl CallContext {
    /// Creates the context of a call whose reports go to `observer`. Use `CallContext::default()` to discard
    /// them.
    pub fn new(observer: Arc<dyn CallObserver>) -> CallContext {
        CallContext {
            observer: Some(observer),
            viewer: None,
        }
    }

    /// Sets the rights of the caller, which a tool that reads resources for it has to heed.
    #[must_use]
    pub fn with_viewer(mut self, viewer: Option<Arc<dyn Viewer>>) -> CallContext {
        self.viewer = viewer;
        self
    }

    /// The rights of the caller; none if it may see everything.
    pub fn viewer(&self) -> Option<&Arc<dyn Viewer>> {
        self.viewer.as_ref()
    }

    /// Returns true if the caller may read this resource and its etag.
    pub fn may_read(&self, uri: &ResourceUri) -> bool {
        match &self.viewer {
            Some(viewer) => viewer.may_read(uri),
            None => true,
        }
    }

    /// Reports `progress` out of `total`, in a unit that the tool chooses. MCP requires that progress grows
    /// with each report, so a value that does not grow, or is not finite, is skipped.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if let Some(observer) = &self.observer {
            let event = CallEvent::Progress {
                progress,
                total,
                message: message.map(str::to_owned),
            };
            observer.observe(event).await;
        }
    }

    /// Sends a log message if the client wants messages of this level. A model may read it, so it must not
    /// contain secrets.
    pub async fn log(&self, level: LogLevel, logger: Option<&str>, data: Value) {
        if let Some(observer) = &self.observer {
            let logger = logger.map(str::to_owned);
            observer.observe(CallEvent::Log { level, logger, data }).await;
        }
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("observed", &self.observer.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Tool, ToolOutput};
    use serde_json::{Map, json};
    use std::sync::Mutex;

    #[derive(Default)]
    struct RecordingObserver(Arc<Mutex<Vec<CallEvent>>>);

    impl CallObserver for RecordingObserver {
        fn observe(&self, event: CallEvent) -> BoxFuture<()> {
            let events = self.0.clone();
            Box::pin(async move { events.lock().unwrap().push(event) })
        }
    }

    fn reporting_tool() -> Tool {
        Tool::with_context(
            "reporting",
            |arguments: Map<String, Value>, context: CallContext| async move {
                context.progress(1.0, Some(2.0), Some("half")).await;
                context.progress(2.0, None, None).await;
                context
                    .log(LogLevel::Warning, Some("unit"), Value::Object(arguments))
                    .await;
                Ok(ToolOutput::text("done"))
            },
        )
    }

    #[tokio::test]
    async fn reports_reach_the_observer_in_order() {
        let observer = Arc::new(RecordingObserver::default());
        let arguments = Map::from_iter([("a".to_owned(), json!(1))]);
        let answer = reporting_tool()
            .call(arguments, CallContext::new(observer.clone()))
            .await;
        assert_eq!(answer.unwrap(), ToolOutput::text("done"));
        let expected = [
            CallEvent::Progress {
                progress: 1.0,
                total: Some(2.0),
                message: Some("half".into()),
            },
            CallEvent::Progress {
                progress: 2.0,
                total: None,
                message: None,
            },
            CallEvent::Log {
                level: LogLevel::Warning,
                logger: Some("unit".into()),
                data: json!({ "a": 1 }),
            },
        ];
        assert_eq!(*observer.0.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn call_without_observer_runs_unchanged() {
        let answer = reporting_tool().call(Map::new(), CallContext::default()).await;
        assert_eq!(answer.unwrap(), ToolOutput::text("done"));
    }

    #[test]
    fn log_levels_are_ordered_by_severity() {
        assert!(LogLevel::ALL.is_sorted_by(|lower, higher| lower < higher));
        let indexed = LogLevel::ALL.iter().enumerate();
        assert!(indexed.into_iter().all(|(index, level)| *level as usize == index));
    }
}
