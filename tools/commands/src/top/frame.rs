//! A frame of `hotrow top`, fitted to the room: totals, a row per instance, help. Pure; also the
//! plain text of `--once`.

use hotrow_report::numbers::{bytes, cores, grouped, micros, number, percent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::instance::{CURVE_SECONDS, Numbers};
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
    /// Name of the selected row where keys are read.
    pub(super) selected: Option<&'a str>,
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
}

const fn column(
    title: &'static str,
    width: usize,
    rank: u8,
    sort: Option<SortKey>,
    cell: fn(&Numbers) -> String,
) -> Column {
    Column { title, width, rank, sort, cell }
}

/// Formats a value, if it is known.
pub(super) fn shown(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), format)
}

fn state(numbers: &Numbers) -> String {
    if numbers.unmet.is_empty() {
        "ready".to_owned()
    } else {
        format!("not ready: {}", numbers.unmet.join(", "))
    }
}

/// Returns the last `seconds` of the requests, a character each.
fn chart(numbers: &Numbers, seconds: usize) -> String {
    let most = numbers.curve.iter().flatten().copied().fold(1.0, f64::max);
    let tail = numbers.curve.len().saturating_sub(seconds);
    let step = |value: &Option<f64>| match value {
        Some(value) => STEPS[((value / most * 7.0).round() as usize).min(7)],
        None => ' ',
    };
    let curve: String = numbers.curve[tail..].iter().map(step).collect();
    format!("{curve:>seconds$}")
}

/// The column of charts: as wide as the room that is left.
const CHART: &str = "CHART";
/// Terminal width from which it is shown; one column of a terminal stays free.
const CHART_FROM: usize = 99;
/// Fewest seconds in it.
const CHART_SECONDS_MIN: usize = 10;
/// Its rank, after all others: it has room of its own.
const CHART_RANK: u8 = 12;

const COLUMNS: [Column; 13] = [
    column("STATE", 9, 1, None, state),
    column("REQ/S", 9, 0, Some(SortKey::Requests), |n| shown(n.requests, number)),
    column(CHART, CHART_SECONDS_MIN, CHART_RANK, None, |n| chart(n, CURVE_SECONDS)),
    column("HITS", 8, 2, Some(SortKey::Hits), |n| shown(n.hit_ratio(), percent)),
    column("P99", 8, 3, Some(SortKey::P99), |n| shown(n.p99_us, micros)),
    column("STALE", 8, 5, Some(SortKey::Stale), |n| shown(n.staleness_ms, |ms| micros(ms * 1e3))),
    column("DB/S", 7, 7, None, |n| shown(n.queries, number)),
    column("REFUSED/S", 9, 6, Some(SortKey::Refused), |n| shown(n.refused, number)),
    column("5XX/S", 7, 4, None, |n| shown(n.errors, number)),
    column("CONNS", 7, 9, None, |n| shown(n.connections, grouped)),
    column("CPU", 5, 8, None, |n| shown(n.cpu_cores, cores)),
    column("MEMORY", 9, 10, None, |n| shown(n.memory_bytes, bytes)),
    column("CACHE", 7, 11, None, |n| {
        percent(n.cache_bytes as f64 / n.capacity_bytes.max(1) as f64)
    }),
];

/// Chooses the columns for this width, in their order, with their widths, and the width of the
/// names.
fn fit(width: usize, rows: &[Row]) -> (Vec<(&'static Column, usize)>, usize) {
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let name = longest.clamp(NAME_COLUMNS.0, NAME_COLUMNS.1);
    let mut room = width.saturating_sub(name);
    let mut ranks: Vec<u8> = Vec::new();
    if width >= CHART_FROM {
        room = room.saturating_sub(CHART_SECONDS_MIN + GAP);
        ranks.push(CHART_RANK);
    }
    for rank in 0..CHART_RANK {
        let Some(column) = COLUMNS.iter().find(|column| column.rank == rank) else { continue };
        let needed = column.width + GAP;
        if needed > room {
            break;
        }
        room -= needed;
        ranks.push(rank);
    }
    let room = room.min(CURVE_SECONDS - CHART_SECONDS_MIN);
    let wide = |column: &Column| column.width + if column.title == CHART { room } else { 0 };
    let chosen = COLUMNS.iter().filter(|column| ranks.contains(&column.rank));
    (chosen.map(|column| (column, wide(column))).collect(), name)
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
        let is_left = |column: &Column| column.title == "STATE" || column.title == CHART;
        let dim = Style::new().add_modifier(Modifier::DIM);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let line = |first: String, cells: Vec<(String, Style)>, style: Style| {
            let mut spans = vec![Span::styled(padded(&first, name, true), style)];
            spans.extend(columns.iter().zip(cells).map(|((column, width), (text, style))| {
                let text = padded(&text, *width, is_left(column));
                Span::styled(format!("{:GAP$}{text}", ""), style)
            }));
            Line::from(spans)
        };
        let head = columns.iter().map(|(column, width)| {
            let is_sorted = column.sort == Some(self.sort);
            let mark = match (is_sorted, self.is_reversed) {
                (false, _) => "",
                (true, false) => "▾",
                (true, true) => "▴",
            };
            let style = if is_sorted { bold } else { dim };
            match column.title {
                CHART => (format!("LAST {width} S"), style),
                title => (format!("{title}{mark}"), style),
            }
        });
        let mut lines = vec![line("INSTANCE".to_owned(), head.collect(), dim)];
        if self.rows.len() > 1 {
            let Totals { instances, reporting, ready, numbers } = self.totals;
            let cells = columns.iter().map(|(column, width)| match column.title {
                "STATE" => (format!("{ready}/{instances}"), bold),
                CHART => (chart(numbers, *width), bold),
                _ => ((column.cell)(numbers), bold),
            });
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
                        CHART => Style::new().fg(Color::Cyan),
                        _ => Style::new(),
                    };
                    let text = |column: &Column, width: usize| match column.title {
                        CHART => chart(numbers, width),
                        _ => (column.cell)(numbers),
                    };
                    let cells = columns.iter().map(|(own, width)| (text(own, *width), tone(own)));
                    let is_selected = self.selected == Some(row.name.as_str());
                    let modifier = if is_selected { Modifier::REVERSED } else { Modifier::empty() };
                    line(row.name.clone(), cells.collect(), Style::new().add_modifier(modifier))
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
        let keys = match self.selected {
            Some(_) => {
                let order = self.sort.label();
                format!(
                    "{more}q quit, s sort (by {order}), r reverse, ↑↓ select, Enter collections"
                )
            }
            None => format!("{more}Ctrl-C ends"),
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
        let selected = Some("10.0.0.1:8081");
        let frame = TopFrame { rows, totals: &totals, sort, is_reversed: false, selected };
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

    /// What an outage shows is beside the charts.
    #[test]
    fn charts_and_failures_are_shown_from_100_columns_on() {
        let rows = [row("127.0.0.1:8081", 900.0, 900.0, 12.0)];
        for (width, is_shown) in [(99, true), (98, false)] {
            let head = &drawn(&rows, (width, 4), SortKey::Given)[0];
            assert_eq!(head.contains("LAST 11 S"), is_shown, "{head}");
            assert!(head.contains("5XX/S") && head.contains("REFUSED/S"), "{head}");
        }
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
            TopFrame { rows: &rows, totals: &totals, sort, is_reversed: false, selected: None };
        let text = frame.text(200);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "one instance has no totals");
        assert!(lines[1].starts_with(&format!("{}…", "x".repeat(33))), "{text}");
        assert!(lines[1].contains("not read…") && lines[1].contains(NOTHING), "{text}");
    }
}
