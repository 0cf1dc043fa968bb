//! Parsing of the few parts of SQL text that no pragma reports.

/// Extracts the WHERE of a partial index from its CREATE INDEX text: everything after the first
/// WHERE outside parentheses, quotes and comments.
pub(super) fn index_filter(create_index: &str) -> Option<String> {
    let bytes = create_index.as_bytes();
    let mut at = 0;
    let mut depth = 0_usize;
    while at < bytes.len() {
        match bytes[at] {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            b'\'' | b'"' | b'`' | b'[' => at = end_of_quoted(bytes, at)?,
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at = find(bytes, at, b"\n").unwrap_or(bytes.len())
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => at = find(bytes, at + 2, b"*/")? + 1,
            b if is_word(b) => {
                let end =
                    bytes[at..].iter().position(|b| !is_word(*b)).map_or(bytes.len(), |n| at + n);
                if depth == 0 && bytes[at..end].eq_ignore_ascii_case(b"where") {
                    // The newline ends a trailing comment, which would include the parenthesis.
                    return Some(format!("({}\n)", create_index.get(end..)?.trim()));
                }
                at = end - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    bytes.get(from..)?.windows(what.len()).position(|w| w == what).map(|n| from + n)
}

/// Returns the end of the quoted text that begins at `at`; a doubled quote is data.
fn end_of_quoted(bytes: &[u8], at: usize) -> Option<usize> {
    let close = if bytes[at] == b'[' { b']' } else { bytes[at] };
    let mut end = at + 1;
    loop {
        end = find(bytes, end, &[close])?;
        if close == b']' || bytes.get(end + 1) != Some(&close) {
            return Some(end);
        }
        end += 2;
    }
}

/// Converts a column's default to an expression with the same meaning inside a trigger. A bare or
/// double-quoted word is a text in a DEFAULT, but would be a column in a trigger.
pub(super) fn default_expression(default: &str) -> String {
    let text = default.trim();
    const WORDS: [&str; 6] =
        ["null", "true", "false", "current_time", "current_date", "current_timestamp"];
    let word = text.bytes().all(is_word) && !text.starts_with(|c: char| c.is_ascii_digit());
    if word && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return super::super::names::literal(text);
    }
    let quoted = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    match quoted {
        Some(inner) if end_of_quoted(text.as_bytes(), 0) == Some(text.len() - 1) => {
            super::super::names::literal(&inner.replace("\"\"", "\""))
        }
        _ => format!("({text}\n)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_found_outside_of_everything_else() {
        let filter = |sql: &str| index_filter(sql).map(|f| f.replace('\n', ""));
        assert_eq!(filter("CREATE UNIQUE INDEX i ON t(a) WHERE b IS NULL").unwrap(), "(b IS NULL)");
        assert_eq!(
            filter("CREATE UNIQUE INDEX \"where\" ON [a where](\"b where\") wHeRe (x)").unwrap(),
            "((x))"
        );
        assert_eq!(
            filter("CREATE UNIQUE INDEX i ON t(a) -- where x\nwhere/* y */z").unwrap(),
            "(/* y */z)"
        );
        assert_eq!(
            filter("CREATE UNIQUE INDEX i /* where ' */ ON t(a)\nWHERE a='it''s'").unwrap(),
            "(a='it''s')"
        );
        assert_eq!(filter("CREATE UNIQUE INDEX i ON t(nowhere, where_)"), None);
        assert_eq!(filter("CREATE UNIQUE INDEX i ON t('unclosed"), None);
        assert_eq!(filter("CREATE UNIQUE INDEX i ON t)("), None);
    }

    #[test]
    fn a_default_word_is_a_text() {
        assert_eq!(default_expression("foo"), "'foo'");
        assert_eq!(default_expression("\"a\"\"b\""), "'a\"b'");
        assert_eq!(default_expression("CURRENT_TIMESTAMP"), "(CURRENT_TIMESTAMP\n)");
        assert_eq!(default_expression("-1"), "(-1\n)");
        assert_eq!(default_expression("'x'"), "('x'\n)");
        assert_eq!(default_expression("lower('X')"), "(lower('X')\n)");
        assert_eq!(default_expression("\"a\"||\"b\""), "(\"a\"||\"b\"\n)");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[-'\"`\\[\\]()/* a-zäé\\n]{0,40}") {
            let _ = index_filter(&text);
            let _ = default_expression(&text);
        }
    }
}
