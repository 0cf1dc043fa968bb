//! A frame of `hotrow top`, fitted to the room: totals, a row per instance, help. Pure; also the
//! plain text of `--once`.

use hotrow_report::numbers::{bytes, cores, grouped, micros, number, percent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::instance::Numbers;
use super::view::{Report, Row, SortKey, Totals};

/// What is shown where nothing is known.
const NOTHING: &str = "–";
/// Steps of the sparkline.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const NAME_COLUMNS: (usize, usize) = (12, 34);
/// Columns between two columns of the table.
const GAP: usize = 2;

/// A frame's contents.
#[derive(Clone, Debug)]
pub(super) struct TopFrame<'a> {
    pub(super) rows: &'a [Row],
    pub(super) totals: &'a Totals,
    pub(super) sort: SortKey,
    pub(super) is_reversed: bool,
    /// True where keys are read.
    pub(super) has_keys: bool,
}

/// A column of the table.
struct Column {
    title: &'static str,
    width: usize,
    /// The lowest stays longest when room is short.
    rank: u8,
    /// Key by which rows are ordered by this column.
    sort: Option<SortKey>,
    cell: fn(&Numbers) -> String,
    total: fn(&Totals) -> String,
}

fn shown(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), format)
}

fn state(numbers: &Numbers) -> String {
    if numbers.unmet.is_empty() {
        "ready".to_owned()
    } else {
        format!("not ready: {}", numbers.unmet.join(", "))
    }
}

fn spark(numbers: &Numbers) -> String {
    let most = numbers.curve.iter().flatten().copied().fold(1.0, f64::max);
    let tail = numbers.curve.len().saturating_sub(SPARK_COLUMNS);
    let step = |value: &Option<f64>| match value {
        Some(value) => STEPS[((value / most * 7.0).round() as usize).min(7)],
        None => ' ',
    };
    let curve: String = numbers.curve[tail..].iter().map(step).collect();
    format!("{curve:>SPARK_COLUMNS$}")
}

/// Seconds in the sparkline.
const SPARK_COLUMNS: usize = 20;

const COLUMNS: [Column; 13] = [
    Column {
        title: "STATE",
        width: 9,
        rank: 1,
        sort: None,
        cell: state,
        total: |t| format!("{}/{}", t.ready, t.instances),
    },
    Column {
        title: "REQ/S",
        width: 9,
        rank: 0,
        sort: Some(SortKey::Requests),
        cell: |n| shown(n.requests, number),
        total: |t| shown(t.requests, number),
    },
    Column {
        title: "LAST 20 S",
        width: SPARK_COLUMNS,
        rank: 9,
        sort: None,
        cell: spark,
        total: |_| String::new(),
    },
    Column {
        title: "HITS",
        width: 8,
        rank: 2,
        sort: Some(SortKey::Hits),
        cell: |n| shown(n.hit_ratio(), percent),
        total: |t| shown(t.hit_ratio, percent),
    },
    Column {
        title: "P99",
        width: 8,
        rank: 3,
        sort: Some(SortKey::P99),
        cell: |n| shown(n.p99_us, micros),
        total: |t| shown(t.p99_us_max, micros),
    },
    Column {
        title: "STALE",
        width: 8,
        rank: 4,
        sort: Some(SortKey::Stale),
        cell: |n| shown(n.staleness_ms, |ms| micros(ms * 1e3)),
        total: |t| shown(t.staleness_ms_max, |ms| micros(ms * 1e3)),
    },
    Column {
        title: "DB/S",
        width: 7,
        rank: 5,
        sort: None,
        cell: |n| shown(n.queries, number),
        total: |t| shown(t.queries, number),
    },
    Column {
        title: "REFUSED/S",
        width: 9,
        rank: 6,
        sort: Some(SortKey::Refused),
        cell: |n| shown(n.refused, number),
        total: |t| shown(t.refused, number),
    },
    Column {
        title: "5XX/S",
        width: 7,
        rank: 7,
        sort: None,
        cell: |n| shown(n.errors, number),
        total: |t| shown(t.errors, number),
    },
    Column {
        title: "CONNS",
        width: 7,
        rank: 10,
        sort: None,
        cell: |n| shown(n.connections, grouped),
        total: |t| shown(t.connections, grouped),
    },
    Column {
        title: "CPU",
        width: 5,
        rank: 8,
        sort: None,
        cell: |n| shown(n.cpu_cores, cores),
        total: |t| shown(t.cpu_cores, cores),
    },
    Column {
        title: "MEMORY",
        width: 9,
        rank: 11,
        sort: None,
        cell: |n| shown(n.memory_bytes, bytes),
        total: |t| shown(t.memory_bytes, bytes),
    },
    Column {
        title: "CACHE",
        width: 7,
        rank: 12,
        sort: None,
        cell: |n| percent(n.cache_bytes as f64 / n.capacity_bytes.max(1) as f64),
        total: |_| String::new(),
    },
];

