//! Renderer of one self-contained HTML page: style, plots and script are inline.

use crate::document::{Block, Cell, CellStyle, Column, Document, Table};
pub use crate::escape::escape;
use crate::note::{self, NoteBlock, Span};
use crate::plot::Plot;
use crate::svg::{self, Drawing, Size};
use crate::{chart_data, script};

const STYLE: &str = include_str!("style.css");
/// Style of tables whose rows are stacked; `TABLE` is the selector.
const STACKED: &str = include_str!("stacked.css");
/// Content security policy: nothing may load, and nothing but the page's own script may run, even
/// if markup escaped the escaping.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action \
     'none'";
/// Width in px of the widest table that is not stacked on a page of 1280 px.
const TABLE_WIDTH_MAX: usize = 1180;
/// Width in px of the widest table beside a chart; the columns of `.grid` in style.css are wider.
const SHARED_WIDTH_MAX: usize = 500;

/// Renders the page.
pub fn render(document: &Document) -> String {
    let title = escape(&document.title);
    let script = has_plots(document).then(script::text);
    let mut out = head(&title, script.as_deref());
    out.push_str(&format!("<body>\n<main>\n<header>\n<h1>{title}</h1>\n"));
    if !document.subtitle.is_empty() {
        out.push_str(&format!("<p class=\"subtitle\">{}</p>\n", escape(&document.subtitle)));
    }
    out.push_str("</header>\n");
    out.push_str(&body(&document.blocks));
    if let Some(script) = script {
        out.push_str(&format!(
            "<footer>\n<p class=\"foot\">Charts: uPlot {}, © 2022 Leon Sorokin, MIT License; its \
             text is in the script of this page.</p>\n</footer>\n</main>\n\
             <script>{script}</script>\n",
            script::UPLOT_VERSION
        ));
    } else {
        out.push_str("</main>\n");
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// Renders the blocks. Charts and narrow tables that follow each other are side by side on a page
/// with the room.
fn body(blocks: &[Block]) -> String {
    let mut number = 0;
    let mut rendered = |block: &Block| {
        number += 1;
        self::block(block, number - 1)
    };
    let mut out = String::new();
    for group in blocks.chunk_by(|one, next| shares_width(one) && shares_width(next)) {
        match group {
            [block] => out.push_str(&rendered(block)),
            blocks => {
                let parts =
                    blocks.iter().map(|block| format!("<div>\n{}</div>\n", rendered(block)));
                out.push_str(&format!(
                    "<div class=\"grid\">\n{}</div>\n",
                    parts.collect::<String>()
                ));
            }
        }
    }
    out
}

fn shares_width(block: &Block) -> bool {
    match block {
        Block::Plot(plot) => {
            matches!(plot, Plot::Lines(_) | Plot::Marked(_) | Plot::HeatMap(_))
        }
        Block::Table(table) => width_px(table) <= SHARED_WIDTH_MAX,
        _ => false,
    }
}

/// Returns the beginning up to the end of the `head` element.
fn head(title: &str, script: Option<&str>) -> String {
    let allowed =
        script.map_or_else(String::new, |text| format!("; script-src {}", script::source(text)));
    let charts = if script.is_some() { script::UPLOT_STYLE } else { "" };
    let narrow = STACKED.replace("TABLE", "table");
    let wide = STACKED.replace("TABLE", "table.stacked");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}{allowed}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{charts}\n{STYLE}\n@media screen {{\n{wide}}}\n\
         @media screen and (max-width: 600px) {{\n{narrow}}}\n</style>\n</head>\n"
    )
}

fn has_plots(document: &Document) -> bool {
    document.blocks.iter().any(|block| matches!(block, Block::Plot(_)))
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
        Block::Plot(plot) => figure(plot, number),
    }
}

/// Renders a plot. Drawings have two sizes, because their text shrinks with them; the style shows
/// the fitting one. The page's script makes the other plots of their data.
fn figure(plot: &Plot, number: usize) -> String {
    let drawing = match plot {
        Plot::Bars(bars) => Drawing::Bars(bars),
        Plot::Timeline(timeline) => Drawing::Timeline(timeline),
        Plot::Lines(_) | Plot::Marked(_) | Plot::HeatMap(_) => return chart(plot),
    };
    let draw = |size: Size| svg::render(drawing, size, &format!("plot{number}{}", size.class()));
    format!("<figure>\n{}{}</figure>\n", draw(Size::Wide), draw(Size::Narrow))
}

