//! Requests by time and latency as shades: one path for each shade.

use std::fmt::Write;

use super::lines::{Frame, TOP};
use super::scale::Mapping;
use super::{shortened, text};
use crate::plot::{Axis, HeatMap};

/// Shades; the same number as in `charts.js`.
const LEVELS: usize = 8;
const RIGHT: f64 = 14.0;

/// Draws the content; returns it with its height.
pub(super) fn draw(map: &HeatMap, width: f64) -> (String, f64) {
    let mut out = text("t-title", "start", (0.0, 16.0), &shortened(&map.title, width));
    let end_s = map.column_s * map.counts.len() as f64;
    let (x_axis, y_axis) = (Axis::time(), Axis::latency());
    let x = Mapping::exact(x_axis.scale, (0.0, end_s));
    let ends = map.row_ends_us.first().zip(map.row_ends_us.last());
    let y = ends.and_then(|(low, high)| Mapping::exact(y_axis.scale, (*low, *high)));
    let (Some(x), Some(y), false) = (x, y, map.counts.is_empty()) else {
        out.push_str(&text("t-small", "start", (0.0, TOP), "No data."));
        return (out, TOP + 20.0);
    };
    let frame = Frame {
        x,
        y,
        width,
        right: width - RIGHT,
        height: if width > 500.0 { 270.0 } else { 220.0 },
    };
    let mut paths = vec![String::new(); LEVELS];
    for (column, counts) in map.counts.iter().enumerate() {
        for (row, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let level = level(*count, map);
            let _ = cell(&mut paths[level - 1], map, &frame, (column, row));
        }
    }
    for (number, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let opacity = (number + 1) as f64 / LEVELS as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "<path class=\"heat\" fill-opacity=\"{opacity}\" d=\"{path}\"/>");
    }
    let _ = frame.axes(&mut out, &x_axis, &y_axis);
    let below = TOP + frame.height + 44.0;
    out.push_str(&text("t-small", "start", (0.0, below), &shortened(&map.note(), width * 1.1)));
    (out, below + 8.0)
}

/// Returns the shade of a count, from 1, by its logarithm.
fn level(count: u64, map: &HeatMap) -> usize {
    let most = map.counts.iter().flatten().copied().max().unwrap_or(1).max(1);
    let share = (count as f64).ln_1p() / (most as f64).ln_1p();
    ((share * LEVELS as f64).ceil() as usize).clamp(1, LEVELS)
}

/// Adds the cell of a column and a row; nothing outside the axes.
fn cell(
    path: &mut String,
    map: &HeatMap,
    frame: &Frame,
    (column, row): (usize, usize),
) -> std::fmt::Result {
    let end = |number: usize| frame.right(number as f64 * map.column_s);
    let row_end = |number: usize| map.row_ends_us.get(number).and_then(|us| frame.up(*us));
    let corners = end(column).zip(end(column + 1)).zip(row_end(row).zip(row_end(row + 1)));
    let Some(((from, to), (low, high))) = corners else { return Ok(()) };
    write!(path, "M{from:.1} {high:.1}H{to:.1}V{low:.1}H{from:.1}z")
}

#[cfg(test)]
mod tests {
    use super::super::{Size, render};
    use super::*;
    use crate::plot::Plot;

    fn map(counts: Vec<Vec<u64>>) -> HeatMap {
        HeatMap {
            title: "Latency over time".to_owned(),
            description: String::new(),
            column_s: 0.1,
            row_ends_us: vec![100.0, 200.0, 400.0],
            counts,
        }
    }

    #[test]
    fn shades_follow_the_logarithm_of_the_count() {
        let map = map(vec![vec![1, 0], vec![1000, 30]]);
        assert_eq!([1, 30, 1000].map(|count| level(count, &map)), [1, 4, 8]);
        let drawn = render(&Plot::HeatMap(map), Size::Wide, "a");
        assert_eq!(drawn.matches("class=\"heat\"").count(), 3, "{drawn}");
        assert!(drawn.contains("the strongest has 1,000.") && drawn.contains("logarithmic"));
    }

    #[test]
    fn odd_maps_are_drawn_without_invalid_positions() {
        for counts in [vec![], vec![vec![]], vec![vec![1, 2, 3, 4]], vec![vec![0, 0]]] {
            for rows in [vec![], vec![1.0], vec![0.0, f64::NAN], vec![1.0, 2.0]] {
                let odd = HeatMap { row_ends_us: rows, ..map(counts.clone()) };
                let drawn = render(&Plot::HeatMap(odd), Size::Narrow, "a");
                assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
            }
        }
    }
}
