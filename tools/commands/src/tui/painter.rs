//! Conversion of frames to terminal output, as little as possible: no raw mode, no alternate
//! screen, no terminal queries, no hidden cursor. Therefore nothing needs restoring, however the
//! process ends.
//!
//! A frame is above the cursor, which stays on the empty line below it. The next frame moves up by
//! the rows of the last one and overwrites it.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;

/// Synchronized output: a terminal that supports it shows everything in between at once; others
/// ignore it.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
const PLAIN: &str = "\x1b[0m";
const REST_OF_ROW: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

/// Tracks the content of the terminal.
#[derive(Debug)]
pub(crate) struct Painter {
    colours: bool,
    /// Columns used by each row of the last frame.
    drawn: Vec<u16>,
    /// Columns of the terminal at that time.
    columns: u16,
}

impl Painter {
    pub(crate) fn new(colours: bool) -> Self {
        Self { colours, drawn: Vec::new(), columns: 0 }
    }

    /// Returns the output that replaces the last frame by this one, on a terminal with this many
    /// columns.
    pub(crate) fn replace(&mut self, frame: &Buffer, columns: u16) -> String {
        let mut out = self.back(columns);
        self.drawn.clear();
        if std::mem::replace(&mut self.columns, columns) != columns {
            // Otherwise wrapped rows would permanently count as parts of one row.
            out.push_str(REST_OF_SCREEN);
        }
        for cells in frame.content.chunks(usize::from(frame.area.width.max(1))) {
            let written = row(&mut out, cells, self.colours);
            out.push_str(REST_OF_ROW);
            out.push_str("\r\n");
            self.drawn.push(written);
        }
        out.push_str(REST_OF_SCREEN);
        out.push_str(END);
        out
    }

    /// Returns the output that removes the last frame.
    pub(super) fn erase(&mut self, columns: u16) -> String {
        if self.drawn.is_empty() {
            return String::new();
        }
        let back = self.back(columns);
        self.drawn.clear();
        format!("{back}{REST_OF_SCREEN}{END}")
    }

    /// Forgets the last frame because other programs have written since: their output stays, and
    /// the next frame appears below it.
    pub(crate) fn forget(&mut self) {
        self.drawn.clear();
    }

    /// Returns to the beginning of the last frame. A terminal that became narrower has wrapped long
    /// rows.
    fn back(&self, columns: u16) -> String {
        let rows =
            self.drawn.iter().map(|width| usize::from(width.div_ceil(columns.max(1)).max(1)));
        match rows.sum::<usize>() {
            0 => format!("{BEGIN}\r"),
            up => format!("{BEGIN}\r\x1b[{up}A"),
        }
    }
}

/// Writes a row without trailing blanks; returns the columns used.
fn row(out: &mut String, cells: &[Cell], colours: bool) -> u16 {
    let end = cells.iter().rposition(|cell| cell.symbol() != " ").map_or(0, |last| last + 1);
    let mut at = 0;
    let mut styled = false;
    let mut before = None;
    while let Some(cell) = cells.get(at).filter(|_| at < end) {
        let style = (cell.fg, cell.modifier);
        if colours && before.replace(style) != Some(style) {
            out.push_str(PLAIN);
            out.push_str(&codes(style));
            styled = true;
        }
        out.push_str(cell.symbol());
        // A wide character covers the following cell too.
        at += Span::raw(cell.symbol()).width().max(1);
    }
    if styled {
        out.push_str(PLAIN);
    }
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Returns the escape codes of a style; only the styles of the display are supported.
fn codes((colour, modifier): (Color, Modifier)) -> String {
    let colour = match colour {
        Color::Red => "\x1b[31m",
        Color::Green => "\x1b[32m",
        Color::Yellow => "\x1b[33m",
        Color::Cyan => "\x1b[36m",
        _ => "",
    };
    let weight = if modifier.contains(Modifier::BOLD) {
        "\x1b[1m"
    } else if modifier.contains(Modifier::DIM) {
        "\x1b[2m"
    } else if modifier.contains(Modifier::REVERSED) {
        "\x1b[7m"
    } else {
        ""
    };
    format!("{colour}{weight}")
}
