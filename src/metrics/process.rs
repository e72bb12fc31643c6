//! What the process itself uses, under the names that every Prometheus client gives it.
//!
//! Owns: reading `/proc` at a scrape, since these are numbers of the system and not of ours. Never: fails; what a system
//! does not tell is left out. The facade has no counters of seconds, so the lines are written here.

use std::fmt::Write;
use std::fs;

/// Ticks of a second in `/proc/PID/stat`; Linux shows this many to programs on every machine.
const TICKS: f64 = 100.0;

/// Adds the lines.
pub(super) fn write(text: &mut String, started: f64) {
    let help = "When the process started, in seconds since 1970-01-01 UTC.";
    line(text, "process_start_time_seconds", "gauge", help, started);
    let rows = [
        (
            "process_cpu_seconds_total",
            "counter",
            "Time of processors that was used.",
            cpu_seconds(),
        ),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Memory in use.",
            memory_bytes(),
        ),
        ("process_threads", "gauge", "Threads.", threads()),
        (
            "process_open_fds",
            "gauge",
            "Open file descriptors.",
            open_files(),
        ),
        (
            "process_max_fds",
            "gauge",
            "Open file descriptors allowed.",
            open_files_max(),
        ),
    ];
    for (name, kind, help, value) in rows {
        if let Some(value) = value {
            line(text, name, kind, help, value);
        }
    }
}

fn line(text: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    let added = write!(
        text,
        "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n"
    );
    added.expect("a string takes any text");
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program stands in parentheses and may have spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

fn status(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':')
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn memory_bytes() -> Option<f64> {
    status("VmRSS").map(|kibibytes| kibibytes * 1024.0)
}

fn threads() -> Option<f64> {
    status("Threads")
}

fn open_files() -> Option<f64> {
    // One of them is the folder that is being read.
    fs::read_dir("/proc/self/fd")
        .ok()
        .map(|files| files.count().saturating_sub(1) as f64)
}

fn open_files_max() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn linux_tells_everything() {
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
