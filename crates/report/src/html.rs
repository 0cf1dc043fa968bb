//! Renderer of one self-contained HTML page: style and plots are inline, and there is no script.

use crate::document::{Block, Cell, CellStyle, Column, Document, Table, turns};
use crate::note::{self, NoteBlock, Span};
use crate::svg::{self, Size};

const STYLE: &str = include_str!("style.css");
/// Content security policy: nothing may load or run, even if markup escaped the escaping.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Renders the page.
#[must_use]
pub fn render(document: &Document) -> String {
    let title = escape(&document.title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light \
         dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>{title}</h1>\n"
    );
    if !document.subtitle.is_empty() {
        out.push_str(&format!("<p class=\"subtitle\">{}</p>\n", escape(&document.subtitle)));
    }
    out.push_str("</header>\n");
    for (number, block) in document.blocks.iter().enumerate() {
        out.push_str(&self::block(block, number));
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn block(block: &Block, number: usize) -> String {
    let paragraph =
        |class: &str, text: &str| format!("<p class=\"{class}\">{}</p>\n", escape(text));
    match block {
        Block::Heading(text) => format!("<h2>{}</h2>\n", escape(text)),
        Block::Subheading(text) => format!("<h3>{}</h3>\n", escape(text)),
        Block::Question(text) => paragraph("question", text),
        Block::Answer(text) => paragraph("answer", text),
        Block::Warning(text) => {
            format!(
                "<p class=\"warning\" role=\"note\"><strong>Note:</strong> {}</p>\n",
                escape(text)
            )
        }
        Block::Text(text) => format!("<p>{}</p>\n", escape(text)),
        Block::Note(text) => written_note(text),
        Block::List(items) => list(items.iter().map(|item| escape(item))),
        Block::Facts(facts) => {
            let fact = |(name, value): &(String, String)| {
                format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value))
            };
            format!("<dl>\n{}</dl>\n", facts.iter().map(fact).collect::<String>())
        }
        Block::Code(text) => format!("<pre><code>{}</code></pre>\n", escape(text)),
        Block::Table(shown) => table(shown),
        // Two sizes of each plot, because text in a plot shrinks with it; the style shows the
        // fitting one.
        Block::Plot(plot) => {
            let drawing =
                |size: Size| svg::render(plot, size, &format!("plot{number}{}", size.class()));
            format!("<figure>\n{}{}</figure>\n", drawing(Size::Wide), drawing(Size::Narrow))
        }
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: String = items.map(|item| format!("<li>{item}</li>\n")).collect();
    format!("<ul>\n{items}</ul>\n")
}

fn written_note(text: &str) -> String {
    let spans = |spans: &[Span]| spans.iter().map(span).collect::<String>();
    let part = |part: &NoteBlock| match part {
        NoteBlock::Paragraph(words) => format!("<p>{}</p>\n", spans(words)),
        NoteBlock::Items(items) => list(items.iter().map(|item| spans(item))),
    };
    let parts: String = note::parse(text).iter().map(part).collect();
    if parts.is_empty() { parts } else { format!("<div class=\"note\">\n{parts}</div>\n") }
}

fn span(span: &Span) -> String {
    match span {
        Span::Plain(text) => escape(text),
        Span::Code(text) => format!("<code>{}</code>", escape(text)),
        Span::Strong(text) => format!("<strong>{}</strong>", escape(text)),
        Span::Emphasis(text) => format!("<em>{}</em>", escape(text)),
    }
}

fn table(table: &Table) -> String {
    let head = table
        .columns
        .iter()
        .map(|c| format!("<th scope=\"col\"{}>{}</th>", class(c), escape(&c.name)));
    let head: String = head.collect();
    let row = |(at, cells): (usize, &Vec<Cell>)| {
        let begins = if table.groups.contains(&at) { " class=\"begins\"" } else { "" };
        format!("<tr{begins}>{}</tr>\n", row(&table.columns, cells))
    };
    let rows: String = table.rows.iter().enumerate().map(row).collect();
    let caption = match table.caption.as_str() {
        "" => String::new(),
        words => format!("<caption>{}</caption>\n", escape(words)),
    };
    let foot: String =
        table.foot.iter().map(|line| format!("<p class=\"foot\">{}</p>\n", escape(line))).collect();
    let name = if table.caption.is_empty() { "Table".to_owned() } else { escape(&table.caption) };
    // A scrollable element must be reachable by keyboard.
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" \
         aria-label=\"{name}\">\n<table>\n{caption}<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table>\n</div>\n{foot}"
    )
}

fn class(column: &Column) -> &'static str {
    match (column.figures, column.about) {
        (true, true) => " class=\"figure about\"",
        (true, false) => " class=\"figure\"",
        (false, true) => " class=\"about\"",
        (false, false) => "",
    }
}

/// Renders the cells of a row. The first one names it; on narrow pages it also holds the
/// descriptive columns.
fn row(columns: &[Column], cells: &[Cell]) -> String {
    let about =
        cells.iter().zip(columns).filter(|(cell, column)| column.about && cell.text != "none");
    let about: Vec<String> =
        about.map(|(cell, column)| format!("{} {}", column.name, cell.text)).collect();
    let cells = cells.iter().zip(columns).enumerate().map(|(i, (cell, column))| {
        match (i, about.is_empty()) {
            (0, true) => format!("<th scope=\"row\"{}>{}</th>", class(column), self::cell(cell)),
            (0, false) => format!(
                "<th scope=\"row\">{} <small class=\"instead\">{}</small></th>",
                self::cell(cell),
                escape(&about.join("; "))
            ),
            _ => format!("<td{}>{}</td>", class(column), self::cell(cell)),
        }
    });
    cells.collect()
}

fn cell(cell: &Cell) -> String {
    let text = escape(&cell.text);
    let text = match cell.style {
        CellStyle::Plain => text,
        CellStyle::Strong => format!("<strong>{text}</strong>"),
        CellStyle::Quiet => format!("<span class=\"quiet\">{text}</span>"),
        CellStyle::Bad => format!("<strong class=\"bad\">{text}</strong>"),
    };
    if cell.detail.is_empty() {
        text
    } else {
        format!("{text} <small>{}</small>", escape(&cell.detail))
    }
}

/// Escapes text for elements and double-quoted attributes. Control characters and characters that
/// change the text direction are replaced.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // A unit stays with its number.
    let text = text.replace(" %", "\u{a0}%");
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ if c.is_control() || turns(c) => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}
