//! The big figures at the head of the page, each with the change since the earlier run.

use crate::bench::report::compare::{Better, Judgement};
use crate::bench::report::html::Shown;
use crate::bench::report::html::text::{count, datum, escape, kib, micros, percent};
use crate::bench::report::{GroupReport, Report};

/// A big figure.
struct Tile {
    title: &'static str,
    /// The field of the report.
    field: String,
    value: f64,
    show: fn(f64) -> String,
    better: Better,
    hint: String,
}

/// Returns the big figures as HTML.
pub(crate) fn tiles(shown: &Shown<'_>) -> String {
    let before = match &shown.earlier {
        Some((_, report)) => all(report),
        None => Vec::new(),
    };
    let mut html = String::new();
    for tile in all(shown.report) {
        let before = before.iter().find(|earlier| earlier.title == tile.title);
        html += &tile.html(before);
    }
    let mut html = format!("<dl class=\"figures\">{html}</dl>\n");
    if shown.report.server.is_none() {
        html += "<p class=\"soft\">CPU and memory of the server were not measured: <code>--pid</code> names its \
                 process, or <code>--serve-command</code> starts it.</p>\n";
    }
    html
}

impl Tile {
    fn html(&self, before: Option<&Tile>) -> String {
        let is_bad = self.field.ends_with("missing_finals") && self.value > 0.0;
        let class = if is_bad { "card figure bad" } else { "card figure" };
        let mut html = format!(
            "<div class=\"{class}\"><dt>{}</dt><dd class=\"big\">{}</dd><dd class=\"soft\">{}</dd>",
            escape(self.title),
            datum(&self.field, self.value, &(self.show)(self.value)),
            escape(&self.hint),
        );
        if let Some(before) = before {
            html += &self.change(before);
        }
        html + "</div>"
    }

    /// Says by how much the figure differs from the earlier one.
    fn change(&self, before: &Tile) -> String {
        let was = (self.show)(before.value);
        let (class, verdict) = match self.better.judge(before.value, self.value) {
            Judgement::Better => ("better", "✓ better, "),
            Judgement::Worse => ("worse", "▲ worse, "),
            Judgement::None => ("same", ""),
        };
        let difference = match before.value {
            0.0 => String::new(),
            before => {
                let share = (self.value - before) / before;
                let side = if share < 0.0 { "lower" } else { "higher" };
                match share.abs() {
                    // Of a share that rounds to nothing neither is true.
                    ..0.005 => "as before; ".to_owned(),
                    share => format!("{} % {side}; ", count((share * 100.0).round())),
                }
            }
        };
        let text = escape(&format!("{verdict}{difference}it was {was}"));
        format!("<dd class=\"change {class}\">{text}</dd>")
    }
}

/// The kind of clients whose figures stand at the head: those that read, or the first with latencies.
pub(crate) fn main_group(report: &Report) -> Option<(usize, &GroupReport)> {
    let groups = &report.groups;
    let reading = groups.iter().position(|group| group.name == "reading");
    let index = reading
        .or_else(|| groups.iter().position(|group| group.latency.count > 0))
        .unwrap_or(0);
    Some((index, groups.get(index)?))
}

fn all(report: &Report) -> Vec<Tile> {
    let mut tiles = Vec::new();
    if let Some((index, group)) = main_group(report) {
        tiles.extend(latency(index, group));
    }
    tiles.push(Tile {
        title: "Notices per second",
        field: "deliveries_per_s".to_owned(),
        value: report.deliveries_per_s,
        show: count,
        better: Better::Higher,
        hint: format!(
            "{} in {:.1} s",
            count(report.deliveries as f64),
            report.measured_s
        ),
    });
    tiles.push(Tile {
        title: "Sessions",
        field: "opened.sessions".to_owned(),
        value: report.opened.sessions as f64,
        show: count,
        better: Better::Neither,
        hint: format!("opened in {:.1} s", report.opened.seconds),
    });
    if let Some((index, group)) = main_group(report) {
        tiles.extend(outcome(index, group));
    }
    tiles.extend(costs(report));
    tiles
}

fn latency(index: usize, group: &GroupReport) -> Option<Tile> {
    let latency = &group.latency;
    if latency.count == 0 {
        return None;
    }
    let p50 = micros(latency.p50_us as f64);
    let max = micros(latency.max_us as f64);
    Some(Tile {
        title: "p99 latency",
        field: format!("groups.{index}.latency.p99_us"),
        value: latency.p99_us as f64,
        show: micros,
        better: Better::Lower,
        hint: format!("p50 {p50}, longest {max}"),
    })
}

fn outcome(index: usize, group: &GroupReport) -> [Tile; 2] {
    let told = count(group.deliveries as f64);
    let owed = count(group.owed as f64);
    [
        Tile {
            title: "Missing final states",
            field: format!("groups.{index}.missing_finals"),
            value: group.missing_finals as f64,
            show: count,
            better: Better::Lower,
            hint: "subscriptions without the newest state".to_owned(),
        },
        Tile {
            title: "Updates merged",
            field: format!("groups.{index}.conflated"),
            value: group.conflated as f64,
            show: count,
            better: Better::Neither,
            hint: match group.owed {
                0 => String::new(),
                all => {
                    let share = percent(group.conflated as f64 / all as f64);
                    format!("{share}: {told} notices for {owed} owed")
                }
            },
        },
    ]
}

fn costs(report: &Report) -> Vec<Tile> {
    let mut tiles = Vec::new();
    let Some(server) = &report.server else {
        return tiles;
    };
    if let Some(cost) = server.cpu_us_per_delivery {
        tiles.push(Tile {
            title: "Server CPU per notice",
            field: "server.cpu_us_per_delivery".to_owned(),
            value: cost,
            show: |us| format!("{} µs", count(us)),
            better: Better::Lower,
            hint: match server.cpu_percent {
                Some(cpu) => format!("{} % of a core", count(cpu.round())),
                None => String::new(),
            },
        });
    }
    if let Some(memory) = server.kib_per_session {
        tiles.push(Tile {
            title: "Server memory per session",
            field: "server.kib_per_session".to_owned(),
            value: memory,
            show: kib,
            better: Better::Lower,
            hint: match server.after_kib {
                Some(after) => format!("{} at the end", kib(after as f64)),
                None => String::new(),
            },
        });
    }
    tiles
}
