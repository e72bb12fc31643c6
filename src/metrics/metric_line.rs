//! One line of the text that the exporter writes (the text format of Prometheus, version 0.0.4), for readers
//! of our own metrics.

/// A name, labels and a value.
pub(crate) struct MetricLine<'a> {
    pub(crate) name: &'a str,
    labels: &'a str,
    pub(crate) value: f64,
}

impl<'a> MetricLine<'a> {
    /// Reads a line; none for a comment, an empty line, and one that is not of the format.
    pub(crate) fn parse(line: &'a str) -> Option<MetricLine<'a>> {
        if line.starts_with('#') {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (series, ""),
        };
        Some(MetricLine { name, labels, value })
    }

    /// The value of a label. Those that are read here have no escapes and no quotes in them.
    pub(crate) fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        while let Some((label, after)) = rest.split_once("=\"") {
            let (value, next) = after.split_once('"')?;
            if label.trim_start_matches(',') == name {
                return Some(value);
            }
            rest = next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_in_any_place() {
        let line = MetricLine::parse("x_total{a=\"1\",kind=\"tool\"} 4").unwrap();
        assert_eq!((line.name, line.value), ("x_total", 4.0));
        assert_eq!(line.label("a"), Some("1"));
        assert_eq!(line.label("kind"), Some("tool"));
        assert_eq!(line.label("ind"), None);
    }

    #[test]
    fn other_lines_are_none() {
        for line in ["", "# TYPE x gauge", "nothing", "x nan1", "x{a=\"1\" 4"] {
            assert!(MetricLine::parse(line).is_none(), "{line}");
        }
    }
}
