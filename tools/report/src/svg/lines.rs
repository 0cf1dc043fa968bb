//! Curves with their names at their ends.

use std::fmt::Write;

use super::labels::{self, CurveEnd};
use super::scale::Mapping;
use super::{marks, shortened, text};
use crate::plot::{Axis, Lines, MarkedLines};

pub(super) const LEFT: f64 = 58.0;
pub(super) const TOP: f64 = 46.0;
const LEGEND: f64 = 20.0;
/// Curve styles of the style sheet.
pub const CURVES_MAX: usize = 6;

/// Draws the content; returns it with its height.
pub(super) fn draw(lines: &Lines, marked: Option<&MarkedLines>, width: f64) -> (String, f64) {
    let mut out = text("t-title", "start", (0.0, 16.0), &shortened(&lines.title, width));
    let points = || lines.lines.iter().flat_map(|line| line.points.iter().copied());
    let (more_x, more_y) = marked.map(marks::values).unwrap_or_default();
    let x = Mapping::over(lines.x.scale, points().map(|(x, _)| x).chain(more_x));
    let y = Mapping::over(lines.y.scale, points().map(|(_, y)| y).chain(more_y));
    let (Some(x), Some(y)) = (x, y) else {
        out.push_str(&text("t-small", "start", (0.0, TOP), "No data."));
        return (out, TOP + LEGEND);
    };
    let shown = || lines.lines.iter().take(CURVES_MAX);
    let right = width - labels::room(shown().map(|line| line.label.as_str()), width);
    let height = if width > 500.0 { 270.0 } else { 220.0 };
    let frame = Frame { x, y, width, right, height };
    // Writing to a string cannot fail.
    let _ = frame.axes(&mut out, &lines.x, &lines.y);
    out.push_str(&marked.map_or_else(String::new, |marked| marks::behind(marked, &frame)));
    let mut ends = Vec::new();
    for (i, line) in shown().enumerate() {
        let places: Vec<(f64, f64)> =
            line.points.iter().filter_map(|(x, y)| frame.place(*x, *y)).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let class = format!("curve c{}", i + 1);
        if let Some((x, y)) = places.last() {
            let _ = writeln!(out, "<path class=\"{class}\" d=\"M{}\"/>", path.join("L"));
            if places.len() == 1 {
                let _ = writeln!(
                    out,
                    "<circle class=\"dot d{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>",
                    i + 1
                );
            }
            ends.push(CurveEnd { colour: i + 1, label: &line.label, at: (*x, *y) });
        }
    }
    out.push_str(&marked.map_or_else(String::new, |marked| marks::before(marked, &frame)));
    let bottom = TOP + height;
    out.push_str(&labels::draw(ends, (right, width), (TOP, bottom)));
    let mut below = bottom + 44.0;
    for (sample, words) in marked.map(marks::legend).unwrap_or_default() {
        out.push_str(&sample.draw(below));
        out.push_str(&text(
            "t-small",
            "start",
            (54.0, below),
            &shortened(words, width * 1.1 - 54.0),
        ));
        below += LEGEND;
    }
    (out, below - 8.0)
}

/// Mapping of values to the plot area.
pub(super) struct Frame {
    pub(super) x: Mapping,
    pub(super) y: Mapping,
    /// Of the whole drawing.
    pub(super) width: f64,
    /// Right end of the plot area.
    pub(super) right: f64,
    pub(super) height: f64,
}

impl Frame {
    /// Returns the left and right end, and the top and bottom.
    pub(super) fn ends(&self) -> ((f64, f64), (f64, f64)) {
        ((LEFT, self.right), (TOP, TOP + self.height))
    }

    /// Returns the horizontal position of a value; `None` if the axis cannot hold it.
    pub(super) fn right(&self, x: f64) -> Option<f64> {
        Some(LEFT + self.x.place(x)? * (self.right - LEFT))
    }

    /// Returns the vertical position of a value.
    pub(super) fn up(&self, y: f64) -> Option<f64> {
        Some(TOP + (1.0 - self.y.place(y)?) * self.height)
    }

    /// Returns both positions.
    pub(super) fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.right(x)?, self.up(y)?))
    }

    /// Draws the axes with their grid, ticks and names.
    pub(super) fn axes(&self, out: &mut String, x: &Axis, y: &Axis) -> std::fmt::Result {
        let ((_, right), (_, bottom)) = self.ends();
        for (place, name) in self.y.ticks(y, 7) {
            let at = TOP + (1.0 - place) * self.height;
            writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{at:.1}\" \
                 y2=\"{at:.1}\"/>"
            )?;
            out.push_str(&text("t-tick", "end", (LEFT - 7.0, at + 4.0), &name));
        }
        let mut free = f64::NEG_INFINITY;
        for (place, name) in self.x.ticks(x, if self.width > 500.0 { 10 } else { 5 }) {
            let at = LEFT + place * (right - LEFT);
            writeln!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" \
                 y2=\"{bottom:.1}\"/>"
            )?;
            let half = name.chars().count() as f64 * 3.4;
            if at - half > free {
                out.push_str(&text("t-tick", "middle", (at, bottom + 16.0), &name));
                free = at + half + 6.0;
            }
        }
        writeln!(
            out,
            "<line class=\"base\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{bottom:.1}\" \
             y2=\"{bottom:.1}\"/>"
        )?;
        out.push_str(&text(
            "t-small",
            "start",
            (0.0, TOP - 12.0),
            &format!("↑ {}   → {}", y.title(), x.title()),
        ));
        Ok(())
    }
}
