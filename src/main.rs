//! The program: hands the command line to [`tidings::cli`] and ends with the exit code that it answers.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First: a process that is started for a tool becomes the tool here.
    tidings::source::workspace::enable_launcher();
    tidings::cli::main(std::env::args_os()).into()
}
