//! Marks of a plot: dots, bands and reference lines.

use std::fmt::Write;

use super::lines::{CURVES_MAX, Frame};
use super::{shortened, text};
use crate::plot::{MarkedLines, Rule, RulePosition};

/// Height of a line of text.
const LINE: f64 = 15.0;

/// Sample in the legend.
pub(super) enum Sample {
    Band(usize),
    Hollow,
}

/// Returns the values that the axes must include besides the curves.
pub(super) fn values(marked: &MarkedLines) -> (Vec<f64>, Vec<f64>) {
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
            RulePosition::X(at) => x.push(at),
            RulePosition::Between(low, high) => x.extend([low, high]),
            RulePosition::Y(at) => y.push(at),
        }
    }
    (x, y)
}

/// Draws the marks behind the curves.
pub(super) fn behind(marked: &MarkedLines, frame: &Frame) -> String {
    let ((left, right), (top, bottom)) = frame.ends();
    let mut out = String::new();
    for band in &marked.bands {
        let place = |(x, y): (f64, f64)| frame.place(x, y).map(|(x, y)| format!("{x:.1} {y:.1}"));
        let there = band.points.iter().filter_map(|(x, low, _)| place((*x, *low)));
        let back = band.points.iter().rev().filter_map(|(x, _, high)| place((*x, *high)));
        let path: Vec<String> = there.chain(back).collect();
        if path.len() > 2 {
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<path class=\"band d{}\" d=\"M{}Z\"/>",
                colour(band.curve),
                path.join("L")
            );
        }
    }
    for rule in &marked.rules {
        let _ = match rule.at {
            RulePosition::X(at) => frame.right(at).map(|x| {
                writeln!(out, "<path class=\"rule\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>")
            }),
            RulePosition::Y(at) => frame.up(at).map(|y| {
                writeln!(out, "<path class=\"rule\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>")
            }),
            RulePosition::Between(low, high) => {
                let ends = frame.right(low).zip(frame.right(high));
                ends.map(|(from, to)| {
                // A narrow interval must stay visible.
                let width = (to - from).max(2.0);
                let height = bottom - top;
                writeln!(
                    out,
                    "<rect class=\"between\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
                     height=\"{height:.1}\"/>"
                )
                })
            }
        };
    }
    out
}

/// Draws the marks before the curves: measurements, and names of reference lines.
pub(super) fn before(marked: &MarkedLines, frame: &Frame) -> String {
    let mut out = dots(marked, frame);
    for (number, rule) in marked.rules.iter().enumerate() {
        out.push_str(&rule_name(rule, number, frame).unwrap_or_default());
    }
    out
}

/// Returns the name of a reference line beside it, each in a row of its own; `None` outside the
/// axes.
fn rule_name(rule: &Rule, number: usize, frame: &Frame) -> Option<String> {
    let ((left, right), (top, _)) = frame.ends();
    let class = "t-small t-rule";
    if let RulePosition::Y(at) = rule.at {
        let y = frame.up(at)?;
        let y = if y - top < 2.0 * LINE { y + LINE } else { y - 6.0 };
        let words = shortened(&rule.label, (right - left - 12.0) * 1.1);
        return Some(text(class, "start", (left + 6.0, y), &words));
    }
    let (RulePosition::X(at) | RulePosition::Between(at, _) | RulePosition::Y(at)) = rule.at;
    let x = frame.right(at)?;
    let y = top + (number as f64 + 1.0) * LINE;
    let (anchor, at, room) = if x > f64::midpoint(left, right) {
        ("end", x - 6.0, x - left)
    } else {
        ("start", x + 6.0, right - x)
    };
    Some(text(class, anchor, (at, y), &shortened(&rule.label, (room - 12.0) * 1.1)))
}

fn dots(marked: &MarkedLines, frame: &Frame) -> String {
    let mut out = String::new();
    for dot in &marked.dots {
        if let Some((x, y)) = frame.place(dot.at.0, dot.at.1) {
            let hollow = if dot.hollow { " hollow" } else { "" };
            let class = format!("dot{hollow} d{}", colour(dot.curve));
            let _ =
                writeln!(out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
    }
    out
}

/// Returns the legend entries of the marks.
pub(super) fn legend(marked: &MarkedLines) -> Vec<(Sample, &str)> {
    let bands = marked.bands.iter().map(|band| (Sample::Band(band.curve), band.label.as_str()));
    let hollow = marked.hollow.iter().filter(|_| marked.dots.iter().any(|dot| dot.hollow));
    bands.chain(hollow.map(|words| (Sample::Hollow, words.as_str()))).collect()
}

impl Sample {
    /// Draws the sample left of the text at `y`.
    pub(super) fn draw(&self, y: f64) -> String {
        let (middle, top) = (y - 4.0, y - 9.0);
        match self {
            Self::Band(curve) => {
                let class = format!("band d{}", colour(*curve));
                format!(
                    "<rect class=\"{class}\" x=\"18\" y=\"{top:.1}\" width=\"28\" height=\"10\"/>\n"
                )
            }
            Self::Hollow => {
                format!("<circle class=\"dot hollow d1\" cx=\"32\" cy=\"{middle:.1}\" r=\"3\"/>\n")
            }
        }
    }
}

/// Returns the number of a curve's colour in the style.
fn colour(curve: usize) -> usize {
    curve % CURVES_MAX + 1
}

#[cfg(test)]
mod tests {
    use super::super::{Size, render};
    use super::*;
    use crate::plot::{Axis, Band, Dot, Line, Lines, Plot, Scale, Unit};

    fn marked() -> MarkedLines {
        let axis = || Axis { name: "n".to_owned(), scale: Scale::Log, unit: Unit::Number };
        let line =
            |label: &str| Line { label: label.to_owned(), points: vec![(1.0, 10.0), (8.0, 40.0)] };
        let rule = |label: &str, at| Rule { label: label.to_owned(), at };
        MarkedLines {
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
                rule("knee", RulePosition::X(4.0)),
                rule("interval", RulePosition::Between(5.0, 5.0)),
                rule("bound", RulePosition::Y(90.0)),
            ],
        }
    }

    #[test]
    fn every_mark_is_drawn_and_explained() {
        let drawn = render(&Plot::Marked(marked()), Size::Narrow, "a");
        let count = |part: &str| drawn.matches(part).count();
        // Bands are in the plot and in the legend; rules have their names beside them.
        for (part, times) in
            [("class=\"band d2\"", 2), ("class=\"rule\"", 2), ("class=\"between\"", 1)]
        {
            assert_eq!(count(part), times, "{part} in {drawn}");
        }
        assert_eq!(
            (count("class=\"dot d1\""), count("class=\"dot hollow d1\"")),
            (1, 2),
            "{drawn}"
        );
        for label in ["measured", "law", "refits", "knee", "interval", "bound", "missed"] {
            assert!(
                drawn.contains(&format!(">{label}</text>")),
                "{label} is not explained: {drawn}"
            );
        }
        assert!(
            !drawn.contains("NaN") && drawn.contains("width=\"2.0\""),
            "an interval of zero width stays visible"
        );
    }

    #[test]
    fn absent_marks_are_not_in_the_legend() {
        let mut plain = marked();
        (plain.bands, plain.rules) = (Vec::new(), Vec::new());
        plain.dots.retain(|dot| !dot.hollow);
        assert!(legend(&plain).is_empty());
    }
}
