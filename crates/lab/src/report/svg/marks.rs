//! What helps to read curves: measurements as dots, bands, places.

use std::fmt::Write;

use super::super::plot::{Marked, Place};
use super::lines::{CURVES_MAX, Frame};

/// A sample for the legend, and what it means.
pub(super) enum Sample {
    Rule,
    Between,
    Band(usize),
    Hollow,
}

/// What the axes must hold besides the curves.
pub(super) fn values(marked: &Marked) -> (Vec<f64>, Vec<f64>) {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (dot_x, dot_y) in marked.dots.iter().map(|dot| dot.at) {
        x.push(dot_x);
        y.push(dot_y);
    }
    for (_, low, high) in marked.bands.iter().flat_map(|band| &band.points) {
        y.extend([*low, *high]);
    }
    for rule in &marked.rules {
        match rule.at {
            Place::X(at) => x.push(at),
            Place::Between(low, high) => x.extend([low, high]),
            Place::Y(at) => y.push(at),
        }
    }
    (x, y)
}

/// What stands behind the curves.
pub(super) fn behind(marked: &Marked, frame: &Frame) -> String {
    let ((left, right), (top, bottom)) = frame.ends();
    let mut out = String::new();
    for band in &marked.bands {
        let place = |(x, y): (f64, f64)| frame.place(x, y).map(|(x, y)| format!("{x:.1} {y:.1}"));
        let there = band.points.iter().filter_map(|(x, low, _)| place((*x, *low)));
        let back = band.points.iter().rev().filter_map(|(x, _, high)| place((*x, *high)));
        let path: Vec<String> = there.chain(back).collect();
        if path.len() > 2 {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "<path class=\"band d{}\" d=\"M{}Z\"/>", colour(band.curve), path.join("L"));
        }
    }
    for rule in &marked.rules {
        let _ = match rule.at {
            Place::X(at) => frame.right(at).map(|x| {
                writeln!(out, "<path class=\"rule\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>")
            }),
            Place::Y(at) => frame.up(at).map(|y| {
                writeln!(out, "<path class=\"rule\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>")
            }),
            Place::Between(low, high) => frame.right(low).zip(frame.right(high)).map(|(from, to)| {
                // A narrow interval must be seen still.
                let width = (to - from).max(2.0);
                let height = bottom - top;
                writeln!(
                    out,
                    "<rect class=\"between\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
                )
            }),
        };
    }
    out
}

/// The measurements.
pub(super) fn dots(marked: &Marked, frame: &Frame) -> String {
    let mut out = String::new();
    for dot in &marked.dots {
        if let Some((x, y)) = frame.place(dot.at.0, dot.at.1) {
            let hollow = if dot.hollow { " hollow" } else { "" };
            let class = format!("dot{hollow} d{}", colour(dot.curve));
            let _ = writeln!(out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
    }
    out
}

/// What the legend explains besides the curves.
pub(super) fn legend(marked: &Marked) -> Vec<(Sample, &str)> {
    let bands = marked.bands.iter().map(|band| (Sample::Band(band.curve), band.label.as_str()));
    let rules = marked.rules.iter().map(|rule| {
        let sample = if matches!(rule.at, Place::Between(..)) { Sample::Between } else { Sample::Rule };
        (sample, rule.label.as_str())
    });
    let hollow = marked.hollow.iter().filter(|_| marked.dots.iter().any(|dot| dot.hollow));
    bands.chain(rules).chain(hollow.map(|words| (Sample::Hollow, words.as_str()))).collect()
}

impl Sample {
    /// Left of the words that stand at `y`.
    pub(super) fn draw(&self, y: f64) -> String {
        let (middle, top) = (y - 4.0, y - 9.0);
        match self {
            Self::Rule => format!("<path class=\"rule\" d=\"M18 {middle:.1}H46\"/>\n"),
            Self::Between => format!("<rect class=\"between\" x=\"18\" y=\"{top:.1}\" width=\"28\" height=\"10\"/>\n"),
            Self::Band(curve) => {
                let class = format!("band d{}", colour(*curve));
                format!("<rect class=\"{class}\" x=\"18\" y=\"{top:.1}\" width=\"28\" height=\"10\"/>\n")
            }
            Self::Hollow => format!("<circle class=\"dot hollow d1\" cx=\"32\" cy=\"{middle:.1}\" r=\"3\"/>\n"),
        }
    }
}

/// The number of a curve's colour in the style.
fn colour(curve: usize) -> usize {
    curve % CURVES_MAX + 1
}

#[cfg(test)]
mod tests {
    use super::super::super::plot::{Axis, Band, Dot, Line, Lines, Plot, Rule, Scale, Unit};
    use super::super::{Size, render};
    use super::*;

    fn marked() -> Marked {
        let axis = || Axis { name: "n".to_owned(), scale: Scale::Log, unit: Unit::Number };
        let line = |label: &str| Line { label: label.to_owned(), points: vec![(1.0, 10.0), (8.0, 40.0)] };
        let rule = |label: &str, at| Rule { label: label.to_owned(), at };
        Marked {
            lines: Lines {
                title: "Capacity".to_owned(),
                description: String::new(),
                x: axis(),
                y: axis(),
                lines: vec![line("measured"), line("law")],
            },
            dots: vec![
                Dot { curve: 0, at: (2.0, 20.0), hollow: false },
                Dot { curve: 0, at: (4.0, 9.0), hollow: true },
                Dot { curve: 0, at: (f64::NAN, 0.0), hollow: true },
            ],
            hollow: Some("missed".to_owned()),
            bands: vec![Band {
                curve: 1,
                label: "refits".to_owned(),
                points: vec![(1.0, 8.0, 12.0), (8.0, 30.0, 50.0)],
            }],
            rules: vec![
                rule("knee", Place::X(4.0)),
                rule("interval", Place::Between(5.0, 5.0)),
                rule("bound", Place::Y(90.0)),
            ],
        }
    }

    #[test]
    fn all_is_drawn_and_explained() {
        let drawn = render(&Plot::Marked(marked()), Size::Narrow, "a");
        let count = |part: &str| drawn.matches(part).count();
        // Each once in the drawing and once in the legend.
        for (part, times) in [("class=\"band d2\"", 2), ("class=\"rule\"", 4), ("class=\"between\"", 2)] {
            assert_eq!(count(part), times, "{part} in {drawn}");
        }
        assert_eq!((count("class=\"dot d1\""), count("class=\"dot hollow d1\"")), (1, 2), "{drawn}");
        for label in ["measured", "law", "refits", "knee", "interval", "bound", "missed"] {
            assert!(drawn.contains(&format!(">{label}</text>")), "{label} is not explained: {drawn}");
        }
        assert!(!drawn.contains("NaN") && drawn.contains("width=\"2.0\""), "an interval without width is seen still");
    }

    #[test]
    fn what_is_not_there_is_not_explained() {
        let mut plain = marked();
        (plain.bands, plain.rules) = (Vec::new(), Vec::new());
        plain.dots.retain(|dot| !dot.hollow);
        assert!(legend(&plain).is_empty());
    }
}
