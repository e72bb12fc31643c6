//! The tables of the page: the kinds of clients, the comparison with the earlier run, and the settings.

use crate::bench::report::compare::{Judgement, pairs, plain, ratio, show};
use crate::bench::report::html::Shown;
use crate::bench::report::html::text::{count, datum, escape, foreign, micros};
use crate::bench::report::{Report, Spread};

/// A cell, as HTML.
pub(crate) struct Cell {
    html: String,
    class: &'static str,
}

impl Cell {
    /// A text of our own.
    pub(crate) fn text(text: &str) -> Cell {
        Cell::html(escape(text))
    }

    pub(crate) fn html(html: String) -> Cell {
        Cell { html, class: "" }
    }
}

/// Returns a table whose first cells are the heads of its rows. It scrolls by itself where it is too wide.
pub(crate) fn table(caption: &str, heads: &[&str], rows: Vec<Vec<Cell>>) -> String {
    let mut html = String::new();
    for head in heads {
        html += &match *head {
            // An empty head would be one that says nothing.
            "" => "<td></td>".to_owned(),
            head => format!("<th scope=\"col\">{}</th>", escape(head)),
        };
    }
    html = format!("<thead><tr>{html}</tr></thead><tbody>");
    for row in rows {
        html += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let tag = if column == 0 { "th scope=\"row\"" } else { "td" };
            let end = if column == 0 { "th" } else { "td" };
            let class = match cell.class {
                "" => String::new(),
                class => format!(" class=\"{class}\""),
            };
            html += &format!("<{tag}{class}>{}</{end}>", cell.html);
        }
        html += "</tr>";
    }
    // By keyboard it scrolls when it has the focus.
    let caption = escape(caption);
    format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{caption}\"><table>\
         <caption class=\"unseen\">{caption}</caption>{html}</tbody></table></div>"
    )
}

/// The kinds of clients.
pub(crate) fn clients(report: &Report) -> String {
    let mut rows = Vec::new();
    for (index, group) in report.groups.iter().enumerate() {
        let mut row = vec![Cell::html(foreign(&group.name))];
        for (field, value) in [
            ("clients", group.clients),
            ("owed", group.owed),
            ("deliveries", group.deliveries),
            ("conflated", group.conflated),
            ("untold", group.untold),
            ("missing_finals", group.missing_finals),
        ] {
            let value = value as f64;
            row.push(Cell::html(datum(
                &format!("groups.{index}.{field}"),
                value,
                &count(value),
            )));
        }
        row.extend(times(&format!("groups.{index}.latency"), &group.latency));
        rows.push(row);
        if group.conflated > 0 {
            let mut row = vec![Cell::text("since the oldest merged")];
            row.extend((0..6).map(|_| Cell::text("")));
            row.extend(times(&format!("groups.{index}.age"), &group.age));
            rows.push(row);
        }
    }
    let heads = [
        "kind", "clients", "owed", "told", "merged", "untold", "missing", "p50", "p90", "p99", "p99.9", "max",
    ];
    table("Kinds of clients", &heads, rows)
}

fn times(field: &str, spread: &Spread) -> Vec<Cell> {
    let times = [
        ("p50_us", spread.p50_us),
        ("p90_us", spread.p90_us),
        ("p99_us", spread.p99_us),
        ("p99_9_us", spread.p99_9_us),
        ("max_us", spread.max_us),
    ];
    let mut cells = Vec::new();
    for (name, us) in times {
        let us = us as f64;
        cells.push(match spread.count {
            0 => Cell::text("–"),
            _ => Cell::html(datum(&format!("{field}.{name}"), us, &micros(us))),
        });
    }
    cells
}

/// Every figure of both runs.
pub(crate) fn comparison(shown: &Shown<'_>) -> String {
    let Some((name, earlier)) = shown.earlier else {
        return String::new();
    };
    let mut rows = Vec::new();
    for pair in pairs(earlier, shown.report) {
        let change = match (pair.first, pair.second) {
            (Some(first), Some(second)) => pair.better.judge(first, second),
            _ => Judgement::None,
        };
        let (class, word) = match change {
            Judgement::Better => ("better", "✓ better"),
            Judgement::Worse => ("worse", "▲ worse"),
            Judgement::None => ("", ""),
        };
        rows.push(vec![
            Cell::html(foreign(&pair.name)),
            Cell::text(&show(pair.first)),
            Cell::text(&show(pair.second)),
            Cell::text(&ratio(pair.first, pair.second)),
            Cell {
                html: word.to_owned(),
                class,
            },
        ]);
    }
    let heads = ["figure", name, shown.name, "ratio", "change"];
    let caption =
        "The ratio is the later run divided by the earlier one; changes of less than 5 % are not judged.";
    format!(
        "<section class=\"card\"><h2>Both runs</h2><p class=\"soft\">{caption}</p>{}</section>\n",
        table("Both runs", &heads, rows)
    )
}

/// How far the figures can be trusted: the part of the test itself in them.
pub(crate) fn measurement(report: &Report) -> String {
    let mut rows = Vec::new();
    let updates = &report.updates;
    if updates.sent > 0 {
        rows.push(pair(
            "updates sent",
            datum("updates.sent", updates.sent as f64, &count(updates.sent as f64)),
        ));
        for (name, field, spread) in [
            ("due to written, the delay of this test", "lag", &updates.lag),
            (
                "written to answered, the time of the server",
                "answer",
                &updates.answer,
            ),
        ] {
            let p50 = time(&format!("updates.{field}.p50_us"), spread.p50_us);
            let p99 = time(&format!("updates.{field}.p99_us"), spread.p99_us);
            rows.push(pair(name, format!("p50 {p50}, p99 {p99}")));
        }
    }
    if let Some(cost) = report.own.cpu_us_per_delivery {
        let shown = format!("{} µs", count(cost));
        rows.push(pair(
            "CPU of this test per notice",
            datum("own.cpu_us_per_delivery", cost, &shown),
        ));
    }
    if let Some(floor) = &report.calibration {
        let p50 = time("calibration.p50_us", floor.p50_us);
        let p99 = time("calibration.p99_us", floor.p99_us);
        rows.push(pair(
            "latency against bare sockets, which no server can be below",
            format!("p50 {p50}, p99 {p99}"),
        ));
    }
    table("The measurement", &["", "value"], rows)
}

fn pair(name: &str, value: String) -> Vec<Cell> {
    vec![Cell::text(name), Cell::html(value)]
}

/// The settings of both runs; the ones that differ are marked.
pub(crate) fn settings(shown: &Shown<'_>) -> String {
    let mut rows = Vec::new();
    for (name, value) in shown.report.settings.as_object().into_iter().flatten() {
        let now = plain(value);
        let mut row = vec![Cell::html(foreign(name))];
        let mut class = "";
        if let Some((_, earlier)) = shown.earlier {
            let before = plain(&earlier.settings[name]);
            class = if before == now { "" } else { "differs" };
            row.push(Cell::html(foreign(&before)));
        }
        let html = foreign(&now);
        row.push(Cell { html, class });
        rows.push(row);
    }
    // The earlier run first, as in the comparison.
    let mut heads = vec!["setting"];
    match shown.earlier {
        Some((name, _)) => heads.extend([name, shown.name]),
        None => heads.push("value"),
    }
    table("Settings", &heads, rows)
}

/// A time in microseconds, as an element that has the figure.
fn time(field: &str, us: u64) -> String {
    datum(field, us as f64, &micros(us as f64))
}
