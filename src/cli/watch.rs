//! stub
use super::{CliError, usage};
use clap::Args;
/// x
#[derive(Debug, Args)]
pub(super) struct Watch {
    args: Vec<String>,
}
impl Watch {
    pub(super) fn run(&self) -> Result<(), CliError> {
        Err(usage("watch", "x"))
    }
}
