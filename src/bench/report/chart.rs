//! Line charts: the lines as SVG, which is stretched to the room there is, and the labels as text beside it,
//! which stays readable on a phone. The colours are classes of the page around them.

use crate::bench::report::axis::Axis;
use crate::bench::report::html::text::escape;

/// The sides of the drawing; it is stretched, so they are the steps of its grid alone.
const SIDE: f64 = 1_000.0;
/// Lines with more points than this have no marks with the values.
const MARKS_MAX: usize = 130;

/// One line.
pub(crate) struct Line<'l> {
    pub(crate) name: String,
    /// The classes of its style.
    pub(crate) class: &'l str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A label below the chart.
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) label: String,
    /// Left out where there is little room.
    pub(crate) is_minor: bool,
}

/// A chart.
pub(crate) struct Chart<'c> {
    pub(crate) title: &'c str,
    /// The meaning of both axes.
    pub(crate) note: String,
    pub(crate) x_max: f64,
    pub(crate) x_ticks: Vec<Tick>,
    pub(crate) y: Axis,
    /// Writes a value of the y-axis.
    pub(crate) label: fn(f64) -> String,
    pub(crate) lines: Vec<Line<'c>>,
    /// The same figures as a table, as HTML.
    pub(crate) twin: String,
}

impl Chart<'_> {
    /// Returns the chart as HTML.
    pub(crate) fn html(&self) -> String {
        let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
        let described = format!("{}: {}. {}", self.title, names.join(", "), self.note);
        let note = match self.y.is_log {
            true => format!("{} The axis is logarithmic.", self.note),
            false => self.note.clone(),
        };
        format!(
            "<figure class=\"card\"><figcaption><h3>{}</h3><p class=\"soft\">{}</p>{}</figcaption>\
             <div class=\"plot\" role=\"img\" aria-label=\"{}\"><div class=\"area\">{}{}</div></div>\
             <details><summary>As a table<span class=\"unseen\">: {}</span></summary>{}</details></figure>\n",
            escape(self.title),
            escape(&note),
            self.legend(),
            escape(&described),
            self.drawing(),
            self.labels(),
            escape(self.title),
            self.twin,
        )
    }

    fn legend(&self) -> String {
        let mut entries = String::new();
        for line in &self.lines {
            let name = escape(&line.name);
            entries += &format!("<li><i class=\"key {}\"></i>{name}</li>", line.class);
        }
        format!("<ul class=\"legend\">{entries}</ul>")
    }

    fn drawing(&self) -> String {
        let mut svg = format!(
            "<svg viewBox=\"0 0 {SIDE} {SIDE}\" preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\">"
        );
        for tick in &self.y.ticks {
            let at = self.y_place(*tick) * SIDE;
            svg += &format!("<path class=\"grid\" d=\"M0 {at:.1}H{SIDE}\"/>");
        }
        for tick in &self.x_ticks {
            let at = self.x_place(tick.at) * SIDE;
            svg += &format!("<path class=\"grid x\" d=\"M{at:.1} 0V{SIDE}\"/>");
        }
        for line in &self.lines {
            svg += &self.line(line);
        }
        svg + "</svg>"
    }

    fn line(&self, line: &Line<'_>) -> String {
        let mut places = Vec::with_capacity(line.points.len());
        for (x, y) in &line.points {
            let x = self.x_place(*x) * SIDE;
            places.push(format!("{x:.1},{:.1}", self.y_place(*y) * SIDE));
        }
        let mut svg = format!(
            "<polyline class=\"line {}\" points=\"{}\"/>",
            line.class,
            places.join(" ")
        );
        if line.points.len() > MARKS_MAX {
            return svg;
        }
        for (place, (_, y)) in std::iter::zip(&places, &line.points) {
            // A dot is a stroke without length: a circle would be stretched with the drawing.
            let text = escape(&format!("{}: {}", line.name, (self.label)(*y)));
            svg += &format!(
                "<path class=\"mark {}\" d=\"M{place}h0\"><title>{text}</title></path>",
                line.class
            );
        }
        svg
    }

    fn labels(&self) -> String {
        let mut labels = String::new();
        for tick in &self.y.ticks {
            let top = self.y_place(*tick) * 100.0;
            let text = escape(&(self.label)(*tick));
            labels += &format!("<span class=\"y\" style=\"top:{top:.2}%\">{text}</span>");
        }
        for tick in self.x_ticks.iter().filter(|tick| !tick.label.is_empty()) {
            let left = self.x_place(tick.at) * 100.0;
            let class = if tick.is_minor { "x minor" } else { "x" };
            let text = escape(&tick.label);
            labels += &format!("<span class=\"{class}\" style=\"left:{left:.2}%\">{text}</span>");
        }
        labels
    }

    fn x_place(&self, value: f64) -> f64 {
        (value / self.x_max.max(1e-9)).clamp(0.0, 1.0)
    }

    /// The place from the top.
    fn y_place(&self, value: f64) -> f64 {
        1.0 - self.y.place(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stay_in_frame_and_text_is_escaped() {
        let points = vec![(0.0, 0.0), (10.0, 100.0), (99.0, 1e9)];
        let chart = Chart {
            title: "t & u",
            note: String::new(),
            x_max: 10.0,
            x_ticks: vec![Tick {
                at: 10.0,
                label: "<10>".to_owned(),
                is_minor: false,
            }],
            y: Axis::linear(&[100.0]),
            label: |value| format!("{value}"),
            lines: vec![Line {
                name: "a<b".to_owned(),
                class: "one",
                points,
            }],
            twin: String::new(),
        };
        let html = chart.html();
        assert!(
            html.contains("points=\"0.0,1000.0 1000.0,0.0 1000.0,0.0\""),
            "{html}"
        );
        assert!(html.contains("t &amp; u") && html.contains("a&lt;b"), "{html}");
        assert!(html.contains("left:100.00%\">&lt;10&gt;"), "{html}");
        assert!(!html.contains("<b"), "{html}");
    }
}
