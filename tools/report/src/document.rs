//! Report content as plain values, independent of layout. Renderers escape the texts.

use crate::plot::Plot;

/// A whole report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// Title, of the page too.
    pub title: String,
    /// Line under the title: time, experiment.
    pub subtitle: String,
    /// Its parts, in order.
    pub blocks: Vec<Block>,
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Heading of a section.
    Heading(String),
    /// Heading of a subsection.
    Subheading(String),
    /// The question of the experiment.
    Question(String),
    /// The answer.
    Answer(String),
    /// A warning that precedes the figures.
    Warning(String),
    /// A paragraph.
    Text(String),
    /// Text by the experiment's author, in Markdown: paragraphs, lists, `code`, **bold**,
    /// *emphasis*.
    Note(String),
    /// A list.
    List(Vec<String>),
    /// Names with values.
    Facts(Vec<(String, String)>),
    /// A command line.
    Code(String),
    /// Figures.
    Table(Table),
    /// A plot. Markdown omits it: a table has every figure of it.
    Plot(Plot),
}

/// A table. Each row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Caption.
    pub caption: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Vec<Cell>>,
    /// Rows that begin a group, by number from 0; a line separates groups.
    pub groups: Vec<usize>,
    /// Notes under the table.
    pub foot: Vec<String>,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// True if it holds figures, aligned right.
    pub figures: bool,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Text.
    pub text: String,
    /// Smaller text below: an interval.
    pub detail: String,
    /// Emphasis.
    pub style: CellStyle,
}

/// Emphasis of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellStyle {
    /// Normal.
    #[default]
    Plain,
    /// The main figure.
    Strong,
    /// Less important.
    Quiet,
    /// A failure.
    Bad,
}

impl Column {
    /// Creates a column of words.
    #[must_use]
    pub fn words(name: &str) -> Self {
        Self { name: name.to_owned(), figures: false }
    }

    /// Creates a column of figures.
    #[must_use]
    pub fn figures(name: &str) -> Self {
        Self { name: name.to_owned(), figures: true }
    }
}

impl Cell {
    /// Creates a plain cell.
    #[must_use]
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates a less important cell.
    #[must_use]
    pub fn quiet(text: impl Into<String>) -> Self {
        Self { style: CellStyle::Quiet, ..Self::plain(text) }
    }

    /// Creates a cell without value.
    #[must_use]
    pub fn none() -> Self {
        Self::quiet("–")
    }

    /// Creates the cell of a failed measurement.
    #[must_use]
    pub fn failed() -> Self {
        Self { style: CellStyle::Bad, ..Self::plain("FAILED") }
    }

    /// Creates the main figure with its interval.
    #[must_use]
    pub fn strong(text: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { text: text.into(), detail: detail.into(), style: CellStyle::Strong }
    }
}

/// Returns text on one line for terminals and Markdown: control characters become blanks, and
/// characters that change the text direction are replaced.
pub fn one_line(text: &str) -> String {
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

/// Returns whether a character changes the text direction.
pub fn turns(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
