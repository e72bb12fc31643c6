//! Statistics, the CPU and memory of a process as the kernel counts them, and the table of a row.
//!
//! CPU and memory are read from `/proc`, so the benches run on Linux only.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value, json};

/// The number of repetitions of each measurement. Rows report the median, and where they say so the least.
pub(crate) const RUNS: usize = 5;

/// Returns the value in the middle, the upper one of an even number; NaN for no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&mut values.into_iter().collect::<Vec<f64>>(), 0.5)
}

/// Returns the least value; infinity for no values.
pub(crate) fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// Returns the value below which the share `part` of `values` lies, and sorts them; NaN for no values.
pub(crate) fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part) as usize;
    match values.get(index.min(values.len().saturating_sub(1))) {
        Some(value) => *value,
        None => f64::NAN,
    }
}

/// A figure over all repetitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    median: f64,
    /// The least and the greatest value; none for a figure that was measured once.
    range: Option<(f64, f64)>,
}

impl Spread {
    /// Returns the spread of these values; none for no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        let median = quantile(&mut values, 0.5);
        let range = Some((*values.first()?, *values.last()?));
        Some(Spread { median, range })
    }

    /// A figure that was measured once.
    fn single(median: f64) -> Spread {
        Spread { median, range: None }
    }

    fn text(self, decimals: usize) -> String {
        let median = self.median;
        match self.range {
            Some((least, most)) => format!("{median:.decimals$} ({least:.decimals$}..{most:.decimals$})"),
            None => format!("{median:.decimals$}"),
        }
    }
}

/// Returns the spread of the ratios of two servers.
///
/// The ratio is taken in each repetition, so that a disturbance of the machine is in both of its sides.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Option<Spread> {
    let pairs = std::iter::zip(ours, theirs);
    Spread::of(pairs.map(|(ours, theirs)| ours / theirs))
}

/// The threads whose CPU is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Threads {
    All,
    /// All but the first one, which drives the load.
    Helpers,
}

/// The CPU time that each thread of a process had used at one moment, kernel included.
pub(crate) struct Cpu {
    pid: u32,
    threads: Threads,
    /// Nanoseconds by thread id, from `schedstat`. A running thread is counted up to the last tick of the
    /// kernel, which may be a few milliseconds ago.
    used: HashMap<String, u64>,
}

impl Cpu {
    /// Reads the CPU time that `threads` of the process have used up to now.
    pub(crate) fn read(pid: u32, threads: Threads) -> anyhow::Result<Cpu> {
        let mut used = HashMap::new();
        let tasks = format!("/proc/{pid}/task");
        for task in fs::read_dir(&tasks).with_context(|| format!("cannot list {tasks}: is this Linux?"))? {
            let path = task?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name == pid.to_string() && matches!(threads, Threads::Helpers) {
                continue;
            }
            // A thread may end between the listing and the read.
            let Ok(text) = fs::read_to_string(path.join("schedstat")) else {
                continue;
            };
            let first = text.split_whitespace().next().unwrap_or_default();
            let spent = first.parse();
            let spent = spent.with_context(|| format!("cannot read {text:?} of {}", path.display()))?;
            used.insert(name.into_owned(), spent);
        }
        Ok(Cpu { pid, threads, used })
    }

    /// Returns the nanoseconds that the process has used in all, without threads that have ended.
    pub(crate) fn total(pid: u32, threads: Threads) -> anyhow::Result<f64> {
        let now = Cpu::read(pid, threads)?;
        Ok(now.used.values().sum::<u64>() as f64)
    }

    /// Returns the nanoseconds used since then.
    ///
    /// A thread that has ended counts for nothing: it is left over from an earlier measurement.
    pub(crate) fn since(&self) -> anyhow::Result<f64> {
        let now = Cpu::read(self.pid, self.threads)?;
        let mut spent = 0;
        for (thread, used) in &now.used {
            let before = self.used.get(thread).copied().unwrap_or(0);
            spent += used.saturating_sub(before);
        }
        Ok(spent as f64)
    }
}

