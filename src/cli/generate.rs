//! `tidings completions` and `tidings man`: texts for shells and for `man`, made from the definition of the
//! command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::table::print;
use super::{Cli, CliError};

/// The arguments of `tidings completions`.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell that reads them
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tidings", &mut text);
        print(&String::from_utf8_lossy(&text))
    }
}

/// The arguments of `tidings man`.
#[derive(Debug, Args)]
pub(super) struct Man {
    /// Write one page for each subcommand into this folder, instead of the main page to standard output
    #[arg(short, long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let command = Cli::command();
        let Some(dir) = &self.dir else {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text)?;
            return print(&String::from_utf8_lossy(&text));
        };
        let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
        written.map_err(|error| CliError::Failed(format!("cannot write into {}: {error}", dir.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_completions_and_a_page() {
        let names: Vec<String> = Cli::command()
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .collect();
        assert!(names.len() > 15, "{names:?}");
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::PowerShell,
            Shell::Elvish,
        ] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidings", &mut text);
            let text = String::from_utf8(text).unwrap();
            for name in &names {
                assert!(text.contains(name.as_str()), "{shell}: {name}");
            }
            assert!(!text.contains('\u{1b}'), "{shell}");
        }
        let dir = tempfile::tempdir().unwrap();
        let man = Man {
            dir: Some(dir.path().to_owned()),
        };
        man.run().unwrap();
        for name in names {
            let page = std::fs::read_to_string(dir.path().join(format!("tidings-{name}.1"))).unwrap();
            assert!(
                page.contains(".SH SYNOPSIS") && !page.contains('\u{1b}'),
                "{name}"
            );
        }
    }
}
