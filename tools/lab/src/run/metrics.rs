//! Metrics in the Prometheus text format, as far as sums of series need it.

/// One scrape: series with their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// Parses a page, skipping comments and lines that are not samples.
    pub(super) fn parse(text: &str) -> Self {
        let sample = |line: &str| {
            let line = line.trim();
            // The value follows the labels, whose values may contain blanks; a time stamp may
            // follow it.
            let end = line.rfind('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
            let value = line[end..].split_ascii_whitespace().next()?.parse().ok()?;
            Some((line[..end].to_owned(), value))
        };
        Self(
            text.lines()
                .filter(|line| !line.trim_start().starts_with('#'))
                .filter_map(sample)
                .collect(),
        )
    }

    /// Returns the sum of all series that match one of `wanted`; `None` if none does.
    pub(super) fn sum<'a>(&self, wanted: impl IntoIterator<Item = &'a String>) -> Option<f64> {
        let mut sum = None;
        for wanted in wanted {
            for (_, value) in self.0.iter().filter(|(series, _)| matches(series, wanted)) {
                *sum.get_or_insert(0.0) += value;
            }
        }
        sum
    }
}

/// Returns whether a series has the wanted name and labels.
fn matches(series: &str, wanted: &str) -> bool {
    let parts = |text: &str| {
        let (name, labels) = text.split_once('{').unwrap_or((text, ""));
        let labels: Vec<String> =
            labels.trim_end_matches('}').split(',').map(str::trim).map(str::to_owned).collect();
        (name.trim().to_owned(), labels)
    };
    let ((name, labels), (wanted_name, wanted_labels)) = (parts(series), parts(wanted));
    name == wanted_name
        && wanted_labels.iter().all(|label| label.is_empty() || labels.contains(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP hits Hits.\n# TYPE hits counter\nhits{kind=\"a\",path=\"/x y\"} \
                        3\nhits{kind=\"b\"} 4 1700000000\n\
                        hits_total 100\nbytes 1.5e3\nbroken\n";

    #[test]
    fn series_are_summed() {
        let metrics = Metrics::parse(PAGE);
        let sum = |metrics: &Metrics, wanted: &[&str]| {
            metrics.sum(&wanted.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(sum(&metrics, &["hits"]), Some(7.0));
        assert_eq!(sum(&metrics, &["hits{kind=\"a\"}"]), Some(3.0));
        assert_eq!(sum(&metrics, &["hits{kind=\"a\"}", "bytes"]), Some(1503.0));
        assert_eq!(sum(&metrics, &["hits{kind=\"c\"}", "hit"]), None);
    }
}
