//! A report as one page without scripts or other files: the verdict and the big figures first, then charts as
//! SVG and tables; in light and dark, on a phone and on paper.
//!
//! Its policy allows no script and no request, whatever the names in the report try.

pub(crate) mod text;
pub(crate) mod tables;
pub(crate) mod charts;
pub(crate) mod figures;

use std::time::{Duration, UNIX_EPOCH};

use crate::bench::report::Report;
use crate::bench::report::compare::differences;
use crate::timestamp;
use figures::tiles;
use text::{count, escape, foreign};

const STYLE: &str = include_str!("html/report.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const LOGO: &str = "<svg viewBox=\"0 0 32 32\" width=\"24\" height=\"24\" aria-hidden=\"true\">\
    <rect class=\"tile\" width=\"32\" height=\"32\" rx=\"8\"/><path class=\"tee\" d=\"M8 11h16M16 11v12\"/>\
    <circle class=\"dot\" cx=\"24\" cy=\"21\" r=\"2.5\"/></svg>";
/// Problems that are shown, each with a line.
const PROBLEMS_MAX: usize = 50;
/// Years beyond this are no time of a run.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The report that is shown, and the one to compare it with, each with its name.
pub(crate) struct Shown<'r> {
    pub(crate) name: &'r str,
    pub(crate) report: &'r Report,
    pub(crate) earlier: Option<(&'r str, &'r Report)>,
}

impl<'r> Shown<'r> {
    /// The report and the earlier one.
    pub(crate) fn reports(&self) -> impl Iterator<Item = (&'r str, &'r Report)> + use<'r> {
        [Some((self.name, self.report)), self.earlier]
            .into_iter()
            .flatten()
    }
}

/// Returns the page of a report; with an earlier one beside it, each under its name.
pub fn html(report: (&str, &Report), earlier: Option<(&str, &Report)>) -> String {
    let shown = Shown {
        name: report.0,
        report: report.1,
        earlier,
    };
    let report = shown.report;
    let title = title(report);
    let mut main = format!("<h1>{}</h1>{}\n", escape(&title), subtitle(&shown));
    main += &verdict(report);
    main += &beside(&shown);
    main += &tiles(&shown);
    let distribution = charts::distribution(&shown);
    if !distribution.is_empty() {
        main += &format!("<h2>Latency</h2>\n{distribution}");
    }
    let courses = charts::courses(&shown);
    if !courses.is_empty() {
        main += &format!("<h2>Second by second</h2>\n<div class=\"two-wide\">{courses}</div>\n");
    }
    main += &tables::comparison(&shown);
    for (title, table) in [
        ("Clients", tables::clients(report)),
        ("The measurement", tables::measurement(report)),
        ("Settings", tables::settings(&shown)),
    ] {
        main += &format!("<section class=\"card\"><h2>{title}</h2>{table}</section>\n");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} - tidings bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><p class=\"brand\">{LOGO}Tidings <span>load test</span></p></header>\n<main>\n{main}</main>\n\
         <footer>{}</footer>\n</body>\n</html>\n",
        footer(report),
        title = escape(&title),
    )
}

/// Says in a sentence what the load was.
fn title(report: &Report) -> String {
    let settings = &report.settings;
    let sessions = count(settings["sessions"].as_f64().unwrap_or_default());
    let pace = match (settings["rate"].as_f64(), settings["flat_out"].as_bool()) {
        _ if report.matching == "none" => "only listening".to_owned(),
        (_, Some(true)) => "updates flat out".to_owned(),
        (rate, _) => format!("{} updates a second", count(rate.unwrap_or_default())),
    };
    format!("{sessions} sessions, {pace}")
}

fn subtitle(shown: &Shown<'_>) -> String {
    let report = shown.report;
    let settings = &report.settings;
    let url = settings["url"].as_str().unwrap_or_default();
    let matching = match report.matching.as_str() {
        "version" => ", each notice matched by the version in it",
        "order" => ", notices matched by their order",
        _ => "",
    };
    let tls = match settings["tls"].as_str() {
        Some(tls) => format!(" over {tls}"),
        None => String::new(),
    };
    let load = format!(
        "each session subscribed to {} of {} resources{tls}, {:.1} s measured{matching}",
        count(settings["subscribe"].as_f64().unwrap_or_default()),
        count(settings["resources"].as_f64().unwrap_or_default()),
        report.measured_s,
    );
    format!(
        "<p class=\"soft\">{}: {}. {}</p>",
        foreign(url),
        escape(&load),
        ended(report)
    )
}

/// The time of a run.
fn ended(report: &Report) -> String {
    // A report of another program may have any number, and times end before the largest.
    let at = timestamp::utc(UNIX_EPOCH + Duration::from_secs(report.ended_at.min(SECONDS_MAX)));
    let shown = at.replace('T', " ").replace('Z', " UTC");
    format!("<time datetime=\"{}\">{}</time>", escape(&at), escape(&shown))
}

fn verdict(report: &Report) -> String {
    if report.problems.is_empty() {
        let (class, head, text) = match report.matching.as_str() {
            "none" => (
                "same",
                "Listened",
                "nothing was published, so no state could be missed",
            ),
            _ => (
                "good",
                "✓ Passed",
                "every client has the newest state of all it asked for",
            ),
        };
        // By a word and a sign, not by its colour alone: some people do not see the difference.
        return format!("<p class=\"verdict {class}\"><b>{head}</b> {text}</p>\n");
    }
    let mut items = String::new();
    // A run that fails for every session would otherwise make a page of thousands of lines.
    for problem in report.problems.iter().take(PROBLEMS_MAX) {
        items += &format!("<li>{}</li>", foreign(problem));
    }
    if let Some(rest @ 1..) = report.problems.len().checked_sub(PROBLEMS_MAX) {
        items += &format!("<li>and {} more</li>", count(rest as f64));
    }
    let found = match report.problems.len() {
        1 => "1 problem".to_owned(),
        problems => format!("{} problems", count(problems as f64)),
    };
    format!("<div class=\"verdict bad\"><p><b>✗ Failed</b> {found}</p><ul>{items}</ul></div>\n")
}

/// Names the earlier run, and the differences between the loads of both.
fn beside(shown: &Shown<'_>) -> String {
    let Some((name, earlier)) = shown.earlier else {
        return String::new();
    };
    let name = foreign(name);
    let at = ended(earlier);
    let failed = match earlier.problems.is_empty() {
        true => "",
        false => " That run had failed.",
    };
    let differences = differences(earlier, shown.report);
    let (class, loads) = match differences.is_empty() {
        true => ("soft", "Both had the same load.".to_owned()),
        false => (
            "verdict warn",
            format!(
                "<b>▲ The loads differ</b>, so the figures do, too: {}.",
                foreign(&differences.join(", "))
            ),
        ),
    };
    format!("<p class=\"{class}\">Beside it, dashed in the charts: {name} of {at}.{failed} {loads}</p>\n")
}

fn footer(report: &Report) -> String {
    format!(
        "<p>Measured by tidings {}. The rules of latencies and missing states are in the page \
         <i>The load test</i> of its documentation.</p>",
        foreign(&report.version)
    )
}
