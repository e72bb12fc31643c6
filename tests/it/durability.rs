//! Acknowledged means kept: the real binary is killed, loses its power, is given a disk that fails, and
//! starts again on the same files.
//!
//! Each test has a short form, which runs with all tests, and a long one by command: `DURABILITY_ROUNDS=2000
//! cargo test --all-features --test it durability::kill::long -- --ignored --nocapture`

mod disk;
mod home;
mod ledger;
mod kill;
mod clients;
mod returning;
mod sinks;
mod power;
mod damage;
mod faults;
mod lives;
mod backup;

use crate::support::number;
pub(crate) use home::Connection;

/// Returns the rounds of a long form, from the environment or as the test has them.
fn rounds(default: usize) -> usize {
    number("DURABILITY_ROUNDS", default as u64) as usize
}

/// Returns the seed of a run, which decides its random numbers. The moments of the kernel stay its own.
fn seed() -> u64 {
    number("DURABILITY_SEED", 1)
}

/// Fails with the first violations, if there are any.
#[track_caller]
fn assert_kept(violations: &[String]) {
    let first = &violations[..violations.len().min(10)];
    assert!(
        violations.is_empty(),
        "{} violations, repeat them with DURABILITY_SEED={}:\n{}",
        violations.len(),
        seed(),
        first.join("\n")
    );
}
