//! Reports in files: read, compared and written.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::print;
use crate::bench::{self, Report};
use crate::cli::{CliError, Exit, usage};

/// A report with the name of its file.
pub(super) struct Named {
    name: String,
    report: Report,
}

impl Named {
    pub(super) fn read(file: &Path) -> Result<Named, CliError> {
        let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, error))?;
        let report: Report = serde_json::from_str(&text).map_err(|error| unreadable(file, error))?;
        if report.schema != bench::SCHEMA {
            let reason = format!("it is {:?}, not {:?}", report.schema, bench::SCHEMA);
            return Err(unreadable(file, reason));
        }
        let name = file_name(file);
        Ok(Named { name, report })
    }

    pub(super) fn pair(&self) -> (&str, &Report) {
        (&self.name, &self.report)
    }
}

/// Prints two reports beside each other, and writes the page of both.
pub(super) fn compare(files: &[PathBuf], page: Option<&Path>) -> Result<Exit, CliError> {
    let [first, second] = files else {
        return Err(usage("bench", "--compare takes two reports"));
    };
    let first = Named::read(first)?;
    let second = Named::read(second)?;
    if let Some(page) = page {
        write(page, &bench::html(second.pair(), Some(first.pair())))?;
    }
    print(&bench::compare(first.pair(), second.pair()))?;
    Ok(Exit::Ok)
}

pub(super) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text)
        .map_err(|error| CliError::Failed(format!("cannot write {}: {error}", path.display())))
}

fn unreadable(file: &Path, reason: impl Display) -> CliError {
    CliError::Failed(format!("cannot read {}: {reason}", file.display()))
}
