//! Names of curves at their ends, in place of a legend.

use std::fmt::Write;

use super::{shortened, text};

/// Height of a line of text.
const LINE: f64 = 14.0;
/// Width of a letter of 12 units.
const LETTER: f64 = 6.3;
/// Most lines of a name.
const LINES_MAX: usize = 4;
/// Least and largest room for names right of the plot; the largest as a share of the width.
const ROOM_MIN: f64 = 24.0;
const ROOM_SHARE_MAX: f64 = 0.27;
/// Distance of names from the plot.
const GAP: f64 = 8.0;

/// End of a curve.
pub(super) struct CurveEnd<'a> {
    /// Number of its colour, from 1.
    pub(super) colour: usize,
    pub(super) label: &'a str,
    pub(super) at: (f64, f64),
}

/// Returns the room that names need right of the plot.
pub(super) fn room<'a>(labels: impl Iterator<Item = &'a str>, width: f64) -> f64 {
    let longest = labels.map(|label| label.chars().count()).max().unwrap_or(0) as f64;
    (longest * LETTER + GAP + 6.0).min(width * ROOM_SHARE_MAX).max(ROOM_MIN)
}

/// Draws names right of `right`, one below the other between `top` and `bottom`, with lines to the
/// ends of their curves.
pub(super) fn draw(
    mut ends: Vec<CurveEnd<'_>>,
    (right, width): (f64, f64),
    (top, bottom): (f64, f64),
) -> String {
    ends.sort_by(|a, b| a.at.1.total_cmp(&b.at.1));
    let lines_max = ((bottom - top) / LINE / ends.len().max(1) as f64) as usize;
    let letters = ((width - right - GAP) / LETTER) as usize;
    let names: Vec<Vec<String>> = ends
        .iter()
        .map(|end| wrapped(end.label, letters.max(1), lines_max.clamp(1, LINES_MAX)))
        .collect();
    let halves: Vec<f64> = names.iter().map(|lines| lines.len() as f64 * LINE / 2.0).collect();
    let wanted: Vec<f64> = ends.iter().map(|end| end.at.1).collect();
    let middles = spread(&wanted, &halves, (top - LINE / 2.0, bottom + LINE / 2.0));
    let mut out = String::new();
    for ((end, lines), middle) in ends.iter().zip(&names).zip(middles) {
        let (x, y) = end.at;
        if right - x > 6.0 || (middle - y).abs() > 5.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<path class=\"leader l{}\" d=\"M{:.1} {y:.1}L{:.1} {middle:.1}\"/>",
                end.colour,
                x + 2.0,
                right + GAP - 2.0
            );
        }
        let first = middle - (lines.len() as f64 - 1.0) * LINE / 2.0 + 4.0;
        for (number, line) in lines.iter().enumerate() {
            let class = format!("t-curve f{}", end.colour);
            let at = (right + GAP, first + number as f64 * LINE);
            out.push_str(&text(&class, "start", at, line));
        }
    }
    out
}

/// Breaks a name between words into lines; the last one is shortened.
fn wrapped(label: &str, letters: usize, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in label.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    if lines.len() > lines_max {
        lines.truncate(lines_max);
        if let Some(last) = lines.last_mut() {
            last.push('…');
        }
    }
    // `shortened` counts letters of 13 units.
    lines.iter().map(|line| shortened(line, letters as f64 * 6.9 + 0.1)).collect()
}

/// Returns the middles of blocks near the wanted ones, in the same order, without overlap and
/// within the ends if they fit there.
fn spread(wanted: &[f64], halves: &[f64], (top, bottom): (f64, f64)) -> Vec<f64> {
    let mut middles = wanted.to_vec();
    let mut free = top;
    for (middle, half) in middles.iter_mut().zip(halves) {
        *middle = middle.max(free + half);
        free = *middle + half;
    }
    let mut free = bottom;
    for (middle, half) in middles.iter_mut().zip(halves).rev() {
        *middle = middle.min(free - half);
        free = *middle - half;
    }
    middles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_overlap_and_stay_beside_the_plot() {
        let halves = [7.0, 14.0, 7.0];
        let middles = spread(&[95.0, 96.0, 97.0], &halves, (0.0, 100.0));
        for (pair, half) in middles.windows(2).zip(halves.windows(2)) {
            assert!(pair[1] - pair[0] >= half[0] + half[1] - 1e-9, "{middles:?}");
        }
        assert!(middles[2] + halves[2] <= 100.0, "{middles:?}");
        assert_eq!(spread(&[20.0, 60.0], &[7.0, 7.0], (0.0, 100.0)), [20.0, 60.0]);
    }

    #[test]
    fn long_names_are_wrapped_and_then_shortened() {
        assert_eq!(wrapped("three back ends, cache", 12, 3), ["three back", "ends, cache"]);
        assert_eq!(wrapped("one two three four", 5, 2), ["one", "two…"]);
        assert_eq!(wrapped("extraordinary", 6, 2), ["extra…"]);
    }
}
