//! Quotations in problems of a configuration.

/// Longest quotation from a file in a message, in characters.
const SHOWN_CHARS_MAX: usize = 80;

/// Quotes a piece of the file for a message: escaped and truncated.
pub(super) fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(SHOWN_CHARS_MAX).collect();
    let cut = if chars.next().is_some() { "…" } else { "" };
    format!("{head:?}{cut}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotation_is_bounded() {
        assert!(shown(&"x".repeat(500)).chars().count() < 90);
    }
}
