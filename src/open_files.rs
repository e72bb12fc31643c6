//! The limit of open files of this process. Every connection needs one file.

/// The limit in effect: the soft one, and the hard one up to which a process may raise it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenFilesLimit {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// Raises the soft limit to `needed` files, as far as the hard limit allows. Returns the limit if it is too
/// low even so.
#[cfg(unix)]
pub(crate) fn make_room(needed: u64) -> Result<(), OpenFilesLimit> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    let wanted = needed.min(hard);
    // No further than needed: tools that the process starts inherit the limit, and some close or poll every
    // file up to it.
    if wanted > soft
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    {
        tracing::debug!(%error, wanted, "the limit of open files could not be raised");
    }
    // Read again, because raising it may have failed.
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((soft, hard));
    if needed <= soft {
        Ok(())
    } else {
        Err(OpenFilesLimit { soft, hard })
    }
}

#[cfg(not(unix))]
pub(crate) fn make_room(_needed: u64) -> Result<(), OpenFilesLimit> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn hard_limit_cannot_be_passed() {
        assert_eq!(make_room(1), Ok(()));
        let limit = make_room(u64::MAX).unwrap_err();
        assert_eq!(limit.soft, limit.hard);
    }
}
