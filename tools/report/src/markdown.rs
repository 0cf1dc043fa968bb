//! Renderer of Markdown, with GitHub's tables.

use crate::document::{Block, Cell, CellStyle, Document, Table, one_line};
use crate::note::{self, NoteBlock, Span};

/// Renders the report, with a line feed at the end.
pub fn render(document: &Document) -> String {
    let mut parts = vec![format!("# {}", escape(&document.title))];
    if !document.subtitle.is_empty() {
        parts.push(line(&document.subtitle));
    }
    parts.extend(document.blocks.iter().filter_map(block));
    parts.join("\n\n") + "\n"
}

fn block(block: &Block) -> Option<String> {
    Some(match block {
        Block::Heading(text) => format!("## {}", escape(text)),
        Block::Subheading(text) => format!("### {}", escape(text)),
        Block::Question(text) => format!("> {}", line(text)),
        Block::Answer(text) => format!("**{}**", escape(text)),
        Block::Warning(text) => format!("> **Note:** {}", escape(text)),
        Block::Text(text) => line(text),
        Block::Note(text) => return written_note(text),
        Block::List(items) => {
            items.iter().map(|item| format!("- {}", line(item))).collect::<Vec<_>>().join("\n")
        }
        Block::Facts(facts) => {
            let fact =
                |(name, value): &(String, String)| format!("- {}: {}", escape(name), escape(value));
            facts.iter().map(fact).collect::<Vec<_>>().join("\n")
        }
        Block::Code(text) => fenced(text),
        Block::Table(shown) => table(shown),
        Block::Plot(_) => return None,
    })
}

fn written_note(text: &str) -> Option<String> {
    let parts = note::parse(text);
    let spans = |spans: &[Span]| spans.iter().map(span).collect::<String>();
    let part = |part: &NoteBlock| match part {
        NoteBlock::Paragraph(words) => guarded(&spans(words)),
        NoteBlock::Items(items) => items
            .iter()
            .map(|item| format!("- {}", guarded(&spans(item))))
            .collect::<Vec<_>>()
            .join("\n"),
    };
    (!parts.is_empty()).then(|| parts.iter().map(part).collect::<Vec<_>>().join("\n\n"))
}

fn span(span: &Span) -> String {
    match span {
        Span::Plain(text) => escape_within(text),
        Span::Code(text) => inline_code(text),
        Span::Strong(text) => format!("**{}**", escape(text)),
        Span::Emphasis(text) => format!("*{}*", escape(text)),
    }
}

/// Returns inline code with enough backticks to enclose those in the text.
fn inline_code(text: &str) -> String {
    let text = one_line(text);
    let fence = "`".repeat(longest_run(&text) + 1);
    let blank = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{blank}{text}{blank}{fence}")
}

fn fenced(text: &str) -> String {
    let fence = "`".repeat((longest_run(text) + 1).max(3));
    format!("{fence}\n{}\n{fence}", one_line(text))
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

fn table(table: &Table) -> String {
    let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let mut lines = Vec::new();
    if !table.caption.is_empty() {
        lines.extend([format!("{}:", line(&table.caption)), String::new()]);
    }
    lines.push(row(table.columns.iter().map(|c| escape(&c.name)).collect()));
    lines.push(row(table
        .columns
        .iter()
        .map(|c| if c.figures { "---:" } else { "---" }.to_owned())
        .collect()));
    lines.extend(table.rows.iter().map(|cells| row(cells.iter().map(cell).collect())));
    for foot in &table.foot {
        lines.extend([String::new(), line(foot)]);
    }
    lines.join("\n")
}

fn cell(cell: &Cell) -> String {
    let text = escape(&cell.text);
    let text = match cell.style {
        CellStyle::Strong | CellStyle::Bad if !text.is_empty() => format!("**{text}**"),
        _ => text,
    };
    if cell.detail.is_empty() { text } else { format!("{text} ({})", escape(&cell.detail)) }
}

/// Returns a paragraph whose beginning is not read as a list or a heading.
fn line(text: &str) -> String {
    guarded(&escape(text))
}

fn guarded(escaped: &str) -> String {
    let digits = escaped.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    if escaped.starts_with(['#', '-', '+', '>', '=', ':']) {
        format!("\\{escaped}")
    } else if digits > 0 && escaped[digits..].starts_with(['.', ')']) {
        format!("{}\\{}", &escaped[..digits], &escaped[digits..])
    } else {
        escaped.to_owned()
    }
}

/// Escapes text on one line.
fn escape(text: &str) -> String {
    escape_within(one_line(text).trim())
}

/// Escapes a part of a line, keeping its outer blanks.
fn escape_within(text: &str) -> String {
    let text = one_line(text);
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let after = rest.peek().copied().unwrap_or(' ');
        let markup = match c {
            '\\' | '`' | '*' | '[' | ']' | '<' | '|' | '~' => true,
            // An underscore within a word is literal; an ampersand before a name would begin a
            // character reference.
            '_' => !(before.is_alphanumeric() && after.is_alphanumeric()),
            '&' => after.is_alphanumeric() || after == '#',
            _ => false,
        };
        if markup {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_text_is_escaped() {
        assert_eq!(escape("a|b <img> *x* _y_ s_z [l](u) `c` &lt; R&D\n# h"), {
            "a\\|b \\<img> \\*x\\* \\_y\\_ s_z \\[l\\](u) \\`c\\` \\&lt; R\\&D # h"
        });
        assert_eq!(
            ["# a", "- a", "1. a", "1 a", ""].map(line),
            ["\\# a", "\\- a", "1\\. a", "1 a", ""]
        );
        assert_eq!(inline_code("a`b``"), "``` a`b`` ```");
        assert_eq!(fenced("x ``` y"), "````\nx ``` y\n````");
    }
}
