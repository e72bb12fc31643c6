//! The limit of open files of this process: raises the soft limit to the hard one and checks that all
//! connections fit.

use crate::bench::BenchError;

/// Files that are not connections of the test.
const SPARE: usize = 64;

/// Makes room for this number of connections.
#[cfg(unix)]
pub(crate) fn make_room(connections: usize) -> Result<(), BenchError> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    let needed = (connections + SPARE) as u64;
    if needed > soft && soft < hard {
        // Where the limit may not be raised, the check below fails.
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok();
    }
    // Read again, because raising it may have failed.
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((soft, hard));
    fits(needed, soft, hard)
}

#[cfg(not(unix))]
pub(crate) fn make_room(_connections: usize) -> Result<(), BenchError> {
    Ok(())
}

fn fits(needed: u64, soft: u64, hard: u64) -> Result<(), BenchError> {
    if needed <= soft {
        return Ok(());
    }
    Err(BenchError::Arguments(format!(
        "the sessions need {needed} open files, and this process may have {soft} (soft limit) of {hard} (hard limit): \
         raise them with ulimit -n, or lower --sessions"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_limit_is_named_with_both_numbers() {
        assert!(make_room(1).is_ok());
        assert!(fits(1_000, 1_000, 1_000).is_ok());
        let error = fits(60_064, 1_024, 20_000).unwrap_err().to_string();
        assert!(
            error.contains("60064") && error.contains("1024") && error.contains("20000"),
            "{error}"
        );
    }
}