fn chart(plot: &Plot) -> String {
    let (title, description) = plot.texts();
    let (title, description) = (escape(title), escape(description));
    match chart_data::json(plot) {
        Some(json) => format!(
            "<figure>\n<noscript><p class=\"chart-title\">{title}</p>\n<p class=\"answer\">\
             {description} The chart needs JavaScript.</p></noscript>\n\
             <script type=\"application/json\">{json}</script>\n</figure>\n"
        ),
        None => {
            format!("<figure>\n<p class=\"chart-title\">{title}</p>\n<p>No data.</p>\n</figure>\n")
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
    let stacked = if width_px(table) > TABLE_WIDTH_MAX { " class=\"stacked\"" } else { "" };
    // A scrollable element must be reachable by keyboard.
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" \
         aria-label=\"{name}\">\n<table{stacked}>\n{caption}<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table>\n</div>\n{foot}"
    )
}

/// Estimates the least width of a table in px: figures are not broken, other cells between words.
fn width_px(table: &Table) -> usize {
    const LETTER_PX: usize = 8;
    const SMALL_LETTER_PX: usize = 7;
    const GAP_PX: usize = 18;
    /// Longer words are broken.
    const WORD_LETTERS_MAX: usize = 20;
    const FIRST_MIN_PX: usize = 120;
    const LAST_MIN_PX: usize = 176;
    let letters = |text: &str| text.chars().count();
    let longest = |text: &str| text.split(' ').map(letters).max().unwrap_or(0);
    let last = table.columns.len().saturating_sub(1);
    let column = |(at, column): (usize, &Column)| {
        let cell = |cell: &Cell| {
            if column.figures {
                (letters(&cell.text) * LETTER_PX).max(letters(&cell.detail) * SMALL_LETTER_PX)
            } else {
                longest(&cell.text).min(WORD_LETTERS_MAX) * LETTER_PX
            }
        };
        let cells = table.rows.iter().filter_map(|row| row.get(at)).map(cell).max().unwrap_or(0);
        let least = match at {
            _ if column.figures => 0,
            0 => FIRST_MIN_PX,
            _ if at == last => LAST_MIN_PX,
            _ => 0,
        };
        cells.max(longest(&column.name) * LETTER_PX).max(least) + GAP_PX
    };
    table.columns.iter().enumerate().map(column).sum()
}

fn class(column: &Column) -> &'static str {
    if column.figures { " class=\"figure\"" } else { "" }
}

/// Renders the cells of a row, with their headings for stacked rows. The first one names the row.
fn row(columns: &[Column], cells: &[Cell]) -> String {
    let cells = cells.iter().zip(columns).enumerate().map(|(i, (cell, column))| {
        let (class, shown) = (class(column), self::cell(cell));
        let label = escape(&column.name);
        match i {
            0 => format!("<th scope=\"row\"{class} data-label=\"{label}\">{shown}</th>"),
            _ => format!("<td{class} data-label=\"{label}\">{shown}</td>"),
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
        // One element, because a stacked cell is a grid.
        format!("<span>{text} <small>{}</small></span>", escape(&cell.detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Line, latency_percentiles};

    fn page(names: &[&str]) -> Document {
        let line = |name: &&str| Line { label: (*name).to_owned(), points: vec![(0.5, 10.0)] };
        let lines = names.iter().map(line).collect();
        let plot = latency_percentiles("t".to_owned(), "d".to_owned(), lines);
        let table = Table {
            columns: vec![Column::words("Deployment"), Column::figures("p50 \"x\"")],
            rows: vec![vec![Cell::plain("a"), Cell::strong("1 ms", "1 – 2 ms")]],
            ..Table::default()
        };
        Document {
            title: "T".to_owned(),
            subtitle: "now".to_owned(),
            blocks: vec![Block::Table(table), Block::Plot(Plot::Lines(plot))],
        }
    }

    #[test]
    fn cells_carry_their_headings_for_stacked_rows() {
        let html = render(&page(&["a"]));
        for cell in [
            "<th scope=\"row\" data-label=\"Deployment\">a</th>",
            "<td class=\"figure\" data-label=\"p50 &quot;x&quot;\">",
        ] {
            assert!(html.contains(cell), "{cell} in {html}");
        }
        assert!(!html.contains("class=\"stacked\""), "it fits");
    }

    #[test]
    fn a_table_too_wide_for_a_page_is_stacked_on_every_page() {
        let columns = |n: usize| Table {
            columns: (0..n).map(|_| Column::figures("heading")).collect(),
            rows: vec![vec![Cell::plain("1,234,567"); n]],
            ..Table::default()
        };
        assert!(width_px(&columns(12)) <= TABLE_WIDTH_MAX);
        assert!(width_px(&columns(20)) > TABLE_WIDTH_MAX);
        assert!(table(&columns(20)).contains("<table class=\"stacked\">"));
    }

    #[test]
    fn only_a_page_with_plots_has_a_script_and_its_policy_allows_no_other() {
        let html = render(&page(&["</script><script>alert(1)</script>"]));
        let script = script::text();
        assert!(html.contains(&format!("script-src {}\"", script::source(&script))));
        assert!(html.contains(&format!("<script>{script}</script>")));
        assert_eq!(html.matches("<script").count(), 2, "data and script");
        assert!(html.contains("uPlot 1.6.32, © 2022 Leon Sorokin, MIT License"));
        let plain = render(&Document { blocks: Vec::new(), ..page(&[]) });
        assert!(!plain.contains("script") && plain.contains("default-src 'none'"), "{plain}");
    }

    #[test]
    fn charts_and_narrow_tables_in_a_row_share_the_width() {
        let mut document = page(&["a"]);
        let html = render(&document);
        let grid = html.split_once("<div class=\"grid\">").expect("a grid").1;
        assert!(grid.contains("<table>") && grid.contains("<figure>"), "{grid}");
        document.blocks.insert(1, Block::Text("between".to_owned()));
        assert!(!render(&document).contains("<div class=\"grid\">"));
    }

    #[test]
    fn a_page_names_no_other_address() {
        let html = render(&page(&["a"]));
        for bad in ["http:", "https:", "src=", "href=", "url(", "@import"] {
            assert!(!html.contains(bad), "{bad} in the page");
        }
    }
}
