//! Timeline of running, sleeping and waiting: a row per lane, with the state as height and colour.

use std::fmt::Write;

use super::{hint, shortened, text};
use crate::numbers;
use crate::plot::Timeline;
use crate::plot::{Lane, LaneState};

const HEAD: f64 = 30.0;
const ROW: f64 = 13.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 8.0;
/// Ticks of the axis.
const TICKS: u32 = 4;

/// Class, height and label of each state.
const STATES: [(LaneState, &str, f64, &str); 3] = [
    (LaneState::Running, "s-run", 11.0, "runs"),
    (LaneState::Sleeping, "s-sleep", 6.0, "sleeps"),
    (LaneState::Waiting, "s-wait", 1.4, "waits"),
];

/// Draws the content; returns it with its height.
pub(super) fn draw(timeline: &Timeline, width: f64) -> (String, f64) {
    let mut out = text("t-title", "start", (0.0, 16.0), &shortened(&timeline.title, width));
    let scale = (width - LEFT - RIGHT) / timeline.end_us.max(1.0);
    let bottom = HEAD + timeline.rows.len() as f64 * ROW;
    for tick in 0..=TICKS {
        let us = timeline.end_us * f64::from(tick) / f64::from(TICKS);
        let x = LEFT + us * scale;
        let anchor = if tick == TICKS { "end" } else { "middle" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{HEAD}\" y2=\"{bottom:.1}\"/>"
        );
        let name = if tick == 0 { "0".to_owned() } else { numbers::micros(us) };
        out.push_str(&text("t-tick", anchor, (x, bottom + 15.0), &name));
    }
    for (number, row) in timeline.rows.iter().enumerate() {
        let middle = HEAD + (number as f64 + 0.5) * ROW;
        let at = (LEFT - 6.0, middle + 4.0);
        let mut lane = text("t-tick", "end", at, &shortened(&row.label, LEFT));
        STATES.iter().for_each(|state| lane.push_str(&stretches(row, state, middle, scale)));
        out.push_str(&hint(&words(row), &lane));
    }
    let mut x = LEFT;
    let below = bottom + 36.0;
    for (_, class, height, name) in STATES {
        let top = below - 4.0 - height / 2.0;
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"22\" height=\"{height}\"/>"
        );
        out.push_str(&text("t-small", "start", (x + 28.0, below), name));
        x += 84.0;
    }
    (out, below + 8.0)
}

/// Returns the time of a row in each state.
fn words(row: &Lane) -> String {
    let total = |state: LaneState| -> u64 {
        let spans = row.spans.iter().filter(|span| span.state == state);
        spans.map(|span| span.to_us.saturating_sub(span.from_us)).sum()
    };
    let times = STATES
        .map(|(state, _, _, name)| format!("{name} {}", numbers::micros(total(state) as f64)));
    format!("{}: {}", row.label, times.join(", "))
}

/// Returns a row's spans in one state as one path, because there may be hundreds.
fn stretches(
    row: &Lane,
    (state, class, height, _): &(LaneState, &str, f64, &str),
    middle: f64,
    scale: f64,
) -> String {
    let mut path = String::new();
    let top = middle - height / 2.0;
    for span in row.spans.iter().filter(|span| span.state == *state) {
        let (x, wide) = (
            LEFT + span.from_us as f64 * scale,
            span.to_us.saturating_sub(span.from_us) as f64 * scale,
        );
        // Writing to a string cannot fail.
        let _ = write!(path, "M{x:.1} {top:.1}h{wide:.1}v{height}h-{wide:.1}z");
    }
    if path.is_empty() { path } else { format!("<path class=\"{class}\" d=\"{path}\"/>\n") }
}
