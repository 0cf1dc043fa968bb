//! Bars with their labels and values.

use std::fmt::Write;

use super::{shortened, text};
use crate::plot::{Bar, Bars};

/// Height of a bar with label and gap.
const ROW: f64 = 44.0;
const BAR: f64 = 14.0;
/// Space for the value at a bar's end.
const WORDS: f64 = 110.0;
const HEAD: f64 = 30.0;
const LEGEND: f64 = 20.0;

/// Draws the content; returns it with its height.
pub(super) fn draw(bars: &Bars, width: f64) -> (String, f64) {
    let reach = |bar: &Bar| {
        [bar.value, bar.whisker.map(|(_, high)| high), bar.mark]
            .into_iter()
            .flatten()
            .fold(0.0, f64::max)
    };
    let longest = bars.bars.iter().map(reach).filter(|v| v.is_finite()).fold(0.0, f64::max);
    let unit = if longest > 0.0 { (width - WORDS) / longest } else { 0.0 };
    let mut out = text("t-title", "start", (0.0, 16.0), &shortened(&bars.title, width));
    for (i, bar) in bars.bars.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = one(&mut out, bar, HEAD + i as f64 * ROW, unit, width);
    }
    let mut y = HEAD + bars.bars.len() as f64 * ROW;
    let _ = writeln!(
        out,
        "<line class=\"base\" x1=\"0.5\" x2=\"0.5\" y1=\"{HEAD:.1}\" y2=\"{:.1}\"/>",
        y - 8.0
    );
    for (words, sample) in [
        (&bars.whisker, whisker as fn(f64, f64, f64) -> String),
        (&bars.mark, |x, _, y| mark(x, y)),
    ] {
        if let Some(words) = words {
            y += LEGEND;
            out.push_str(&sample(12.0, 24.0, y - 14.0));
            out.push_str(&text(
                "t-small",
                "start",
                (34.0, y - 3.0),
                &shortened(words, width * 1.1 - 34.0),
            ));
        }
    }
    (out, y + 6.0)
}

fn one(out: &mut String, bar: &Bar, top: f64, unit: f64, width: f64) -> std::fmt::Result {
    out.push_str(&text("t-label", "start", (6.0, top + 12.0), &shortened(&bar.label, width - 6.0)));
    let y = top + 18.0;
    let place = |value: f64| (value * unit).max(0.0);
    let mut end = 0.0_f64;
    if let Some(value) = bar.value.filter(|v| v.is_finite()) {
        end = place(value);
        writeln!(
            out,
            "<rect class=\"bar\" x=\"0\" y=\"{y:.1}\" width=\"{end:.1}\" height=\"{BAR}\"/>"
        )?;
    }
    if let Some((low, high)) = bar.whisker.filter(|(low, high)| low.is_finite() && high.is_finite())
    {
        out.push_str(&whisker(place(low), place(high), y));
        end = end.max(place(high));
    }
    if let Some(at) = bar.mark.filter(|v| v.is_finite()) {
        out.push_str(&mark(place(at), y));
        end = end.max(place(at) + 5.0);
    }
    let class = if bar.value.is_some() { "t-value" } else { "t-bad" };
    out.push_str(&text(class, "start", (end + 8.0, y + 11.5), &bar.words));
    Ok(())
}

/// Draws an interval, in the middle of the bar at `y`.
fn whisker(low: f64, high: f64, y: f64) -> String {
    let (middle, top, bottom) = (y + BAR / 2.0, y + 2.5, y + BAR - 2.5);
    format!(
        "<path class=\"whisker\" d=\"M{low:.1} {top:.1}V{bottom:.1}M{low:.1} \
         {middle:.1}H{high:.1}M{high:.1} {top:.1}V{bottom:.1}\"/>\n"
    )
}

/// Draws a diamond over the bar at `y`.
fn mark(x: f64, y: f64) -> String {
    let middle = y + BAR / 2.0;
    format!("<path class=\"mark\" d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\"/>\n", middle - 5.0)
}