/// Chooses the columns for this width, in their order, and the width of the names.
fn fit(width: usize, rows: &[Row]) -> (Vec<&'static Column>, usize) {
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let name = longest.clamp(NAME_COLUMNS.0, NAME_COLUMNS.1);
    let mut room = width.saturating_sub(name);
    let mut ranks: Vec<u8> = Vec::new();
    for rank in 0..COLUMNS.len() as u8 {
        let Some(column) = COLUMNS.iter().find(|column| column.rank == rank) else { continue };
        let needed = column.width + GAP;
        if needed > room {
            break;
        }
        room -= needed;
        ranks.push(rank);
    }
    let chosen = COLUMNS.iter().filter(|column| ranks.contains(&column.rank)).collect();
    (chosen, name)
}

/// Cuts a text to a width, or fills it: names and states on the left, numbers on the right.
fn padded(text: &str, width: usize, is_left: bool) -> String {
    let length = text.chars().count();
    if length > width {
        let cut: String = text.chars().take(width.saturating_sub(1)).collect();
        return format!("{cut}…");
    }
    if is_left { format!("{text:<width$}") } else { format!("{text:>width$}") }
}

impl TopFrame<'_> {
    /// Returns the lines, the first of them the heading.
    fn lines(&self, width: usize) -> Vec<Line<'static>> {
        let (columns, name) = fit(width, self.rows);
        let is_left = |column: &Column| column.title == "STATE" || column.title == "LAST 20 S";
        let dim = Style::new().add_modifier(Modifier::DIM);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let line = |first: String, cells: Vec<(String, Style)>, style: Style| {
            let mut spans = vec![Span::styled(padded(&first, name, true), style)];
            spans.extend(columns.iter().zip(cells).map(|(column, (text, style))| {
                let text = padded(&text, column.width, is_left(column));
                Span::styled(format!("{:GAP$}{text}", ""), style)
            }));
            Line::from(spans)
        };
        let head = columns.iter().map(|column| {
            let is_sorted = column.sort == Some(self.sort);
            let mark = match (is_sorted, self.is_reversed) {
                (false, _) => "",
                (true, false) => "▾",
                (true, true) => "▴",
            };
            let style = if is_sorted { bold } else { dim };
            (format!("{}{mark}", column.title), style)
        });
        let mut lines = vec![line("INSTANCE".to_owned(), head.collect(), dim)];
        if self.rows.len() > 1 {
            let cells = columns.iter().map(|column| ((column.total)(self.totals), bold));
            let reporting = self.totals.reporting;
            lines.push(line(format!("total of {reporting}"), cells.collect(), bold));
        }
        for row in self.rows {
            lines.push(match &row.report {
                Report::Numbers(numbers) => {
                    let tone = |column: &Column| match column.title {
                        "STATE" if numbers.unmet.is_empty() => Style::new().fg(Color::Green),
                        "STATE" => Style::new().fg(Color::Red),
                        "REFUSED/S" if numbers.refused > Some(0.0) => {
                            Style::new().fg(Color::Yellow)
                        }
                        "5XX/S" if numbers.errors > Some(0.0) => Style::new().fg(Color::Red),
                        "LAST 20 S" => Style::new().fg(Color::Cyan),
                        _ => Style::new(),
                    };
                    let cells = columns.iter().map(|own| ((own.cell)(numbers), tone(own)));
                    line(row.name.clone(), cells.collect(), Style::new())
                }
                Report::Awaited => Line::from(vec![
                    Span::raw(padded(&row.name, name, true)),
                    Span::styled("  waiting for an answer", dim),
                ]),
                Report::Unreachable { for_s, why } => Line::from(vec![
                    Span::raw(padded(&row.name, name, true)),
                    Span::styled(unreachable(*for_s, why), Style::new().fg(Color::Red)),
                ]),
            });
        }
        lines
    }

    /// Returns the frame as text without colours, each line without blanks at its end.
    pub(super) fn text(&self, width: usize) -> String {
        let text = |line: &Line<'_>| -> String {
            let line: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
            line.trim_end().to_owned()
        };
        self.lines(width).iter().map(text).collect::<Vec<_>>().join("\n")
    }
}

