//! Statements as they are shown: without literals and comments, on one line, shortened. Literals
//! may be personal data, and statements that differ only in them are one.

use std::iter::Peekable;
use std::str::Chars;

use hotrow_diagnose::database::STATEMENT_CHARS_MAX;

/// Most characters of a statement that are read.
const READ_CHARS_MAX: usize = 2_000;

/// Syntax of literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Strings in `'…'` and `$tag$…$tag$`, names in `"…"`; a backslash escapes only in `E'…'`.
    Postgres,
    /// Strings in `'…'` and `"…"`, names in backticks; a backslash escapes.
    Mysql,
}

/// Returns a statement with `?` for each literal, at most [`STATEMENT_CHARS_MAX`] characters.
pub fn shown(sql: &str, dialect: Dialect) -> String {
    let read: String = sql.chars().take(READ_CHARS_MAX).collect();
    let mut scanner = Scanner { rest: read.chars().peekable(), out: String::new(), dialect };
    scanner.scan();
    shortened(&scanner.out)
}

/// Returns text on one line, without control characters, at most [`STATEMENT_CHARS_MAX`]
/// characters.
pub fn shortened(text: &str) -> String {
    let printable: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(READ_CHARS_MAX).collect();
    let line = printable.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= STATEMENT_CHARS_MAX {
        return line;
    }
    line.chars().take(STATEMENT_CHARS_MAX - 1).chain(['…']).collect()
}

struct Scanner<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    dialect: Dialect,
}

impl Scanner<'_> {
    fn scan(&mut self) {
        while let Some(c) = self.rest.next() {
            let after_name = self.out.chars().next_back().is_some_and(is_of_name);
            match c {
                '\'' => {
                    let escapes = self.dialect == Dialect::Mysql || self.drop_string_prefix();
                    self.skip_quoted('\'', escapes);
                }
                '"' if self.dialect == Dialect::Mysql => self.skip_quoted('"', true),
                '-' if self.rest.peek() == Some(&'-') => self.skip_line(),
                '#' if self.dialect == Dialect::Mysql => self.skip_line(),
                '/' if self.rest.peek() == Some(&'*') => self.skip_comment(),
                '$' if self.dialect == Dialect::Postgres && !after_name => self.dollar(),
                '0'..='9' if !after_name => self.skip_number(),
                _ => self.out.push(c),
            }
        }
    }

    /// Removes the letter in front of a string such as `E'…'` or `b'…'`; returns whether a
    /// backslash escapes in it.
    fn drop_string_prefix(&mut self) -> bool {
        let mut before = self.out.chars().rev();
        let Some(prefix @ ('e' | 'E' | 'b' | 'B' | 'x' | 'X' | 'n' | 'N')) = before.next() else {
            return false;
        };
        if before.next().is_some_and(is_of_name) {
            return false;
        }
        self.out.pop();
        matches!(prefix, 'e' | 'E')
    }

    /// Skips to the end of a literal; an unclosed one was cut off and has no end.
    fn skip_quoted(&mut self, quote: char, escapes: bool) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && escapes {
                self.rest.next();
            } else if c == quote && self.rest.next_if_eq(&quote).is_none() {
                break;
            }
        }
        self.out.push('?');
    }

    fn skip_line(&mut self) {
        while self.rest.next().is_some_and(|c| c != '\n') {}
        self.out.push(' ');
    }

    fn skip_comment(&mut self) {
        self.rest.next();
        let nests = self.dialect == Dialect::Postgres;
        let mut depth = 1;
        while let Some(c) = self.rest.next().filter(|_| depth > 0) {
            if c == '*' && self.rest.next_if_eq(&'/').is_some() {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            } else if nests && c == '/' && self.rest.next_if_eq(&'*').is_some() {
                depth += 1;
            }
        }
        self.out.push(' ');
    }

    /// Handles `$1`, a parameter, and `$tag$…$tag$`, a string.
    fn dollar(&mut self) {
        let mut tag = String::new();
        while let Some(c) = self.rest.next_if(|c| is_of_name(*c) && *c != '$') {
            tag.push(c);
        }
        let parameter = tag.starts_with(|c: char| c.is_ascii_digit());
        if parameter || self.rest.next_if_eq(&'$').is_none() {
            self.out.push('$');
            self.out.push_str(&tag);
            return;
        }
        let end = format!("${tag}$");
        let mut read = String::new();
        for c in self.rest.by_ref() {
            read.push(c);
            if read.ends_with(&end) {
                break;
            }
        }
        self.out.push('?');
    }

    /// Skips a number: digits, fraction, exponent, and hexadecimal ones.
    fn skip_number(&mut self) {
        while self.rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '.').is_some() {}
        self.out.push('?');
    }
}

/// Returns whether a character continues a name, so that a digit after it is no number.
fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_left_out() {
        let cases = [
            (r"SELECT 'it''s', n1 FROM t WHERE a = 12.5e3", "SELECT ?, n1 FROM t WHERE a = ?"),
            (r"SELECT E'a\'b', 'c\' , x", "SELECT ?, ? , x"),
            ("SELECT $1, $$it's$$, $a$ $$ $a$, \"name 1\"", "SELECT $1, ?, ?, \"name ?\""),
            ("SELECT 1 -- it's\n, 2 /* 'a /* b */ c */, 0xFF", "SELECT ? , ? , ?"),
            ("BEGIN;\n\tUPDATE one\u{1b} SET n = n + 1", "BEGIN; UPDATE one SET n = n + ?"),
            ("INSERT INTO t VALUES ('cut of", "INSERT INTO t VALUES (?"),
        ];
        for (sql, expected) in cases {
            assert_eq!(shown(sql, Dialect::Postgres), expected, "{sql}");
        }
        let cases = [
            (r#"SELECT "it's", 'a\'b' FROM `t1` # it's"#, "SELECT ?, ? FROM `t1`"),
            ("UPDATE t SET a = \"x\"\"y\" WHERE id=7", "UPDATE t SET a = ? WHERE id=?"),
        ];
        for (sql, expected) in cases {
            assert_eq!(shown(sql, Dialect::Mysql), expected, "{sql}");
        }
    }

    #[test]
    fn long_statements_are_cut() {
        let long = shown(&format!("SELECT {}", "ä, ".repeat(10_000)), Dialect::Postgres);
        assert_eq!(long.chars().count(), STATEMENT_CHARS_MAX);
        assert!(long.ends_with('…'));
    }
}
