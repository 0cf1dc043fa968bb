//! What the grammar does not accept.

use std::fmt;

/// Length up to which an error quotes the text.
const QUOTED_CHARS_MAX: usize = 40;

/// Part of a view's text that is not accepted, as the end of a sentence that begins with the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub(super) String);

impl Fault {
    /// Quotes the text from `start` to `end`, in bytes.
    pub(super) fn at(text: &str, start: usize, end: usize, what: &str) -> Self {
        let place = text.get(..start).map_or(0, |before| before.chars().count()) + 1;
        let quoted: String =
            text.get(start..end).unwrap_or_default().chars().take(QUOTED_CHARS_MAX).collect();
        Self(format!("has {what} at character {place} of its text: {quoted}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
