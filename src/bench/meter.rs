//! CPU and memory of a process as the kernel counts them, read from `/proc`; without it there are no figures.
//!
//! CPU is the sum over the threads of the process, the kernel's work on their behalf included.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The name of the threads that play a server in this process; they are not counted.
pub(crate) const NULL_SERVER_THREAD: &str = "bench-stand-in";

/// The CPU of one process.
#[derive(Debug)]
pub(crate) struct Meter {
    pid: u32,
    /// Nanoseconds by thread; a thread that has ended keeps its last value.
    seen: HashMap<u32, u64>,
}

impl Meter {
    pub(crate) fn new(pid: u32) -> Meter {
        Meter {
            pid,
            seen: HashMap::new(),
        }
    }

    /// Returns the nanoseconds of CPU used so far; none where the kernel does not tell.
    pub(crate) fn cpu_nanos(&mut self) -> Option<u64> {
        for task in fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?.flatten() {
            let thread = task.file_name().to_string_lossy().parse().unwrap_or_default();
            // A thread that ended keeps its share in the sum.
            if let Some(nanos) = thread_nanos(&task.path()) {
                self.seen.insert(thread, nanos);
            }
        }
        Some(self.seen.values().sum())
    }

    /// Returns the kibibytes in memory.
    pub(crate) fn resident_kib(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse().ok()
    }
}

fn thread_nanos(task: &Path) -> Option<u64> {
    let name = fs::read_to_string(task.join("comm")).ok()?;
    if name.trim_end() == NULL_SERVER_THREAD {
        return None;
    }
    // In nanoseconds, where `stat` counts ticks of 10 ms.
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn work_is_measured() {
        let mut meter = Meter::new(std::process::id());
        let before = meter.cpu_nanos().unwrap();
        let mut sum = 0u64;
        while meter.cpu_nanos().unwrap() <= before {
            sum = (0..100_000u64).fold(sum, |sum, number| sum.wrapping_mul(31) ^ number);
        }
        assert!(meter.resident_kib().unwrap() > 100, "{sum}");
        assert_eq!(Meter::new(u32::MAX).cpu_nanos(), None);
    }
}
