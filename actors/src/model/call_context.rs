//! What a running call may tell its caller.
//!
//! Owns: [`CallContext`], which a tool's handler is handed beside its arguments, and the port behind it. Never: knows
//! how a caller is told, or whether it asked to be. Handlers report; whoever serves the call implements
//! [`CallObserver`] and passes on what the caller asked for.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::callback::BoxFuture;

/// How severe a log message is: the levels of syslog (RFC 5424), least severe first, which is also their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// For whoever looks for the cause of something.
    Debug,
    /// What happens in the ordinary course.
    Info,
    /// Ordinary, but worth noting.
    Notice,
    /// May lead to an error.
    Warning,
    /// Something failed.
    Error,
    /// A part of the system is broken.
    Critical,
    /// Somebody has to act at once.
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

/// Something that a running call tells.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CallEvent {
    /// How far it has come.
    Progress {
        /// What is done, in a unit of the tool's choosing.
        progress: f64,
        /// What there is to do, in the same unit, if that is known.
        total: Option<f64>,
        /// What is being done, for people.
        message: Option<String>,
    },
    /// A log message.
    Log {
        /// How severe it is.
        level: LogLevel,
        /// Which part of the tool speaks.
        logger: Option<String>,
        /// What it says: a text, or any other value.
        data: Value,
    },
}

/// Passes on what a running call tells; implemented by whoever serves the call.
pub trait CallObserver: Send + Sync + 'static {
    /// Tells the caller, if it asked for events of this kind. Resolves when the event was handed to the connection,
    /// which may take as long as the caller takes to read, or when nobody will ever read it.
    fn tell(&self, event: CallEvent) -> BoxFuture<()>;
}

/// The running call, as its handler sees it.
///
/// Both methods do nothing when the caller did not ask to be told, so a handler need not know. A handler cannot flood
/// its caller: each message is awaited until the connection has taken it, one at a time for all clones of the context,
/// so a handler runs no faster than its caller reads, and nothing piles up. When the caller is gone, has cancelled the
/// call, or has been answered, both return at once and say nothing; a handler that should stop then must notice by
/// other means.
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
}

impl CallContext {
    /// The context of a call that `observer` serves. That of a call which nobody follows is `CallContext::default()`.
    pub fn new(observer: Arc<dyn CallObserver>) -> CallContext {
        CallContext {
            observer: Some(observer),
        }
    }

    /// Tells how far the call has come: `progress` of `total`, in a unit of the tool's choosing. It has to grow with
    /// each message; one that does not, or is no finite number, is left out.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if let Some(observer) = &self.observer {
            let message = message.map(str::to_owned);
            let event = CallEvent::Progress {
                progress,
                total,
                message,
            };
            observer.tell(event).await;
        }
    }

    /// Sends a log message, if the caller wants messages of this level. It may reach a model: no secrets.
    pub async fn log(&self, level: LogLevel, logger: Option<&str>, data: Value) {
        if let Some(observer) = &self.observer {
            let logger = logger.map(str::to_owned);
            observer.tell(CallEvent::Log { level, logger, data }).await;
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
    struct Notebook(Arc<Mutex<Vec<CallEvent>>>);

    impl CallObserver for Notebook {
        fn tell(&self, event: CallEvent) -> BoxFuture<()> {
            let events = self.0.clone();
            Box::pin(async move { events.lock().unwrap().push(event) })
        }
    }

    fn busy() -> Tool {
        Tool::with_context(
            "busy",
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
    async fn what_a_handler_tells_reaches_the_observer_in_order() {
        let notebook = Arc::new(Notebook::default());
        let arguments = Map::from_iter([("a".to_owned(), json!(1))]);
        let answer = busy().call(arguments, CallContext::new(notebook.clone())).await;
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
        assert_eq!(*notebook.0.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_call_that_nobody_follows_runs_the_same() {
        let answer = busy().call(Map::new(), CallContext::default()).await;
        assert_eq!(answer.unwrap(), ToolOutput::text("done"));
    }

    #[test]
    fn levels_are_ordered_by_severity() {
        assert!(LogLevel::ALL.is_sorted_by(|milder, graver| milder < graver));
        let indexed = LogLevel::ALL.iter().enumerate();
        assert!(indexed.into_iter().all(|(index, level)| *level as usize == index));
    }
}
