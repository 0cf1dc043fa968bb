//! Plots as SVG. Colours come from classes of the page's style, so they follow light, dark and
//! print; names and dashes distinguish curves too.

mod bars;
mod heat;
mod labels;
mod lines;
pub use lines::CURVES_MAX;
mod marks;
mod scale;
mod timeline;

use crate::html::escape;
use crate::plot::{MarkedLines, Plot};

/// Target width of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
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

/// Renders a plot; `id` must be unique in its page.
pub fn render(plot: &Plot, size: Size, id: &str) -> String {
    let (title, description) = match plot {
        Plot::Bars(bars) => (&bars.title, &bars.description),
        Plot::Lines(lines) | Plot::Marked(MarkedLines { lines, .. }) => {
            (&lines.title, &lines.description)
        }
        Plot::Timeline(timeline) => (&timeline.title, &timeline.description),
        Plot::HeatMap(map) => (&map.title, &map.description),
    };
    let width = size.width();
    let (body, height) = match plot {
        Plot::Bars(bars) => bars::draw(bars, width),
        Plot::Lines(lines) => lines::draw(lines, None, width),
        Plot::Marked(marked) => lines::draw(&marked.lines, Some(marked), width),
        Plot::Timeline(timeline) => timeline::draw(timeline, width),
        Plot::HeatMap(map) => heat::draw(map, width),
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
