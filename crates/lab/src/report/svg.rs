//! Drawings as SVG. Colours come from classes of the page's style, so that they follow light, dark and print; curves are told
//! apart by numbers and dashes too.

mod bars;
mod lines;
pub(super) use lines::CURVES_MAX;
mod marks;
mod scale;
mod timeline;

use super::html::escape;
use super::plot::{Marked, Plot};

/// For which width a drawing is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// A screen or a sheet of paper.
    Wide,
    /// A telephone.
    Narrow,
}

impl Size {
    /// Its class in the style, and the end of its id.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }

    /// Its width in units that are pixels where it is shown as it is.
    fn width(self) -> f64 {
        match self {
            Self::Wide => 760.0,
            Self::Narrow => 350.0,
        }
    }
}

/// The drawing; `id` must be unique in its page.
pub(super) fn render(plot: &Plot, size: Size, id: &str) -> String {
    let (title, description) = match plot {
        Plot::Bars(bars) => (&bars.title, &bars.description),
        Plot::Lines(lines) | Plot::Marked(Marked { lines, .. }) => (&lines.title, &lines.description),
        Plot::Timeline(timeline) => (&timeline.title, &timeline.description),
    };
    let width = size.width();
    let (body, height) = match plot {
        Plot::Bars(bars) => bars::draw(bars, width),
        Plot::Lines(lines) => lines::draw(lines, None, width),
        Plot::Marked(marked) => lines::draw(&marked.lines, Some(marked), width),
        Plot::Timeline(timeline) => timeline::draw(timeline, width),
    };
    format!(
        "<svg class=\"{}\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-labelledby=\"{id}t {id}d\">\n\
         <title id=\"{id}t\">{}</title>\n<desc id=\"{id}d\">{}</desc>\n{body}</svg>\n",
        size.class(),
        escape(title),
        escape(description)
    )
}

/// A text; `class` says its size and weight, `anchor` which of its ends stands at `x`.
fn text(class: &str, anchor: &str, (x, y): (f64, f64), words: &str) -> String {
    format!("<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n", escape(words))
}

/// As much of a text as has room, in letters of 13 units.
fn shortened(words: &str, room: f64) -> String {
    const LETTER: f64 = 6.9;
    let letters = (room / LETTER).max(1.0) as usize;
    if words.chars().count() <= letters {
        return words.to_owned();
    }
    words.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}
