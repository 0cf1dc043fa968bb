//! What the connection strings of SQL servers share: their errors and the password.

use std::fmt;

/// Longest part of a parameter that a message repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// Password, hidden from messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Detail of a connection string for which [`has_raw_delimiter`] holds.
pub const RAW_DELIMITER: &str = "has `@`, `/`, `#` or `?` in a user or a password, where they must \
    be percent-encoded (%40, %2F, %23, %3F)";

/// Returns whether a user or a password has a delimiter of URLs as it is, so that programs read
/// different hosts from the string. `rest`: the text after `://`.
pub fn has_raw_delimiter(rest: &str) -> bool {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    let credentials = authority.rsplit_once('@').map_or("", |(credentials, _)| credentials);
    // Behind a `?` an `@` may be in the value of a parameter.
    let path_end = if after.starts_with('?') { after.find('=') } else { after.find('?') };
    let path = &after[..path_end.unwrap_or(after.len())];
    let is_password = |port: &str| port.bytes().any(|byte| !byte.is_ascii_digit());
    let port = authority.rsplit_once(':').filter(|_| !authority.contains(['@', '[', ',']));
    let is_cut = after.contains('@') && port.is_some_and(|(_, port)| is_password(port));
    credentials.contains(['@', '#']) || path.contains('@') || is_cut
}

/// Error of a connection string. No message contains a value that could be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text cannot be parsed, or a component is missing.
    #[error("the connection string {detail}; write `{example}`")]
    Syntax {
        /// Problem and its location.
        detail: String,
        /// A connection string without errors.
        example: &'static str,
    },
    /// The parameter is not supported.
    #[error(
        "the connection string has the parameter `{name}`, which is not supported here; {instead}"
    )]
    Unsupported {
        /// Parameter as written.
        name: String,
        /// Fix.
        instead: &'static str,
    },
    /// A value is not allowed.
    #[error("the connection string has `{name}={value}`; {rule}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// Value as written.
        value: String,
        /// Allowed values.
        rule: String,
    },
    /// Parameters exclude each other, or one is missing.
    #[error("the connection string {detail}")]
    Together {
        /// Rule and fix.
        detail: String,
    },
}

impl TargetError {
    /// Creates a [`Self::Unsupported`]. The message shows the first 100 characters of the name.
    pub fn unsupported(name: &str, instead: &'static str) -> Self {
        Self::Unsupported { name: shown(name), instead }
    }

    /// Creates a [`Self::Value`]. The message shows the first 100 characters of the value.
    pub fn value(name: &'static str, value: &str, rule: &str) -> Self {
        Self::Value { name, value: shown(value), rule: rule.into() }
    }

    /// Creates a [`Self::Together`].
    pub fn together(detail: impl Into<String>) -> Self {
        Self::Together { detail: detail.into() }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
