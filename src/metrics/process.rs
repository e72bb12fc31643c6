//! The `process_*` metrics that every Prometheus client exports, read from `/proc` at each scrape.
//!
//! A value that the system does not offer is left out. The lines are written here because the `metrics`
//! facade has no counter of fractional seconds.

use std::fmt::Write;
use std::fs;

/// The unit of the times in `/proc/PID/stat`: Linux reports 100 ticks per second on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Appends the process metrics to `text`; `started` is the start of the process in seconds since 1970.
pub(super) fn write(text: &mut String, started: f64) {
    let rows = [
        (
            "process_start_time_seconds gauge",
            "Start of the process, in seconds since 1970-01-01 UTC.",
            Some(started),
        ),
        (
            "process_cpu_seconds_total counter",
            "CPU time used.",
            cpu_seconds(),
        ),
        (
            "process_resident_memory_bytes gauge",
            "Resident memory.",
            memory_bytes(),
        ),
        ("process_threads gauge", "Threads.", threads()),
        ("process_open_fds gauge", "Open file descriptors.", open_files()),
        (
            "process_max_fds gauge",
            "File descriptors allowed.",
            open_files_max(),
        ),
    ];
    for (name_and_type, help, value) in rows {
        let (name, _) = name_and_type.split_once(' ').expect("each row has a type");
        if let Some(value) = value {
            writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name_and_type}\n{name} {value}\n"
            )
            .expect("writing to a string cannot fail");
        }
    }
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in parentheses and may contain spaces, so fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let user: f64 = fields.get(11)?.parse().ok()?;
    let system: f64 = fields.get(12)?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn memory_bytes() -> Option<f64> {
    let kibibytes = first_number("/proc/self/status", "VmRSS:")?;
    Some(kibibytes * 1024.0)
}

fn threads() -> Option<f64> {
    first_number("/proc/self/status", "Threads:")
}

fn open_files() -> Option<f64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is the descriptor of this very directory.
    Some(entries.saturating_sub(1) as f64)
}

fn open_files_max() -> Option<f64> {
    first_number("/proc/self/limits", "Max open files")
}

/// Returns the first word after `prefix` in the line of `file` that begins with it.
fn first_number(file: &str, prefix: &str) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(prefix))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn linux_offers_every_value() {
        let mut text = String::new();
        write(&mut text, 5.0);
        let names = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let values: Vec<(&str, f64)> = names
            .map(|line| line.split_once(' ').unwrap())
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect();
        assert_eq!(values[0], ("process_start_time_seconds", 5.0));
        assert_eq!(values.len(), 6, "{text}");
        assert!(values[2..].iter().all(|(_, value)| *value >= 1.0), "{text}");
    }
}
