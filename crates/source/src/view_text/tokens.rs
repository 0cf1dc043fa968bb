//! Tokens of a view's text. A character that no accepted view has is an error.

use super::dialect::Dialect;
use super::fault::Fault;

/// Length of a view's text up to which it is parsed.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Signs of several characters, before the signs that they begin with.
const SIGNS: [&str; 23] = [
    "<=>", "->>", "->", "<=", "<>", "<<", ">=", ">>", "==", "!=", "||", "&&", "--", "=", "<", ">",
    "!", "+", "-", "*", "/", "%", "~",
];
const PUNCTUATION: [&str; 5] = ["(", ")", ",", ".", ";"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name between the dialect's quotes.
    Name(String),
    /// A keyword, a function, or a name without quotes.
    Word(String),
    /// A text literal. No decision depends on its content.
    Text,
    Number,
    Sign(&'static str),
}

/// A token with its place in the text, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Splits a text into tokens.
pub(super) fn split(text: &str, dialect: &Dialect) -> Result<Vec<Placed>, Fault> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Fault(format!(
            "has a text of {} bytes; at most {TEXT_BYTES_MAX} are parsed",
            text.len()
        )));
    }
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let blank = blank(rest, dialect);
        if blank > 0 {
            at += blank;
            continue;
        }
        let (token, length) =
            next(rest, dialect).map_err(|what| Fault::at(text, at, at + rest.len(), what))?;
        tokens.push(Placed { token, start: at, end: at + length });
        at += length;
    }
    Ok(tokens)
}

/// Returns the length of the blanks and comments that `rest` begins with.
fn blank(rest: &str, dialect: &Dialect) -> usize {
    let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']).len();
    if blanks > 0 || !dialect.is_as_typed {
        return blanks;
    }
    if rest.starts_with("--") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    match rest.strip_prefix("/*") {
        // A comment without an end is none in the middle of an expression: an error as a sign.
        Some(content) => content.find("*/").map_or(0, |end| end + 4),
        None => 0,
    }
}

/// Returns the token that `rest` begins with, and its length.
fn next(rest: &str, dialect: &Dialect) -> Result<(Token, usize), &'static str> {
    let first = rest.chars().next().unwrap_or_default();
    if let Some((_, close)) = dialect.name_quotes.iter().find(|(open, _)| *open == first) {
        let (name, length) =
            quoted(rest, *close, *close != ']').ok_or("a quoted name without an end")?;
        return Ok((Token::Name(name), length));
    }
    if first == '\'' {
        let (content, length) = quoted(rest, '\'', true).ok_or("a text without an end")?;
        // Whether a backslash escapes depends on settings.
        if !dialect.is_as_typed && content.contains('\\') {
            return Err("a text with a quote, a backslash or a control character");
        }
        return Ok((Token::Text, length));
    }
    if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(is_digit)) {
        return number(rest).map(|length| (Token::Number, length));
    }
    if is_in_word(first) {
        let length = rest.find(|c: char| !is_in_word(c)).unwrap_or(rest.len());
        return Ok((Token::Word(rest[..length].to_owned()), length));
    }
    let sign = SIGNS.iter().chain(&PUNCTUATION).find(|sign| rest.starts_with(**sign));
    sign.map(|sign| (Token::Sign(sign), sign.len())).ok_or("a character that is not accepted")
}

/// Returns the content of a quoted text and its length with the quotes. A doubled quote is data if
/// `doubles`.
fn quoted(rest: &str, close: char, doubles: bool) -> Option<(String, usize)> {
    let mut content = String::new();
    let mut inside = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = inside.next() {
        if c != close {
            content.push(c);
        } else if doubles && inside.peek().is_some_and(|(_, next)| *next == close) {
            inside.next();
            content.push(c);
        } else {
            return Some((content, at + close.len_utf8()));
        }
    }
    None
}

/// Returns the length of a decimal number with optional fraction and exponent.
fn number(rest: &str) -> Result<usize, &'static str> {
    let digits =
        |from: usize| from + rest[from..].find(|c: char| !is_digit(c)).unwrap_or(rest.len() - from);
    let mut end = digits(0);
    if rest[end..].starts_with('.') {
        end = digits(end + 1);
    }
    if rest[end..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    // Such as 0x41.
    if rest[end..].starts_with(is_in_word) {
        return Err("a number in a form that is not accepted");
    }
    Ok(end)
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn is_in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}
