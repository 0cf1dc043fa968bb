//! From a picture to what is written to the terminal, as little of it as possible: no raw mode, no alternate screen, no
//! question to the terminal, no hidden cursor. So nothing has to be restored, whatever ends the process.
//!
//! The picture stands above the cursor, which rests on the empty line below it. The next picture goes up by as many rows
//! as the last one takes and writes over it.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;

/// A terminal that knows these shows all that lies between them at once; others ignore them.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
const PLAIN: &str = "\x1b[0m";
const REST_OF_ROW: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

/// Knows what stands on the terminal.
#[derive(Debug)]
pub(super) struct Painter {
    colours: bool,
    /// Columns that each row of the last picture takes.
    drawn: Vec<u16>,
    /// Columns of the terminal then.
    columns: u16,
}

impl Painter {
    pub(super) fn new(colours: bool) -> Self {
        Self { colours, drawn: Vec::new(), columns: 0 }
    }

    /// What replaces the last picture by this one, on a terminal of so many columns.
    pub(super) fn replace(&mut self, picture: &Buffer, columns: u16) -> String {
        let mut out = self.back(columns);
        self.drawn.clear();
        if std::mem::replace(&mut self.columns, columns) != columns {
            // Rows that were broken would count as parts of one row for good.
            out.push_str(REST_OF_SCREEN);
        }
        for cells in picture.content.chunks(usize::from(picture.area.width.max(1))) {
            let written = row(&mut out, cells, self.colours);
            out.push_str(REST_OF_ROW);
            out.push_str("\r\n");
            self.drawn.push(written);
        }
        out.push_str(REST_OF_SCREEN);
        out.push_str(END);
        out
    }

    /// What takes the last picture away.
    pub(super) fn erase(&mut self, columns: u16) -> String {
        if self.drawn.is_empty() {
            return String::new();
        }
        let back = self.back(columns);
        self.drawn.clear();
        format!("{back}{REST_OF_SCREEN}{END}")
    }

    /// Others have written since: what stands on the terminal is left alone, and the next picture comes below it.
    pub(super) fn forget(&mut self) {
        self.drawn.clear();
    }

    /// To the beginning of the last picture. Where the terminal has become narrower it has broken long rows in two.
    fn back(&self, columns: u16) -> String {
        let rows = self.drawn.iter().map(|width| usize::from(width.div_ceil(columns.max(1)).max(1)));
        match rows.sum::<usize>() {
            0 => format!("{BEGIN}\r"),
            up => format!("{BEGIN}\r\x1b[{up}A"),
        }
    }
}

/// Writes a row without the blanks at its end; returns the columns that it takes.
fn row(out: &mut String, cells: &[Cell], colours: bool) -> u16 {
    let end = cells.iter().rposition(|cell| cell.symbol() != " ").map_or(0, |last| last + 1);
    let (mut at, mut styled) = (0, false);
    let mut before = None;
    while let Some(cell) = cells.get(at).filter(|_| at < end) {
        let style = (cell.fg, cell.modifier);
        if colours && before.replace(style) != Some(style) {
            out.push_str(PLAIN);
            out.push_str(&codes(style));
            styled = true;
        }
        out.push_str(cell.symbol());
        // A wide letter covers the cells after it.
        at += Span::raw(cell.symbol()).width().max(1);
    }
    if styled {
        out.push_str(PLAIN);
    }
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// What switches a style on; only what the display uses is known.
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
    } else {
        ""
    };
    format!("{colour}{weight}")
}
