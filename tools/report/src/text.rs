//! Renderer of plain text for a terminal: the same words, aligned tables, no plots.

use crate::document::{Block, Cell, Document, Table, one_line};

/// Renders the report, with a line feed at the end.
pub fn render(document: &Document) -> String {
    let mut parts = vec![clean(&document.title)];
    if !document.subtitle.is_empty() {
        parts.push(clean(&document.subtitle));
    }
    parts.extend(document.blocks.iter().filter_map(block));
    parts.join("\n\n") + "\n"
}

fn block(block: &Block) -> Option<String> {
    let list = |items: &[String]| {
        items.iter().map(|item| format!("  - {}", clean(item))).collect::<Vec<_>>().join("\n")
    };
    Some(match block {
        Block::Heading(text) | Block::Subheading(text) => clean(text),
        Block::Question(text) | Block::Answer(text) | Block::Text(text) | Block::Note(text) => {
            clean(text)
        }
        Block::Code(text) => format!("  {}", clean(text)),
        Block::Warning(text) => format!("Note: {}", clean(text)),
        Block::List(items) => list(items),
        Block::Facts(facts) => {
            let facts: Vec<String> =
                facts.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            list(&facts)
        }
        Block::Table(shown) => table(shown),
        Block::Plot(_) => return None,
    })
}

fn table(table: &Table) -> String {
    let cell = |cell: &Cell| match (clean(&cell.text), clean(&cell.detail)) {
        (text, detail) if detail.is_empty() => text,
        (text, detail) => format!("{text} ({detail})"),
    };
    let mut lines: Vec<Vec<String>> =
        vec![table.columns.iter().map(|column| clean(&column.name)).collect()];
    lines.extend(table.rows.iter().map(|cells| cells.iter().map(cell).collect()));
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|at| {
            lines
                .iter()
                .filter_map(|line| line.get(at))
                .map(|text| text.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let line = |cells: &Vec<String>| {
        let padded =
            cells.iter().zip(&table.columns).zip(&widths).map(|((text, column), width)| {
                let blanks = " ".repeat(width - text.chars().count().min(*width));
                if column.figures { format!("{blanks}{text}") } else { format!("{text}{blanks}") }
            });
        format!("  {}", padded.collect::<Vec<_>>().join("   ").trim_end())
    };
    let caption = (!table.caption.is_empty()).then(|| format!("{}\n", clean(&table.caption)));
    let foot: String = table.foot.iter().map(|line| format!("\n  {}", clean(line))).collect();
    format!(
        "{}{}{foot}",
        caption.unwrap_or_default(),
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    )
}

/// Returns one line without terminal control characters.
fn clean(text: &str) -> String {
    one_line(text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Column;

    #[test]
    fn columns_are_aligned_and_control_characters_removed() {
        let shown = Table {
            columns: vec![Column::words("Name"), Column::figures("Rate")],
            rows: vec![
                vec![Cell::plain("é\u{1b}[31m"), Cell::strong("1", "1–2")],
                vec![Cell::plain("longer name"), Cell::plain("20")],
            ],
            foot: vec!["All of it.".to_owned()],
            ..Table::default()
        };
        let want = "  Name             Rate\n  é [31m        1 (1–2)\n  longer name        20\n  \
                    All of it.";
        assert_eq!(table(&shown), want);
    }
}