/// Returns the memory that a process holds in RAM, in KiB.
pub(crate) fn resident_kib(pid: u32) -> anyhow::Result<f64> {
    field(Path::new(&format!("/proc/{pid}/status")), "VmRSS:")
}

/// Returns the limit on open files and sockets of this process and its children.
pub(crate) fn open_files_max() -> anyhow::Result<usize> {
    let limit = field(Path::new("/proc/self/limits"), "Max open files")?;
    Ok(limit as usize)
}

fn field(path: &Path, name: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.unwrap_or_default().split_whitespace().next();
    let number = match word {
        Some("unlimited") => Ok(1e9),
        word => word.unwrap_or_default().parse(),
    };
    number.with_context(|| format!("{} has no number after {name:?}", path.display()))
}

/// A column: its key in JSON, its heading in text, and the number of decimals.
pub(crate) type Column = (&'static str, &'static str, usize);

/// The figures of one row of the benches.
pub(crate) struct Table {
    name: &'static str,
    columns: &'static [Column],
    lines: Vec<(String, Vec<Option<Spread>>)>,
    notes: Vec<String>,
}

impl Table {
    /// Returns an empty table with these columns, besides the first one, which names the line.
    pub(crate) fn new(name: &'static str, columns: &'static [Column]) -> Table {
        Table {
            name,
            columns,
            lines: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a line; a figure that does not apply is none.
    pub(crate) fn add_line(&mut self, label: impl Into<String>, figures: Vec<Option<f64>>) {
        let figures = figures.into_iter().map(|figure| figure.map(Spread::single));
        self.add_spreads(label, figures.collect());
    }

    /// Adds a line of figures with their spread: in text `median (least..greatest)`, in JSON with `_min` and
    /// `_max` beside the median.
    pub(crate) fn add_spreads(&mut self, label: impl Into<String>, figures: Vec<Option<Spread>>) {
        self.lines.push((label.into(), figures));
    }

    /// Adds a sentence below the table.
    pub(crate) fn add_note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Returns the table in Markdown.
    pub(crate) fn text(&self) -> String {
        let mut lines = vec![self.headings(), vec!["---".to_owned(); self.columns.len() + 1]];
        for (label, figures) in &self.lines {
            let mut cells = vec![label.clone()];
            for (figure, (_, _, decimals)) in std::iter::zip(figures, self.columns) {
                cells.push(match figure {
                    Some(figure) => figure.text(*decimals),
                    None => "-".to_owned(),
                });
            }
            lines.push(cells);
        }
        let mut widths = vec![0; self.columns.len() + 1];
        for cells in &lines {
            for (width, cell) in std::iter::zip(&mut widths, cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::from("\n");
        for cells in &lines {
            for (cell, width) in std::iter::zip(cells, &widths) {
                text += &format!("| {cell:<width$} ");
            }
            text += "|\n";
        }
        for note in &self.notes {
            text += &format!("\n{note}");
        }
        text + "\n"
    }

    fn headings(&self) -> Vec<String> {
        let mut headings = vec![self.name.to_owned()];
        headings.extend(self.columns.iter().map(|(_, heading, _)| (*heading).to_owned()));
        headings
    }

    /// Returns one JSON object per line and note.
    pub(crate) fn json(&self) -> String {
        let mut text = String::new();
        for (label, figures) in &self.lines {
            let mut object = Map::new();
            object.insert("row".to_owned(), Value::from(self.name));
            object.insert("what".to_owned(), Value::from(label.as_str()));
            for (figure, (key, _, _)) in std::iter::zip(figures, self.columns) {
                let Some(Spread { median, range }) = figure else {
                    object.insert((*key).to_owned(), Value::Null);
                    continue;
                };
                object.insert((*key).to_owned(), json!(median));
                if let Some((least, most)) = range {
                    object.insert(format!("{key}_min"), json!(least));
                    object.insert(format!("{key}_max"), json!(most));
                }
            }
            text += &format!("{}\n", Value::Object(object));
        }
        for note in &self.notes {
            text += &format!("{}\n", json!({ "row": self.name, "note": note }));
        }
        text
    }
}
