//! The Prometheus text format (version 0.0.4).
//!
//! Reference `metrics`: # Metrics
//!
//! `GET /metrics` on the admin address answers in the Prometheus text format (0.0.4). Names with
//! `_total` are counters, others gauges unless called a histogram. Labels are in parentheses.
//! **Any**: look into it when it rises. The label `source` is the name of a
//! [source](configuration.md#several-databases), `default` where the file gives none; that of
//! `hotrow_pressure` is a source of pressure. [Alerts and a
//! dashboard](production.md#watching-it).

use std::fmt::Write as _;

use hotrow_measure::histogram::Histogram;

/// Names and values of the labels of one sample.
pub type Labels<'a, const N: usize> = [(&'a str, &'a str); N];

/// Builder of one page of metrics, family by family. Names follow the Prometheus conventions: base
/// units, `_total` on counters; a debug build refuses others, and repeated families.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    families: Vec<String>,
}

/// A sample's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// Anything else.
    Real(f64),
}

/// Mapping of a histogram's values to a metric: the unit and the bounds of its buckets.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Recorded values per base unit.
    per_unit: f64,
    /// Upper bounds in recorded values, ascending.
    bounds: &'static [u64],
}

impl Scale {
    /// Nanoseconds, shown as seconds: 1 µs to 10 s in steps of 1, 2.5, 5.
    pub const LATENCY: Self = Self {
        per_unit: 1e9,
        bounds: &[
            1_000,
            2_500,
            5_000,
            10_000,
            25_000,
            50_000,
            100_000,
            250_000,
            500_000,
            1_000_000,
            2_500_000,
            5_000_000,
            10_000_000,
            25_000_000,
            50_000_000,
            100_000_000,
            250_000_000,
            500_000_000,
            1_000_000_000,
            2_500_000_000,
            5_000_000_000,
            10_000_000_000,
        ],
    };
    /// Plain numbers, such as keys per query: powers of two up to 1,024.
    pub const SIZE: Self =
        Self { per_unit: 1.0, bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] };
}

impl From<u64> for Number {
    fn from(n: u64) -> Self {
        Self::Whole(n)
    }
}

impl From<f64> for Number {
    fn from(n: f64) -> Self {
        Self::Real(n)
    }
}

impl Exposition {
    /// Writes a family of counters; the name ends in `_total`.
    pub fn counter<'a, const N: usize, V: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a, N>, V)>,
    ) {
        debug_assert!(name.ends_with("_total"), "{name}: a counter's name ends in _total");
        self.family(name, help, "counter");
        for (labels, value) in samples {
            self.sample(name, &labels, None, value.into());
        }
    }

    /// Writes a family of gauges.
    pub fn gauge<'a, const N: usize, V: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a, N>, V)>,
    ) {
        debug_assert!(!name.ends_with("_total"), "{name}: only a counter's name ends in _total");
        self.family(name, help, "gauge");
        for (labels, value) in samples {
            self.sample(name, &labels, None, value.into());
        }
    }

    /// Writes a family of histograms. A bucket counts the samples up to its bound; samples up to
    /// 1/64 above it may be included, because of the histogram's own resolution.
    pub fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        scale: Scale,
        samples: impl IntoIterator<Item = (Labels<'a, 1>, &'a Histogram)>,
    ) {
        self.family(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        for (labels, histogram) in samples {
            let labels = &labels;
            for bound in scale.bounds {
                let le = (*bound as f64 / scale.per_unit).to_string();
                self.sample(&bucket, labels, Some(&le), histogram.count_up_to(*bound).into());
            }
            self.sample(&bucket, labels, Some("+Inf"), histogram.count().into());
            self.sample(
                &format!("{name}_sum"),
                labels,
                None,
                (histogram.sum() as f64 / scale.per_unit).into(),
            );
            self.sample(&format!("{name}_count"), labels, None, histogram.count().into());
        }
    }

    /// Returns the page, to be sent as `text/plain; version=0.0.4; charset=utf-8`.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    fn family(&mut self, name: &str, help: &str, kind: &str) {
        debug_assert!(
            !self.families.iter().any(|known| known == name),
            "{name}: a family is written once"
        );
        self.families.push(name.to_owned());
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], le: Option<&str>, value: Number) {
        self.text.push_str(name);
        let mut separator = '{';
        for (label, value) in labels.iter().copied().chain(le.map(|le| ("le", le))) {
            self.text.push(separator);
            separator = ',';
            let _ = write!(self.text, "{label}=\"{}\"", escaped(value));
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = match value {
            Number::Whole(n) => writeln!(self.text, " {n}"),
            Number::Real(n) if n.is_nan() => writeln!(self.text, " NaN"),
            Number::Real(n) if n.is_infinite() => {
                writeln!(self.text, " {}Inf", if n > 0.0 { '+' } else { '-' })
            }
            Number::Real(n) => writeln!(self.text, " {n}"),
        };
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
