//! Where parts of the display stand. When there is too little room, parts become short, and then go, the least important
//! first. Pure.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{RenderDirection, Sparkline, Widget};

/// One thing that is shown, over the whole width that it gets.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// What has the highest goes first.
    rank: u8,
    body: Body,
    /// What it becomes before it goes, and its rank then.
    short: Option<(u8, Body)>,
}

/// What is shown.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Lines; what is wider than there is room is cut off.
    Lines(Vec<Line<'static>>),
    /// A curve of so many rows, its newest value at the right.
    Curve { values: Vec<u64>, rows: u16 },
    /// Parts side by side, each half below each other.
    Columns { left: Vec<Part>, right: Vec<Part> },
}

/// Room between two columns.
const GAP: u16 = 3;

impl Part {
    pub(super) fn new(rank: u8, lines: Vec<Line<'static>>) -> Self {
        Self { rank, body: Body::Lines(lines), short: None }
    }

    pub(super) fn of(rank: u8, body: Body) -> Self {
        Self { rank, body, short: None }
    }

    /// The same, which becomes these lines before it goes.
    pub(super) fn or(self, rank: u8, lines: Vec<Line<'static>>) -> Self {
        Self { short: Some((rank, Body::Lines(lines))), ..self }
    }

    /// An empty line, which goes first of all.
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

/// Rows that parts take below each other.
pub(super) fn height(parts: &[Part]) -> u16 {
    parts.iter().map(|part| part.body.height()).fold(0, u16::saturating_add)
}

/// Makes parts so short that they fit into `rows`.
pub(super) fn fit(mut parts: Vec<Part>, rows: u16) -> Vec<Part> {
    while height(&parts) > rows {
        // Of equal ones the last goes first.
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

/// Draws parts below each other; what does not fit is left out.
pub(super) fn render(parts: &[Part], area: Rect, buffer: &mut Buffer) {
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

fn curve(values: &[u64], room: Rect, buffer: &mut Buffer) {
    let newest_first = values.iter().rev().copied().collect::<Vec<u64>>();
    Sparkline::default()
        .data(newest_first)
        .direction(RenderDirection::RightToLeft)
        .style(Style::new().fg(Color::Cyan))
        .render(room, buffer);
}
