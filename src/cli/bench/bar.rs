//! The progress of a run, as a bar on standard error where that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::bench::Progress;
use crate::cli::output;

/// The bar; hidden without a terminal.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Bar {
        let target = match std::io::stderr().is_terminal() && !output::is_quiet() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template("{prefix:>10} [{bar:30}] {msg}") {
            bar.set_style(style);
        }
        Bar(bar)
    }

    pub(super) fn show(&self, progress: &Progress<'_>) {
        self.0.set_prefix(progress.phase.to_owned());
        self.0.set_length(progress.of.max(1));
        self.0.set_position(progress.done);
        self.0.set_message(format!("{} notices", progress.deliveries));
    }

    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
