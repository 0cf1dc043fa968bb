//! Values as TOML has them, and their names in messages.

use std::fmt::Display;

use toml::de::DeValue;

use crate::config::problem::shown;
use crate::config::units;

pub(super) enum Kind {
    Integer(i128),
    Float(f64),
    Text(String),
    Flag(bool),
    /// List, table or date: no key takes one as a single value.
    Other,
}

impl Kind {
    /// Returns a whole number, also from a text, so that a variable can contain it.
    pub(super) fn integer(&self) -> Option<i128> {
        match self {
            Self::Integer(n) => Some(*n),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Float(n) => Some(*n),
            Self::Integer(n) => i32::try_from(*n).ok().map(f64::from),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::Integer(n) => u64::try_from(*n).ok(),
            Self::Text(text) => units::parse_size(text),
            _ => None,
        }
    }
}

pub(super) fn kind_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Returns a key as TOML writes it in a path.
pub(super) fn path_part(name: &str) -> String {
    let bare = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { name.to_owned() } else { shown(name) }
}

pub(super) fn quoted(text: impl Display) -> String {
    format!("\"{text}\"")
}
