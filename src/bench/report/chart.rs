//! Line charts as SVG: scales, ticks and paths. The colours are classes of the page around them.

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 32.0;
const TICKS: usize = 4;

/// One line.
pub(crate) struct Line<'l> {
    pub(crate) name: &'l str,
    /// The class of its style.
    pub(crate) class: &'l str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws a chart whose x-axis has these ticks (position and label) and whose y-axis begins at 0; `label`
/// formats the values of the y-axis.
pub(crate) fn chart(
    title: &str,
    lines: &[Line<'_>],
    ticks: &[(f64, String)],
    label: impl Fn(f64) -> String,
) -> String {
    let scale = Scale::new(lines, ticks);
    let mut svg = format!(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(title),
        escape(title)
    );
    for tick in 0..=TICKS {
        let value = scale.y_max * tick as f64 / TICKS as f64;
        let at = scale.y(value);
        svg += &format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            escape(&label(value))
        );
    }
    for (at, text) in ticks {
        svg += &format!(
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            scale.x(*at),
            HEIGHT - 10.0,
            escape(text)
        );
    }
    for line in lines.iter().filter(|line| !line.points.is_empty()) {
        let points = line.points.iter();
        let points: Vec<String> = points
            .map(|(at, value)| format!("{:.1},{:.1}", scale.x(*at), scale.y(*value)))
            .collect();
        svg += &format!(
            "<polyline class=\"line {}\" points=\"{}\"><title>{}</title></polyline>",
            line.class,
            points.join(" "),
            escape(line.name)
        );
    }
    svg + "</svg></figure>"
}

/// The largest values of both axes.
struct Scale {
    x_max: f64,
    y_max: f64,
}

impl Scale {
    fn new(lines: &[Line<'_>], ticks: &[(f64, String)]) -> Scale {
        // Never 0, because positions are divided by it.
        let mut x_max: f64 = 1e-9;
        let mut y_max: f64 = 0.0;
        for (x, y) in lines.iter().flat_map(|line| &line.points) {
            x_max = x_max.max(*x);
            y_max = y_max.max(*y);
        }
        for (at, _) in ticks {
            x_max = x_max.max(*at);
        }
        Scale {
            x_max,
            y_max: round_up(y_max),
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.y_max * (HEIGHT - TOP - BOTTOM)
    }
}

/// Returns the next of 1, 2, 2.5, 5, 10, 20, … that is not below.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    // Round steps, so that the labels of the axis stay short.
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value).unwrap_or(value)
}

/// Escapes text for HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(
            [0.0, 0.7, 1.0, 13.0, 2_400.0, 9_999.0].map(round_up),
            [1.0, 1.0, 1.0, 20.0, 2_500.0, 10_000.0]
        );
    }

    #[test]
    fn points_stay_in_frame_and_text_is_escaped() {
        let line = Line {
            name: "a<b",
            class: "one",
            points: vec![(0.0, 0.0), (10.0, 100.0)],
        };
        let svg = chart(
            "t & u",
            &[line],
            &[(0.0, "0".to_owned()), (10.0, "10 s".to_owned())],
            |value| format!("{value}"),
        );
        assert!(svg.contains("points=\"64.0,208.0 704.0,16.0\""), "{svg}");
        assert!(svg.contains("t &amp; u") && svg.contains("a&lt;b"), "{svg}");
    }
}
