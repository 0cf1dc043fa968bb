//! Bars with their labels and values.

use std::fmt::Write;

use super::scale::Mapping;
use super::{hint, shortened, text};
use crate::numbers::number;
use crate::plot::{Axis, Bar, Bars, Scale, Unit};

/// Height of a bar with label and gap.
const ROW: f64 = 44.0;
const BAR: f64 = 14.0;
/// Space for the value at a bar's end.
const WORDS: f64 = 110.0;
const HEAD: f64 = 30.0;
const LEGEND: f64 = 20.0;
/// Height of the axis.
const AXIS: f64 = 36.0;

/// Ratio of the largest to the smallest bar from which the axis is logarithmic.
const LOG_FROM: f64 = 100.0;

/// Draws the content; returns it with its height.
pub(super) fn draw(bars: &Bars, width: f64) -> (String, f64) {
    let axis = axis(bars);
    let mapping = mapping(bars, axis.scale);
    let mut out = text("t-title", "start", (0.0, 16.0), &shortened(&bars.title, width));
    let bottom = HEAD + bars.bars.len() as f64 * ROW;
    // Writing to a string cannot fail.
    let _ = ticks(&mut out, &axis, mapping.as_ref(), width, bottom);
    let place = |value: f64| {
        let share = mapping.as_ref().and_then(|mapping| mapping.place(value)).unwrap_or(0.0);
        (share * (width - WORDS)).max(0.0)
    };
    for (i, bar) in bars.bars.iter().enumerate() {
        let mut row = String::new();
        let _ = one(&mut row, bar, HEAD + i as f64 * ROW, &place, width);
        out.push_str(&hint(&words(bars, bar), &row));
    }
    let mut y = bottom + AXIS;
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

/// Returns the axis: logarithmic if a linear one would hide the shortest bar.
fn axis(bars: &Bars) -> Axis {
    let values = bars.bars.iter().filter_map(|bar| bar.value);
    let (least, most) = values
        .filter(|value| value.is_finite() && *value > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(least, most), v| (least.min(v), most.max(v)));
    let scale = if most >= least * LOG_FROM { Scale::Log } else { Scale::Linear };
    Axis { name: bars.title.clone(), scale, unit: Unit::Number }
}

/// Returns the places of values; `None` without any value above zero.
fn mapping(bars: &Bars, scale: Scale) -> Option<Mapping> {
    let reach = |bar: &Bar| [bar.value, bar.whisker.map(|(_, high)| high), bar.mark];
    let reached = bars.bars.iter().flat_map(reach).flatten();
    let most = reached.filter(|v| v.is_finite()).fold(0.0, f64::max);
    let least = bars.bars.iter().filter_map(|bar| bar.value).filter(|value| *value > 0.0);
    let least = least.fold(f64::INFINITY, f64::min);
    let low = match scale {
        // The shortest bar has some length too.
        Scale::Log => 10_f64.powf((least / 1.5).log10().floor()),
        Scale::Linear | Scale::Nines => 0.0,
    };
    Mapping::exact(scale, (low, most))
}

/// Draws the axis under the bars.
fn ticks(
    out: &mut String,
    axis: &Axis,
    mapping: Option<&Mapping>,
    width: f64,
    bottom: f64,
) -> std::fmt::Result {
    let most = if width > 500.0 { 8 } else { 4 };
    let ticks = mapping.map(|mapping| mapping.ticks(axis, most)).unwrap_or_default();
    let mut free = f64::NEG_INFINITY;
    for (share, name) in ticks {
        let x = (share * (width - WORDS)).max(0.5);
        let class = if share < 1e-9 { "base" } else { "grid" };
        writeln!(
            out,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{HEAD:.1}\" \
             y2=\"{bottom:.1}\"/>"
        )?;
        let (anchor, half) = match name.chars().count() as f64 * 3.4 {
            half if half > x => ("start", 2.0 * half),
            half => ("middle", half),
        };
        if x - half.min(x) > free {
            out.push_str(&text("t-tick", anchor, (x, bottom + 14.0), &name));
            free = x + half + 8.0;
        }
    }
    let name = format!("→ {}", axis.title());
    out.push_str(&text("t-small", "start", (0.0, bottom + 31.0), &name));
    Ok(())
}

/// Returns a bar in words.
fn words(bars: &Bars, bar: &Bar) -> String {
    let mut words = format!("{}: {}", bar.label, bar.words);
    if let (Some((low, high)), Some(meaning)) = (bar.whisker, &bars.whisker) {
        words.push_str(&format!("; {meaning}: {} to {}", number(low), number(high)));
    }
    if let (Some(at), Some(meaning)) = (bar.mark, &bars.mark) {
        words.push_str(&format!("; {meaning}: {}", number(at)));
    }
    words
}

fn one(
    out: &mut String,
    bar: &Bar,
    top: f64,
    place: &impl Fn(f64) -> f64,
    width: f64,
) -> std::fmt::Result {
    out.push_str(&text("t-label", "start", (6.0, top + 12.0), &shortened(&bar.label, width - 6.0)));
    let y = top + 18.0;
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

#[cfg(test)]
mod tests {
    use super::super::{Drawing, Size, render};
    use super::*;

    fn bars(values: &[f64]) -> Bars {
        let bar = |value: &f64| Bar {
            label: "<name>".to_owned(),
            value: Some(*value),
            words: number(*value),
            whisker: Some((*value * 0.9, *value * 1.1)),
            mark: None,
        };
        Bars {
            title: "Requests per second".to_owned(),
            description: String::new(),
            bars: values.iter().map(bar).collect(),
            mark: None,
            whisker: Some("range".to_owned()),
        }
    }

    fn lengths(drawn: &str) -> Vec<f64> {
        let bars = drawn.split("class=\"bar\"").skip(1);
        let width = |bar: &str| bar.split_once("width=\"")?.1.split_once('"')?.0.parse().ok();
        bars.filter_map(width).collect()
    }

    #[test]
    fn a_hundredfold_difference_makes_the_axis_logarithmic() {
        let linear = render(Drawing::Bars(&bars(&[50.0, 4_900.0])), Size::Wide, "a");
        assert!(!linear.contains("logarithmic"), "{linear}");
        let log = render(Drawing::Bars(&bars(&[10.0, 1_000.0, 100_000.0])), Size::Wide, "a");
        assert!(log.contains("→ Requests per second, logarithmic"), "{log}");
        let lengths = lengths(&log);
        let steps = [lengths[1] - lengths[0], lengths[2] - lengths[1]];
        assert!(lengths[0] > 10.0 && (steps[0] - steps[1]).abs() < 0.5, "{lengths:?}");
        for tick in [">10<", ">1,000<", ">100,000<"] {
            assert!(log.contains(tick), "{tick} in {log}");
        }
    }

    #[test]
    fn a_bar_shows_its_values_under_the_pointer() {
        let drawn = render(Drawing::Bars(&bars(&[50.0, 100.0])), Size::Narrow, "a");
        assert!(
            drawn.contains("<title>&lt;name&gt;: 50.0; range: 45.0 to 55.0</title>"),
            "{drawn}"
        );
    }

    #[test]
    fn bars_without_values_are_drawn() {
        for values in [&[][..], &[0.0], &[f64::NAN, f64::INFINITY], &[0.0, 3.0]] {
            let drawn = render(Drawing::Bars(&bars(values)), Size::Wide, "a");
            assert!(!drawn.contains("NaN") || values[0].is_nan(), "{drawn}");
            assert!(!drawn.contains("=\"NaN") && !drawn.contains("=\"inf"), "{drawn}");
        }
    }
}
