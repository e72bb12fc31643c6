//! The steps of a check, on standard error: one line each, away from the report.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::check::Step;

/// The time after which a reader wants to know what is waited for, where standard error is no terminal.
const SILENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Printing {
    /// True once steps are printed when they begin.
    is_loud: bool,
    /// The step that began last and was not printed.
    waiting: Option<String>,
}

/// Prints steps: at once on a terminal, else those that begin or last after two seconds.
#[derive(Debug)]
pub(super) struct StepPrinter(Mutex<Printing>);

impl StepPrinter {
    pub(super) fn new() -> StepPrinter {
        StepPrinter(Mutex::new(Printing {
            is_loud: std::io::stderr().is_terminal(),
            waiting: None,
        }))
    }

    /// Takes a step that begins.
    pub(super) fn take(&self, step: Step<'_>) {
        let line = format!("{}: {}\n", step.revision, step.text);
        let mut state = self.state();
        match state.is_loud {
            true => print(&line),
            false => state.waiting = Some(line),
        }
    }

    /// Prints the step that lasts, once it is time, and from then on every step. Never ends.
    pub(super) async fn speak_up(&self) {
        tokio::time::sleep(SILENCE).await;
        self.print_all();
        std::future::pending::<()>().await;
    }

    /// Prints the step that waits, and from then on every step.
    fn print_all(&self) {
        let mut state = self.state();
        state.is_loud = true;
        if let Some(line) = state.waiting.take() {
            print(&line);
        }
    }

    fn state(&self) -> MutexGuard<'_, Printing> {
        self.0.lock().expect("no code panics while it prints a step")
    }
}

fn print(line: &str) {
    if let Err(error) = std::io::stderr().write_all(line.as_bytes()) {
        // The report does not depend on a reader of the steps.
        tracing::debug!(%error, "a step could not be printed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn last_step_waits_for_two_seconds() {
        let printer = StepPrinter(Mutex::new(Printing {
            is_loud: false,
            waiting: None,
        }));
        let revision = "2025-11-25";
        printer.take(Step::new(revision, "first"));
        printer.take(Step::new(revision, "second"));
        assert_eq!(printer.state().waiting.as_deref(), Some("2025-11-25: second\n"));
        let ended = tokio::time::timeout(SILENCE * 2, printer.speak_up()).await;
        assert!(ended.is_err());
        let state = printer.state();
        assert!(state.is_loud && state.waiting.is_none(), "{state:?}");
    }
}
