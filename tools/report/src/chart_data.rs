//! Content of a plot as JSON, for `charts.js`.

use serde::Serialize;

use crate::plot::{Axis, HeatMap, Lines, MarkedLines, Plot, RulePosition};

/// Significant digits of a value: more than a screen can show.
const DIGITS: i32 = 6;

#[derive(Debug, Serialize)]
struct ChartData<'a> {
    title: &'a str,
    description: &'a str,
    x: Axis,
    y: Axis,
    lines: Vec<LineData<'a>>,
    dots: Vec<DotData>,
    hollow: Option<&'a str>,
    bands: Vec<BandData<'a>>,
    rules: Vec<RuleData<'a>>,
    heat: Option<HeatData<'a>>,
}

#[derive(Debug, Serialize)]
struct LineData<'a> {
    label: &'a str,
    points: Vec<[f64; 2]>,
}

#[derive(Debug, Serialize)]
struct DotData {
    curve: usize,
    x: f64,
    y: f64,
    hollow: bool,
}

#[derive(Debug, Serialize)]
struct BandData<'a> {
    curve: usize,
    label: &'a str,
    points: Vec<[f64; 3]>,
}

/// A rule has one or two positions on x, or one on y.
#[derive(Debug, Serialize)]
struct RuleData<'a> {
    label: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    x: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<f64>,
}

#[derive(Debug, Serialize)]
struct HeatData<'a> {
    column_s: f64,
    rows: Vec<f64>,
    counts: &'a [Vec<u64>],
    note: String,
}

/// Returns the JSON of a plot with axes, safe within a `script` element; `None` for a plot that
/// is drawn without the script, or has no data.
pub(crate) fn json(plot: &Plot) -> Option<String> {
    let data = match plot {
        Plot::Lines(lines) => curves(lines, None),
        Plot::Marked(marked) => curves(&marked.lines, Some(marked)),
        Plot::HeatMap(map) => heat(map),
        Plot::Bars(_) | Plot::Timeline(_) => return None,
    };
    let empty = data.lines.iter().all(|line| line.points.is_empty())
        && data.dots.is_empty()
        && data.heat.is_none();
    // Plain data always serializes.
    let text = serde_json::to_string(&data).ok().filter(|_| !empty)?;
    Some(escaped(&text))
}

fn curves<'a>(lines: &'a Lines, marked: Option<&'a MarkedLines>) -> ChartData<'a> {
    let line = |line: &'a crate::plot::Line| LineData {
        label: &line.label,
        points: line.points.iter().filter_map(|(x, y)| finite([*x, *y])).collect(),
    };
    let mut data = ChartData {
        title: &lines.title,
        description: &lines.description,
        x: lines.x.clone(),
        y: lines.y.clone(),
        lines: lines.lines.iter().map(line).collect(),
        dots: Vec::new(),
        hollow: None,
        bands: Vec::new(),
        rules: Vec::new(),
        heat: None,
    };
    let Some(marked) = marked else { return data };
    let dots = marked.dots.iter().filter_map(|dot| {
        let [x, y] = finite([dot.at.0, dot.at.1])?;
        Some(DotData { curve: dot.curve, x, y, hollow: dot.hollow })
    });
    data.dots = dots.collect();
    data.hollow = marked.hollow.as_deref();
    let band = |band: &'a crate::plot::Band| BandData {
        curve: band.curve,
        label: &band.label,
        points: band.points.iter().filter_map(|(x, l, h)| finite([*x, *l, *h])).collect(),
    };
    data.bands = marked.bands.iter().map(band).collect();
    let rule = |rule: &'a crate::plot::Rule| {
        let (x, y) = match rule.at {
            RulePosition::X(at) => (finite([at])?.to_vec(), None),
            RulePosition::Between(from, to) => (finite([from, to])?.to_vec(), None),
            RulePosition::Y(at) => (Vec::new(), Some(finite([at])?[0])),
        };
        Some(RuleData { label: &rule.label, x, y })
    };
    data.rules = marked.rules.iter().filter_map(rule).collect();
    data
}

fn heat(map: &HeatMap) -> ChartData<'_> {
    let usable = map.row_ends_us.len() > 1 && !map.counts.is_empty();
    let heat = usable.then(|| HeatData {
        column_s: map.column_s,
        rows: map.row_ends_us.iter().map(|us| rounded(*us)).collect(),
        counts: &map.counts,
        note: map.note(),
    });
    ChartData {
        title: &map.title,
        description: &map.description,
        x: Axis::time(),
        y: Axis::latency(),
        lines: Vec::new(),
        dots: Vec::new(),
        hollow: None,
        bands: Vec::new(),
        rules: Vec::new(),
        heat,
    }
}

fn finite<const N: usize>(values: [f64; N]) -> Option<[f64; N]> {
    values.iter().all(|value| value.is_finite()).then(|| values.map(rounded))
}

fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    // Shares close to 1 differ in the digits after the nines.
    let size = value.abs().min((1.0 - value).abs()).max(f64::MIN_POSITIVE);
    let factor = 10_f64.powi(DIGITS - 1 - size.log10().floor().max(-12.0) as i32);
    (value * factor).round() / factor
}

/// Escapes JSON for a `script` element: no end tag, no comment, no line separator of old scripts,
/// no character that changes the text direction.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ if crate::document::turns(c) => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Line, latency_percentiles};

    fn plot(label: &str, points: Vec<(f64, f64)>) -> Plot {
        let lines = vec![Line { label: label.to_owned(), points }];
        Plot::Lines(latency_percentiles("t".to_owned(), String::new(), lines))
    }

    #[test]
    fn a_hostile_name_cannot_leave_the_script() {
        let hostile = "</script><script>alert(1)</script><!-- \u{2028}\u{202e}\" \\ &lt;";
        let json = json(&plot(hostile, vec![(0.5, 10.0)])).unwrap();
        for bad in ["<", ">", "&", "\u{2028}", "\u{202e}"] {
            assert!(!json.contains(bad), "{bad:?} in {json}");
        }
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["lines"][0]["label"], hostile.replace('\u{202e}', "\u{fffd}"));
    }

    #[test]
    fn values_are_finite_and_keep_the_digits_that_can_be_seen() {
        let points = vec![(0.999_998_75, 123_456.789), (f64::NAN, 1.0), (0.5, f64::INFINITY)];
        let read: serde_json::Value =
            serde_json::from_str(&json(&plot("a", points)).unwrap()).unwrap();
        assert_eq!(read["lines"][0]["points"], serde_json::json!([[0.999_998_75, 123_457.0]]));
        assert_eq!(json(&plot("a", vec![(f64::NAN, 1.0)])), None);
        assert_eq!([0.0, 1.0, -2.5, 1e-20].map(rounded), [0.0, 1.0, -2.5, 0.0]);
    }
}
