//! Text of a TOML file: strings that the configuration reads back as they are, and comments that
//! no name from a database can leave.

use std::fmt::Write as _;

/// Longest line of a comment in characters, unless one word is longer.
const COMMENT_CHARS_MAX: usize = 100;

/// Returns a string for the configuration: quoted for TOML, and without variables to expand.
pub(super) fn quoted(text: &str) -> String {
    // The escapes of JSON are those of TOML, which allows no DEL either.
    let quoted = serde_json::Value::from(text.replace('$', "$$")).to_string();
    quoted.replace('\u{7f}', "\\u007F")
}

/// Returns one string, or a list of several.
pub(super) fn string_or_list(names: &[String]) -> String {
    match names {
        [name] => quoted(name),
        names => list(names),
    }
}

/// Returns a list of strings.
pub(super) fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    format!("[{}]", names.join(", "))
}

/// Appends a paragraph as comment lines, broken between words.
pub(super) fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in visible(text).split(' ').filter(|word| !word.is_empty()) {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > COMMENT_CHARS_MAX {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// Appends lines as comments, each whole, so that they can be copied.
pub(super) fn comment_lines(out: &mut String, indent: &str, lines: &str) {
    for line in lines.lines() {
        // Writing to a string does not fail.
        let _ = writeln!(out, "#{indent}{}", visible(line));
    }
}

/// Escapes what could end a comment's line or is not allowed in one.
fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value_of(toml: &str) -> String {
        let table: toml::Table = toml::from_str(&format!("x = {toml}")).expect("TOML");
        table["x"].as_str().expect("a string").to_owned()
    }

    #[test]
    fn a_comment_is_broken_between_words_and_never_left() {
        let mut out = String::new();
        comment(&mut out, &"word ".repeat(40));
        assert!(out.lines().count() == 3 && out.lines().all(|l| l.len() <= 100), "{out}");
        let mut out = String::new();
        comment(&mut out, "a\n[listen]\r\u{1}");
        comment_lines(&mut out, "   ", "one\ntwo\u{7f}");
        assert_eq!(out, "# a\\n[listen]\\r\\u{1}\n#   one\n#   two\\u{7f}\n");
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in "\\PC*|[\\x00-\\x7f$\"\\\\]{0,20}") {
            prop_assert_eq!(value_of(&quoted(&text)).replace("$$", "$"), text);
        }

        #[test]
        fn every_comment_is_one(text in "[\\x00-\\xff\u{2028} ]{0,200}") {
            let mut out = String::new();
            comment(&mut out, &text);
            comment_lines(&mut out, " ", &text);
            let table: toml::Table = toml::from_str(&out).expect("TOML");
            prop_assert!(table.is_empty());
        }
    }
}
