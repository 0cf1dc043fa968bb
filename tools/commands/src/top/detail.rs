//! A frame of one collection: charts of its lookups, its hot keys, and refusals of its instance.
//! Pure.

use hotrow_report::numbers::{micros, number, percent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use super::frame::shown;
use super::instance::{Collection, Numbers, ratio};
use crate::tui::layout::curve;

/// Width from which parts are side by side.
const COLUMNS_FROM: u16 = 99;
const CHART_ROWS: u16 = 4;
/// Columns between two that are side by side.
const GAP: u16 = 3;
const ID_COLUMNS: usize = 28;

impl Collection {
    /// Returns its lookups in the last second.
    pub(super) fn lookups(&self) -> f64 {
        [&self.memory, &self.database].iter().filter_map(|part| *part.last()?).sum()
    }
}

/// A frame's contents.
#[derive(Clone, Debug)]
pub(super) struct CollectionFrame<'a> {
    pub(super) instance: &'a str,
    pub(super) numbers: &'a Numbers,
    pub(super) collection: &'a Collection,
    /// Its number among `count`, from 0.
    pub(super) number: usize,
    pub(super) count: usize,
}

fn dim(text: impl Into<String>) -> Line<'static> {
    Line::styled(text.into(), Style::new().add_modifier(Modifier::DIM))
}

impl CollectionFrame<'_> {
    /// Draws as much as fits, the help in the last row.
    pub(super) fn draw(&self, width: u16, height: u16) -> Buffer {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        let Some(bottom) = height.checked_sub(1) else { return buffer };
        let help = dim("Esc back, ← → other collection, q quit");
        write(&[help], Rect { y: bottom, height: 1, ..area }, &mut buffer);
        let mut room = Rect { height: bottom, ..area };
        write(&self.head(), take(&mut room, 3), &mut buffer);
        let is_wide = width >= COLUMNS_FROM;
        let mut beside =
            Rect { x: (width + GAP) / 2, width: width.saturating_sub(GAP) / 2, ..room };
        if is_wide {
            room.width = beside.width;
        }
        let Collection { memory, database, .. } = self.collection;
        chart("answered from memory", memory, take(&mut room, CHART_ROWS + 2), &mut buffer);
        let right = if is_wide { &mut beside } else { &mut room };
        chart("read from the database", database, take(right, CHART_ROWS + 2), &mut buffer);
        let refusals = self.refusals();
        write(&refusals, take(right, refusals.len() as u16 + 1), &mut buffer);
        write(&self.keys(), room, &mut buffer);
        buffer
    }

    fn head(&self) -> [Line<'static>; 2] {
        let Self { instance, numbers, collection, number: at, count } = self;
        let last = |values: &[Option<f64>]| values.last().copied().flatten();
        let hits = ratio(last(&collection.memory), last(&collection.database));
        let name = format!("{}: collection {} of {count} on {instance}", collection.name, at + 1);
        let figures = format!(
            "{} lookups/s, {} hits; the instance: p99 {}, {} behind",
            number(collection.lookups()),
            shown(hits, percent),
            shown(numbers.p99_us, micros),
            shown(numbers.staleness_ms, |ms| micros(ms * 1e3)),
        );
        let bold = Style::new().add_modifier(Modifier::BOLD);
        [Line::styled(name, bold), Line::raw(figures)]
    }

    fn keys(&self) -> Vec<Line<'static>> {
        let head = format!("{:<ID_COLUMNS$}{:>9}{:>13}", "HOT KEYS", "SHARE", "REQUESTS/S");
        let mut lines = vec![dim(head)];
        for key in &self.collection.keys {
            let id: String = key.id.chars().take(ID_COLUMNS - 1).collect();
            let (share, rate) = (percent(key.share), number(key.requests_per_s));
            lines.push(Line::raw(format!("{id:<ID_COLUMNS$}{share:>9}{rate:>13}")));
        }
        if lines.len() == 1 {
            lines.push(Line::raw("no key is requested much more often than the others"));
        }
        lines
    }

    fn refusals(&self) -> Vec<Line<'static>> {
        let row = |what: &str, rate: &str| format!("{what:<ID_COLUMNS$}{rate:>9}");
        let errors = ("5xx".to_owned(), self.numbers.errors.unwrap_or(0.0));
        let lines = [&errors].into_iter().chain(&self.numbers.refusals).map(|(what, rate)| {
            let style = if *rate > 0.0 { Style::new().fg(Color::Red) } else { Style::new() };
            Line::styled(row(what, &number(*rate)), style)
        });
        [dim(row("REFUSED BY THE INSTANCE", "A SECOND"))].into_iter().chain(lines).collect()
    }
}

/// Takes rows from the top of what is left.
fn take(room: &mut Rect, rows: u16) -> Rect {
    let height = rows.min(room.height);
    let taken = Rect { height, ..*room };
    *room = Rect { y: room.y + height, height: room.height - height, ..*room };
    taken
}

fn write(lines: &[Line<'_>], area: Rect, buffer: &mut Buffer) {
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// Draws a title with the last and the highest value, and the values.
fn chart(what: &str, values: &[Option<f64>], mut area: Rect, buffer: &mut Buffer) {
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let last = shown(values.last().copied().flatten(), number);
    let head = format!("{last} a second {what}; highest {}", number(most));
    write(&[Line::raw(head)], take(&mut area, 1), buffer);
    // Rates below one are visible too.
    let values = values.iter().map(|value| (value.unwrap_or(0.0) * 1e3).round() as u64);
    let values: Vec<u64> = values.collect();
    let width = area.width.min(values.len() as u16);
    curve(&values, Rect { height: area.height.min(CHART_ROWS), width, ..area }, buffer);
}

#[cfg(test)]
mod tests {
    use super::super::instance::HotKey;
    use super::*;

    fn drawn(size: (u16, u16)) -> String {
        let key = HotKey { id: "k".repeat(40), share: 0.25, requests_per_s: 225.0 };
        let collection = Collection {
            name: "products".to_owned(),
            memory: vec![Some(500.0), None, Some(900.0)],
            database: vec![Some(0.0), None, Some(100.0)],
            keys: vec![key],
        };
        let refusals = vec![("rate limit".to_owned(), 5_000.0)];
        let numbers = Numbers { errors: Some(513.0), refusals, ..Numbers::default() };
        let (instance, number, count) = ("10.0.0.1:8081", 1, 3);
        let (numbers, collection) = (&numbers, &collection);
        let frame = CollectionFrame { instance, numbers, collection, number, count };
        let buffer = frame.draw(size.0, size.1);
        let symbols: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
        let lines = symbols.chunks(usize::from(size.0).max(1)).map(<[&str]>::concat);
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_collection_has_charts_hot_keys_and_refusals() {
        [(0, 0), (1, 1), (99, 2), (120, 8), (98, 16)].iter().for_each(|size| _ = drawn(*size));
        for size in [(120, 30), (60, 40)] {
            let frame = drawn(size);
            for part in "products: collection 2 of 3 on 10.0.0.1:8081
                1,000 lookups/s, 90 % hits
                900 a second answered from memory
                100 a second read from the database
                █
                kkk      25 %          225
                rate limit                      5,000
                513
                Esc back"
                .lines()
            {
                let part = part.trim();
                assert!(frame.contains(part), "{part} is not in\n{frame}");
            }
        }
    }
}
