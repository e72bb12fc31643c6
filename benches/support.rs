//! What every row needs: medians, the CPU and memory of a process as the kernel counts them, and the table.
//!
//! Owns: how figures are read and printed. Never: measures anything itself. Reads `/proc`, so the benches run on
//! Linux.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value, json};

/// How often each figure is measured; the median is reported, and where it says so the least.
pub(crate) const RUNS: usize = 5;

/// The value in the middle; of an even number the upper one, of none NaN.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&mut values.into_iter().collect::<Vec<f64>>(), 0.5)
}

/// The least value; of none infinity.
pub(crate) fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// The value below which the share `part` of `values` lies; sorts them.
pub(crate) fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part) as usize;
    values
        .get(index.min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

/// A figure over all repetitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    median: f64,
    /// The least and the greatest; none for a figure that was taken once.
    range: Option<(f64, f64)>,
}

impl Spread {
    /// The spread of these values; none when there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        let median = quantile(&mut values, 0.5);
        let range = Some((*values.first()?, *values.last()?));
        Some(Spread { median, range })
    }

    fn text(self, decimals: usize) -> String {
        let Spread { median, range } = self;
        let range = range.map(|(least, most)| format!(" ({least:.decimals$}..{most:.decimals$})"));
        format!("{median:.decimals$}{}", range.unwrap_or_default())
    }
}

/// The ratios of two servers, repetition by repetition, so that what disturbs one of them disturbs its twin too.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Option<Spread> {
    Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
}

/// Whose CPU is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Threads {
    All,
    /// All but the first one, which drives the load.
    Helpers,
}

/// The CPU time that each thread of a process had used at some moment, kernel included.
pub(crate) struct Cpu {
    pid: u32,
    threads: Threads,
    /// Nanoseconds by thread id, as its `schedstat` says. A thread that is running is counted up to the kernel's last
    /// look at it, which may be a few milliseconds ago.
    used: HashMap<String, u64>,
}

impl Cpu {
    /// What `threads` of process `pid` have used up to now.
    pub(crate) fn read(pid: u32, threads: Threads) -> anyhow::Result<Cpu> {
        let mut used = HashMap::new();
        let tasks = format!("/proc/{pid}/task");
        for task in fs::read_dir(&tasks).with_context(|| format!("cannot list {tasks}: is this Linux?"))? {
            let path = task?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name == pid.to_string() && matches!(threads, Threads::Helpers) {
                continue;
            }
            // A thread may end between being listed and being read.
            let Ok(text) = fs::read_to_string(path.join("schedstat")) else {
                continue;
            };
            let spent = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
            let spent = spent.with_context(|| format!("cannot read {text:?} of {}", path.display()))?;
            used.insert(name.into_owned(), spent);
        }
        Ok(Cpu { pid, threads, used })
    }

    /// What has been used since then, in nanoseconds. Threads that have ended meanwhile count for nothing: they are
    /// what an earlier measurement left behind.
    pub(crate) fn since(&self) -> anyhow::Result<f64> {
        let now = Cpu::read(self.pid, self.threads)?;
        let spent = now.used.iter().map(|(thread, used)| {
            let before = self.used.get(thread).copied().unwrap_or(0);
            used.saturating_sub(before)
        });
        Ok(spent.sum::<u64>() as f64)
    }
}

/// The memory that process `pid` holds in RAM, in KiB.
pub(crate) fn resident_kib(pid: u32) -> anyhow::Result<f64> {
    field(Path::new(&format!("/proc/{pid}/status")), "VmRSS:")
}

/// How many files and sockets a process started from here may have open.
pub(crate) fn open_files_max() -> anyhow::Result<usize> {
    field(Path::new("/proc/self/limits"), "Max open files").map(|number| number as usize)
}

fn field(path: &Path, name: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|line| line.split_whitespace().next());
    let number = word.map(|word| if word == "unlimited" { "1e9" } else { word });
    let number = number.and_then(|number| number.parse().ok());
    number.with_context(|| format!("{} has no number after {name:?}", path.display()))
}

/// A column: its key in JSON, its heading in text, and how many decimals it shows.
pub(crate) type Column = (&'static str, &'static str, usize);

/// The figures of one row of the benches.
pub(crate) struct Table {
    name: &'static str,
    columns: &'static [Column],
    lines: Vec<(String, Vec<Option<Spread>>)>,
    notes: Vec<String>,
}

impl Table {
    /// An empty table with these columns, beside the first one, which names the line.
    pub(crate) fn new(name: &'static str, columns: &'static [Column]) -> Table {
        Table {
            name,
            columns,
            lines: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a line; a figure that does not apply is none.
    pub(crate) fn line(&mut self, label: impl Into<String>, figures: Vec<Option<f64>>) {
        let once = |median| Spread { median, range: None };
        let figures = figures.into_iter().map(|figure| figure.map(once));
        self.spreads(label, figures.collect());
    }

    /// Adds a line of figures with their spread: in text `median (least..greatest)`, in JSON with `_min` and `_max`
    /// beside the median.
    pub(crate) fn spreads(&mut self, label: impl Into<String>, figures: Vec<Option<Spread>>) {
        self.lines.push((label.into(), figures));
    }

    /// Adds a sentence below the table.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The table in Markdown.
    pub(crate) fn text(&self) -> String {
        let show = |figure: &Option<Spread>, decimals| {
            figure.map_or_else(|| "-".to_owned(), |figure| figure.text(decimals))
        };
        let heading = self.columns.iter().map(|(_, heading, _)| (*heading).to_owned());
        let mut lines = vec![std::iter::once(self.name.to_owned()).chain(heading).collect()];
        for (label, figures) in &self.lines {
            let figures = figures.iter().zip(self.columns);
            let cells = figures.map(|(figure, (_, _, decimals))| show(figure, *decimals));
            lines.push(std::iter::once(label.clone()).chain(cells).collect::<Vec<_>>());
        }
        lines.insert(1, vec!["---".to_owned(); self.columns.len() + 1]);
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> = (0..=self.columns.len()).filter_map(width).collect();
        let mut text = String::from("\n");
        for line in &lines {
            let cells = line
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("| {cell:<width$} "));
            text.extend(cells.chain(["|\n".to_owned()]));
        }
        self.notes.iter().for_each(|note| text += &format!("\n{note}"));
        text + "\n"
    }

    /// One JSON object per line and note.
    pub(crate) fn json(&self) -> String {
        let mut text = String::new();
        for (label, figures) in &self.lines {
            let mut object = Map::from_iter([
                ("row".to_owned(), Value::from(self.name)),
                ("what".to_owned(), Value::from(label.as_str())),
            ]);
            for (figure, (key, _, _)) in figures.iter().zip(self.columns) {
                object.insert((*key).to_owned(), json!(figure.map(|figure| figure.median)));
                if let Some((least, most)) = figure.and_then(|figure| figure.range) {
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