/// Returns how long an instance has been unreachable, and why.
fn unreachable(for_s: u64, why: &str) -> String {
    match for_s {
        0 => format!("  unreachable: {why}"),
        for_s => format!("  unreachable for {for_s} s: {why}"),
    }
}

impl Widget for &TopFrame<'_> {
    /// Draws from the top. Rows without room are counted in the last line.
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let lines = self.lines(usize::from(area.width));
        let room = usize::from(area.height).saturating_sub(1);
        let hidden = lines.len().saturating_sub(room);
        for (line, y) in lines.iter().take(room).zip(area.top()..area.bottom()) {
            buffer.set_line(area.x, y, line, area.width);
        }
        let more = if hidden > 0 { format!("{hidden} more; ") } else { String::new() };
        let keys = match self.has_keys {
            true => {
                let order = self.sort.label();
                format!("{more}q quit, s sort (by {order}), r reverse")
            }
            false => format!("{more}Ctrl-C ends"),
        };
        let bottom = area.top() + lines.len().min(room) as u16;
        if bottom < area.bottom() {
            let help = Line::styled(keys, Style::new().add_modifier(Modifier::DIM));
            buffer.set_line(area.x, bottom, &help, area.width);
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::view::tests::{down, row};
    use super::*;

    fn drawn(rows: &[Row], (width, height): (u16, u16), sort: SortKey) -> Vec<String> {
        let totals = Totals::of(rows);
        let frame = TopFrame { rows, totals: &totals, sort, is_reversed: false, has_keys: true };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|target| target.render_widget(&frame, target.area())).expect("a frame");
        let buffer = terminal.backend().buffer();
        let cells: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
        cells
            .chunks(usize::from(width).max(1))
            .map(|line| line.concat().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn a_wide_terminal_shows_totals_and_every_column() {
        let rows = [row("10.0.0.1:8081", 900.0, 900.0, 12.0), down("10.0.0.2:8081")];
        let lines = drawn(&rows, (160, 8), SortKey::P99);
        for title in ["INSTANCE", "STATE", "REQ/S", "HITS", "P99▾", "MEMORY", "CACHE"] {
            assert!(lines[0].contains(title), "{title}: {}", lines[0]);
        }
        assert!(lines[1].starts_with("total of 1") && lines[1].contains("1/2"));
        assert!(lines[2].contains("ready") && lines[2].contains("100 %"), "{}", lines[2]);
        assert!(lines[2].contains("12 µs") && lines[2].contains("▁ █"), "{}", lines[2]);
        assert!(lines[3].ends_with("unreachable for 12 s: connection refused"), "{}", lines[3]);
        assert!(lines[4].contains("q quit") && lines[4].contains("by p99"), "{}", lines[4]);
    }

    #[test]
    fn a_narrow_or_low_terminal_shows_what_matters_most() {
        let rows: Vec<Row> = (0..9).map(|i| row(&format!("h{i}"), 1.0, 1.0, 1.0)).collect();
        let lines = drawn(&rows, (44, 6), SortKey::Given);
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>(),
            ["INSTANCE", "STATE", "REQ/S", "HITS"]
        );
        assert!(lines[5].starts_with("6 more; q quit"), "{}", lines[5]);
        for size in [(1, 1), (13, 1), (0, 0), (200, 1)] {
            drawn(&rows, size, SortKey::Given);
        }
    }

    #[test]
    fn an_instance_that_is_not_ready_says_why_and_long_texts_are_cut() {
        let mut unready = row("x".repeat(60).as_str(), 5.0, 1.0, 1.0);
        if let Report::Numbers(numbers) = &mut unready.report {
            numbers.unmet = vec!["feed".to_owned()];
            numbers.p99_us = None;
        }
        let rows = [unready];
        let totals = Totals::of(&rows);
        let sort = SortKey::Given;
        let frame =
            TopFrame { rows: &rows, totals: &totals, sort, is_reversed: false, has_keys: false };
        let text = frame.text(200);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "one instance has no totals");
        assert!(lines[1].starts_with(&format!("{}…", "x".repeat(33))), "{text}");
        assert!(lines[1].contains("not read…") && lines[1].contains(NOTHING), "{text}");
    }
}
