//! Minimal Markdown of an experiment's note. It is parsed into spans and rendered from them, so
//! that nothing of it reaches a page unescaped.

/// A block of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteBlock {
    /// A paragraph; headings become bold paragraphs.
    Paragraph(Vec<Span>),
    /// A list.
    Items(Vec<Vec<Span>>),
}

/// A run of text of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    /// Text without a mark.
    Plain(String),
    /// Text between backticks.
    Code(String),
    /// Text between two pairs of asterisks.
    Strong(String),
    /// Text between two asterisks.
    Emphasis(String),
}

/// Parses a note. Unsupported syntax is plain text.
pub fn parse(text: &str) -> Vec<NoteBlock> {
    let mut parts = Vec::new();
    for block in text.replace("\r\n", "\n").split("\n\n") {
        let mut paragraph = String::new();
        let mut items: Vec<String> = Vec::new();
        for line in block.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(item) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
                items.push(item.to_owned());
            } else if let Some(heading) = line.strip_prefix('#') {
                let heading = heading.trim_start_matches('#').trim().to_owned();
                parts.push(NoteBlock::Paragraph(vec![Span::Strong(heading)]));
            } else {
                let target = items.last_mut().unwrap_or(&mut paragraph);
                if !target.is_empty() {
                    target.push(' ');
                }
                target.push_str(line);
            }
        }
        if !paragraph.is_empty() {
            parts.push(NoteBlock::Paragraph(spans(&paragraph)));
        }
        if !items.is_empty() {
            parts.push(NoteBlock::Items(items.iter().map(|item| spans(item)).collect()));
        }
    }
    parts
}

/// A delimiter and the span that it makes.
type Delimiter = (&'static str, fn(String) -> Span);

fn spans(text: &str) -> Vec<Span> {
    const DELIMITERS: [Delimiter; 3] =
        [("`", Span::Code), ("**", Span::Strong), ("*", Span::Emphasis)];
    let mut found = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let marked = DELIMITERS.iter().find_map(|(mark, kind)| {
            let inner = rest.strip_prefix(mark)?;
            let end = inner.find(mark).filter(|end| *end > 0)?;
            let tight = !inner.starts_with(' ') && !inner[..end].ends_with(' ');
            tight.then(|| (kind(inner[..end].to_owned()), &inner[end + mark.len()..]))
        });
        if let Some((span, after)) = marked {
            if !plain.is_empty() {
                found.push(Span::Plain(std::mem::take(&mut plain)));
            }
            found.push(span);
            rest = after;
        } else {
            plain.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    if !plain.is_empty() {
        found.push(Span::Plain(plain));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_make_spans_and_other_text_stays() {
        let plain = |text: &str| Span::Plain(text.to_owned());
        let got = parse("# Head\nOne `a*b`\ntwo **b** *e* 2 * 3 * 4 <b> `open\n\n- x\n  y\n- z");
        let words = vec![
            plain("One "),
            Span::Code("a*b".to_owned()),
            plain(" two "),
            Span::Strong("b".to_owned()),
            plain(" "),
            Span::Emphasis("e".to_owned()),
            plain(" 2 * 3 * 4 <b> `open"),
        ];
        let head = NoteBlock::Paragraph(vec![Span::Strong("Head".to_owned())]);
        let items = NoteBlock::Items(vec![vec![plain("x y")], vec![plain("z")]]);
        assert_eq!(got, [head, NoteBlock::Paragraph(words), items]);
        assert_eq!(parse(" \n\n"), []);
    }
}
