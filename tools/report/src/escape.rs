//! Text in markup.

use crate::document::turns;

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
