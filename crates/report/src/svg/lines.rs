//! Curves, numbered at their ends, with a legend.

use std::fmt::Write;

use super::scale::Mapping;
use super::{marks, shortened, text};
use crate::plot::{Lines, MarkedLines};

const LEFT: f64 = 58.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 46.0;
const LEGEND: f64 = 20.0;
/// Least distance between the numbers of curves.
const APART: f64 = 14.0;
/// Curve styles of the style sheet.
pub const CURVES_MAX: usize = 6;

/// Draws the content; returns it with its height.
pub(super) fn draw(lines: &Lines, marked: Option<&MarkedLines>, width: f64) -> (String, f64) {
    let height = if width > 500.0 { 270.0 } else { 220.0 };
    let mut out = text("t-title", "start", (0.0, 16.0), &shortened(&lines.title, width));
    let points = || lines.lines.iter().flat_map(|line| line.points.iter().copied());
    let (more_x, more_y) = marked.map(marks::values).unwrap_or_default();
    let x = Mapping::over(lines.x.scale, points().map(|(x, _)| x).chain(more_x));
    let y = Mapping::over(lines.y.scale, points().map(|(_, y)| y).chain(more_y));
    let bottom = TOP + height;
    let (Some(x), Some(y)) = (x, y) else {
        out.push_str(&text("t-small", "start", (0.0, TOP), "No data."));
        return (out, TOP + LEGEND);
    };
    let frame = Frame { x, y, width, height };
    // Writing to a string cannot fail.
    let _ = frame.axes(&mut out, lines);
    out.push_str(&marked.map_or_else(String::new, |marked| marks::behind(marked, &frame)));
    let mut ends = Vec::new();
    for (i, line) in lines.lines.iter().take(CURVES_MAX).enumerate() {
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
            ends.push((i, *x, *y));
        }
    }
    out.push_str(&marked.map_or_else(String::new, |marked| marks::dots(marked, &frame)));
    spread(&mut ends);
    for (i, x, y) in ends {
        out.push_str(&text("t-number", "start", (x + 5.0, y + 4.0), &(i + 1).to_string()));
    }
    let mut below = bottom + 44.0;
    for (i, line) in lines.lines.iter().take(CURVES_MAX).enumerate() {
        let _ = writeln!(out, "<path class=\"curve c{}\" d=\"M18 {:.1}H46\"/>", i + 1, below - 4.0);
        out.push_str(&text("t-number", "start", (4.0, below), &(i + 1).to_string()));
        out.push_str(&text(
            "t-small",
            "start",
            (54.0, below),
            &shortened(&line.label, width * 1.1 - 54.0),
        ));
        below += LEGEND;
    }
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
    x: Mapping,
    y: Mapping,
    width: f64,
    height: f64,
}

impl Frame {
    /// Returns the left and right end, and the top and bottom.
    pub(super) fn ends(&self) -> ((f64, f64), (f64, f64)) {
        ((LEFT, self.width - RIGHT), (TOP, TOP + self.height))
    }

    /// Returns the horizontal position of a value; `None` if the axis cannot hold it.
    pub(super) fn right(&self, x: f64) -> Option<f64> {
        Some(LEFT + self.x.place(x)? * (self.width - LEFT - RIGHT))
    }

    /// Returns the vertical position of a value.
    pub(super) fn up(&self, y: f64) -> Option<f64> {
        Some(TOP + (1.0 - self.y.place(y)?) * self.height)
    }

    /// Returns both positions.
    pub(super) fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.right(x)?, self.up(y)?))
    }

    fn axes(&self, out: &mut String, lines: &Lines) -> std::fmt::Result {
        let (right, bottom) = (self.width - RIGHT, TOP + self.height);
        for (place, name) in self.y.ticks(&lines.y, 7) {
            let y = TOP + (1.0 - place) * self.height;
            writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            )?;
            out.push_str(&text("t-tick", "end", (LEFT - 7.0, y + 4.0), &name));
        }
        let mut free = f64::NEG_INFINITY;
        for (place, name) in self.x.ticks(&lines.x, if self.width > 500.0 { 10 } else { 5 }) {
            let x = LEFT + place * (right - LEFT);
            writeln!(
                out,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>"
            )?;
            let half = name.chars().count() as f64 * 3.4;
            if x - half > free {
                out.push_str(&text("t-tick", "middle", (x, bottom + 16.0), &name));
                free = x + half + 6.0;
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
            &format!("↑ {}   → {}", lines.y.name, lines.x.name),
        ));
        Ok(())
    }
}

/// Separates the numbers of curves that end close to each other.
fn spread(ends: &mut [(usize, f64, f64)]) {
    ends.sort_by(|a, b| a.2.total_cmp(&b.2));
    let mut free = f64::NEG_INFINITY;
    for (_, x, y) in ends {
        let _ = x;
        *y = y.max(free);
        free = *y + APART;
    }
}
