//! Strict parser of `/metrics` (Prometheus text format 0.0.4).

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Families by name.
    pub families: BTreeMap<String, Family>,
}

/// All samples of one name.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Text of HELP.
    pub help: String,
    /// Samples with their names (a histogram has several), labels and values.
    pub samples: Vec<Sample>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name, with a histogram's suffix.
    pub name: String,
    /// Labels in the order of the page.
    pub labels: Vec<(String, String)>,
    /// Value: any number.
    pub value: f64,
}

impl Metrics {
    /// Parses a page.
    ///
    /// # Panics
    /// Panics if the page breaks the format: a sample without HELP and TYPE, a family in two
    /// pieces, a series twice, a counter without `_total`, a malformed label or number, a histogram
    /// whose buckets do not rise or do not end in its count.
    #[track_caller]
    pub fn parse(page: &str) -> Self {
        assert!(page.ends_with('\n'), "the last line must end");
        let mut metrics = Self::default();
        let mut family = String::new();
        let mut typed = false;
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) =
                    rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
                let new = Family { help: help.to_owned(), ..Family::default() };
                let before = metrics.families.insert(name.to_owned(), new);
                assert!(before.is_none(), "{name} occurs in two places");
                (family, typed) = (name.to_owned(), false);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) =
                    rest.split_once(' ').unwrap_or_else(|| panic!("no type: {line}"));
                assert!(name == family && !typed, "TYPE follows HELP, once: {line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                metrics.families.get_mut(name).expect("just inserted").kind = kind.to_owned();
                typed = true;
            } else {
                let sample = parse_sample(line);
                let bare =
                    ["_bucket", "_sum", "_count"].iter().find_map(|s| sample.name.strip_suffix(s));
                assert!(typed, "a sample before its TYPE: {line}");
                let into = metrics.families.get_mut(&family).expect("a family is open");
                let named =
                    if into.kind == "histogram" { bare } else { Some(sample.name.as_str()) };
                assert_eq!(
                    named,
                    Some(family.as_str()),
                    "a sample among those of {family}: {line}"
                );
                let twice =
                    into.samples.iter().any(|s| s.name == sample.name && s.labels == sample.labels);
                assert!(!twice, "a series twice: {line}");
                into.samples.push(sample);
            }
        }
        metrics.families.values().filter(|f| f.kind == "histogram").for_each(check_histogram);
        metrics
    }

    /// Returns the sum over all samples of that name whose labels contain `labels`.
    ///
    /// # Panics
    /// Panics if there is no such sample: a test with a misspelled name must not read 0.
    #[track_caller]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found: Vec<f64> =
            self.samples(name).filter(|s| s.has(labels)).map(|s| s.value).collect();
        assert!(!found.is_empty(), "no sample {name} {labels:?}");
        found.iter().sum()
    }

    /// Returns [`Self::sum`], or 0 if there is no sample with such labels; the name must exist.
    #[track_caller]
    pub fn sum_or_zero(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        assert!(
            self.samples(name).next().is_some() || self.families.contains_key(name),
            "no family {name}"
        );
        self.samples(name).filter(|s| s.has(labels)).map(|s| s.value).sum()
    }

    fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> + 'a {
        self.families.values().flat_map(|f| &f.samples).filter(move |s| s.name == name)
    }
}

impl Sample {
    pub fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.labels.iter().any(|(n, v)| n == name && v == value))
    }
}

fn parse_sample(line: &str) -> Sample {
    let bad = || -> ! { panic!("malformed sample: {line}") };
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| bad());
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number.parse().unwrap_or_else(|_| bad()),
    };
    let (name, labels) = match series.split_once('{') {
        None => (series, Vec::new()),
        Some((name, rest)) => {
            (name, parse_labels(rest.strip_suffix('}').unwrap_or_else(|| bad()), line))
        }
    };
    let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_' || b == b':';
    if name.is_empty()
        || !letter(name.as_bytes()[0])
        || !name.bytes().all(|b| letter(b) || b.is_ascii_digit())
    {
        bad();
    }
    Sample { name: name.to_owned(), labels, value }
}

fn parse_labels(text: &str, line: &str) -> Vec<(String, String)> {
    let bad = || -> ! { panic!("malformed labels: {line}") };
    let mut labels = Vec::new();
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| bad());
        let plain =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !plain || labels.iter().any(|(n, _)| n == name) {
            bad();
        }
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next() {
                Some((at, '"')) => break at,
                Some((_, '\\')) => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, c @ ('\\' | '"'))) => value.push(c),
                    _ => bad(),
                },
                Some((_, c)) => value.push(c),
                None => bad(),
            }
        };
        labels.push((name.to_owned(), value));
        match &after[end + 1..] {
            "" => return labels,
            more => rest = more.strip_prefix(',').unwrap_or_else(|| bad()),
        }
    }
}

fn check_histogram(family: &Family) {
    let without_le = |s: &Sample| -> Vec<(String, String)> {
        s.labels.iter().filter(|(name, _)| name != "le").cloned().collect()
    };
    for count in family.samples.iter().filter(|s| s.name.ends_with("_count")) {
        let buckets: Vec<&Sample> = family
            .samples
            .iter()
            .filter(|s| s.name.ends_with("_bucket") && without_le(s) == count.labels)
            .collect();
        let bounds: Vec<f64> = buckets
            .iter()
            .map(|s| s.labels.iter().find(|(name, _)| name == "le").expect("a bucket has a bound"))
            .map(|(_, le)| {
                if le == "+Inf" { f64::INFINITY } else { le.parse().expect("a bound is a number") }
            })
            .collect();
        assert!(bounds.windows(2).all(|w| w[0] < w[1]), "bounds must rise: {bounds:?}");
        assert_eq!(bounds.last(), Some(&f64::INFINITY), "{}", count.name);
        assert!(
            buckets.windows(2).all(|w| w[0].value <= w[1].value),
            "buckets must not fall: {buckets:?}"
        );
        assert_eq!(buckets.last().map(|s| s.value), Some(count.value), "{}", count.name);
    }
}
