//! The program: hands the command line to [`tidings::cli`] and ends with the exit code that it answers.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidings::cli::main(std::env::args_os()).into()
}
