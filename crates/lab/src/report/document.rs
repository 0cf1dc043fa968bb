//! A report as plain values: what is said, in order, without a word about how it is drawn. Texts are plain; the
//! renderers escape them.

use super::plot::Plot;

/// A whole report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// Its name, and the page's.
    pub title: String,
    /// A line of small print under the title: when, which experiment.
    pub subtitle: String,
    /// What follows.
    pub blocks: Vec<Block>,
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Begins a section.
    Heading(String),
    /// Begins a part of a section.
    Subheading(String),
    /// The question that all is about.
    Question(String),
    /// The answer to it.
    Answer(String),
    /// What a reader must know before believing a figure.
    Warning(String),
    /// A paragraph.
    Text(String),
    /// Words of an experiment's author, in Markdown: paragraphs, lists, `code`, **bold**, *emphasis*.
    Note(String),
    /// A list.
    List(Vec<String>),
    /// Names with values.
    Facts(Vec<(String, String)>),
    /// A command line.
    Code(String),
    /// Figures.
    Table(Table),
    /// A drawing. Markdown leaves it out: every figure in it stands in a table too.
    Plot(Plot),
}

/// A table. Each row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What it shows, in a few words.
    pub caption: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Vec<Cell>>,
    /// Rows, by their number from 0, that begin another group: a line stands above them.
    pub groups: Vec<usize>,
    /// What explains it, under it.
    pub foot: Vec<String>,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// Whether it holds figures, which stand on the right.
    pub figures: bool,
    /// Whether it tells what a row is rather than what it came to. On a narrow page such a column stands under the row's name.
    pub about: bool,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// More, in smaller print below: an interval.
    pub detail: String,
    /// How it is said.
    pub tone: Tone,
}

/// How a cell is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// As usual.
    #[default]
    Plain,
    /// The figure to look at.
    Strong,
    /// Of less weight.
    Quiet,
    /// Something went wrong.
    Bad,
}

impl Column {
    /// A column of words.
    #[must_use]
    pub fn words(name: &str) -> Self {
        Self { name: name.to_owned(), figures: false, about: false }
    }

    /// A column of figures.
    #[must_use]
    pub fn figures(name: &str) -> Self {
        Self { name: name.to_owned(), figures: true, about: false }
    }
}

impl Cell {
    /// Plain words or a figure.
    #[must_use]
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Words of less weight.
    #[must_use]
    pub fn quiet(text: impl Into<String>) -> Self {
        Self { tone: Tone::Quiet, ..Self::plain(text) }
    }

    /// There is no value.
    #[must_use]
    pub fn none() -> Self {
        Self::quiet("–")
    }

    /// In place of a figure of a measurement that does not count.
    #[must_use]
    pub fn failed() -> Self {
        Self { tone: Tone::Bad, ..Self::plain("FAILED") }
    }

    /// The figure to look at, with its interval.
    #[must_use]
    pub fn strong(text: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { text: text.into(), detail: detail.into(), tone: Tone::Strong }
    }
}

/// Text on one line, for a terminal and for Markdown: control characters become blanks, and what would turn the direction of the
/// text after it is replaced.
pub(super) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() {
                ' '
            } else if turns(c) {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// Whether a character turns the direction of what follows.
pub(super) fn turns(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
