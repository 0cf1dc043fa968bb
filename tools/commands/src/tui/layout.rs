//! Layout of the display. With too little room, panels are shortened and then removed, the least
//! important first. Pure.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{RenderDirection, Sparkline, Widget};

/// A panel of the display, as wide as its area.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    /// Removal order: the highest rank is removed first.
    rank: u8,
    body: Body,
    /// Its short form, with that form's rank.
    short: Option<(u8, Body)>,
}

/// The content of a panel.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Lines; wider ones are cut off.
    Lines(Vec<Line<'static>>),
    /// A curve with this many rows, the newest value at the right.
    Curve { values: Vec<u64>, rows: u16 },
    /// Two columns of panels.
    Columns { left: Vec<Panel>, right: Vec<Panel> },
}

const GAP: u16 = 3;

impl Panel {
    pub(super) fn new(rank: u8, lines: Vec<Line<'static>>) -> Self {
        Self { rank, body: Body::Lines(lines), short: None }
    }

    pub(super) fn of(rank: u8, body: Body) -> Self {
        Self { rank, body, short: None }
    }

    pub(super) fn or(self, rank: u8, lines: Vec<Line<'static>>) -> Self {
        Self { short: Some((rank, Body::Lines(lines))), ..self }
    }

    /// Returns an empty line, which is removed first of all.
    pub(super) fn blank() -> Self {
        Self::new(u8::MAX, vec![Line::default()])
    }
}

impl Body {
    fn height(&self) -> u16 {
        match self {
            Self::Lines(lines) => u16::try_from(lines.len()).unwrap_or(u16::MAX),
            Self::Curve { rows, .. } => *rows,
            Self::Columns { left, right } => height(left).max(height(right)),
        }
    }
}

pub(super) fn height(parts: &[Panel]) -> u16 {
    parts.iter().map(|part| part.body.height()).fold(0, u16::saturating_add)
}

/// Shortens and removes panels until they fit into `rows`.
pub(super) fn fit(mut parts: Vec<Panel>, rows: u16) -> Vec<Panel> {
    while height(&parts) > rows {
        // Of equal ranks the last is removed first.
        let Some(at) = (0..parts.len()).max_by_key(|at| parts[*at].rank) else { break };
        match parts[at].short.take() {
            Some((rank, body)) => (parts[at].rank, parts[at].body) = (rank, body),
            None => {
                parts.remove(at);
            }
        }
    }
    parts
}

/// Draws panels below each other; those that do not fit are left out.
pub(super) fn render(parts: &[Panel], area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(buffer.area);
    let mut y = area.y;
    for part in parts {
        let height = part.body.height().min(area.bottom().saturating_sub(y));
        let room = Rect { y, height, ..area };
        if room.is_empty() {
            continue;
        }
        y = room.bottom();
        match &part.body {
            Body::Lines(lines) => {
                for (row, line) in room.rows().zip(lines) {
                    buffer.set_line(row.x, row.y, line, row.width);
                }
            }
            Body::Curve { values, .. } => curve(values, room, buffer),
            Body::Columns { left, right } => {
                let half = room.width.saturating_sub(GAP) / 2;
                let columns = [(left, room.x), (right, room.x + room.width - half)];
                for (parts, x) in columns {
                    let parts = fit(parts.clone(), room.height);
                    render(&parts, Rect { x, width: half, ..room }, buffer);
                }
            }
        }
    }
}

/// Draws a curve, the newest value at the right.
pub(crate) fn curve(values: &[u64], room: Rect, buffer: &mut Buffer) {
    let lifo = values.iter().rev().copied().collect::<Vec<u64>>();
    Sparkline::default()
        .data(lifo)
        .direction(RenderDirection::RightToLeft)
        .style(Style::new().fg(Color::Cyan))
        .render(room, buffer);
}
