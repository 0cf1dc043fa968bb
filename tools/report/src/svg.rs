//! Bars and timelines as SVG; the page's script draws the other plots. Colours come from classes of
//! the page's style, so they follow light, dark and print.

mod bars;
mod scale;
mod timeline;

use crate::escape::escape;
use crate::plot::{Bars, Timeline};

/// Target width of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Desktop screen or paper.
    Wide,
    /// Telephone.
    Narrow,
}

impl Size {
    /// Returns its class in the style, and the suffix of its id.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }

    /// Returns its width in units, which are pixels at full size.
    fn width(self) -> f64 {
        match self {
            Self::Wide => 760.0,
            Self::Narrow => 350.0,
        }
    }
}

/// A plot that needs no script.
#[derive(Clone, Copy)]
pub(crate) enum Drawing<'a> {
    /// Bars.
    Bars(&'a Bars),
    /// A timeline.
    Timeline(&'a Timeline),
}

/// Renders a drawing; `id` must be unique in its page.
pub(crate) fn render(drawing: Drawing<'_>, size: Size, id: &str) -> String {
    let width = size.width();
    let (title, description, (body, height)) = match drawing {
        Drawing::Bars(bars) => (&bars.title, &bars.description, bars::draw(bars, width)),
        Drawing::Timeline(timeline) => {
            (&timeline.title, &timeline.description, timeline::draw(timeline, width))
        }
    };
    format!(
        "<svg class=\"{}\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\" \
         aria-labelledby=\"{id}t {id}d\">\n\
         <title id=\"{id}t\">{}</title>\n<desc id=\"{id}d\">{}</desc>\n{body}</svg>\n",
        size.class(),
        escape(title),
        escape(description)
    )
}

/// Returns a text element; `class` sets size and weight, `anchor` the end that is at `x`.
fn text(class: &str, anchor: &str, (x, y): (f64, f64), words: &str) -> String {
    format!(
        "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n",
        escape(words)
    )
}

/// Returns a group of elements that shows `words` under the pointer.
fn hint(words: &str, elements: &str) -> String {
    format!("<g>\n<title>{}</title>\n{elements}</g>\n", escape(words))
}

/// Truncates a text to a width, with letters of 13 units.
fn shortened(words: &str, room: f64) -> String {
    const LETTER: f64 = 6.9;
    let letters = (room / LETTER).max(1.0) as usize;
    if words.chars().count() <= letters {
        return words.to_owned();
    }
    words.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}
