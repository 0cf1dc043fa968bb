//! Parsers of the messages whose content the feed needs.

use super::error::WireError;

/// A row of text columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row(Vec<Option<String>>);

impl Row {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let broken = || WireError::Protocol("a row ends too early".to_owned());
        let (count, mut rest) = body.split_first_chunk::<2>().ok_or_else(broken)?;
        let mut columns = Vec::new();
        for _ in 0..u16::from_be_bytes(*count) {
            let (length, after) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
            // -1 stands for NULL.
            let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
                columns.push(None);
                rest = after;
                continue;
            };
            let (text, after) = after.split_at_checked(length).ok_or_else(broken)?;
            columns.push(Some(String::from_utf8_lossy(text).into_owned()));
            rest = after;
        }
        Ok(Self(columns))
    }

    /// Returns the column's text; an error if it is missing or NULL.
    pub(crate) fn text(&self, index: usize) -> Result<&str, WireError> {
        let column = self.0.get(index).and_then(Option::as_deref);
        column.ok_or_else(|| WireError::Protocol(format!("column {index} of an answer is missing")))
    }
}

/// Splits a list of texts that each end with a NUL byte, up to the empty one.
pub(crate) fn texts(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|b| *b == 0).take_while(|text| !text.is_empty())
}
