//! Parameters of a connection string.

use super::DatabaseError;

/// Returns the parameters after the question mark, decoded.
pub(super) fn parameters(query: &str) -> Vec<(String, String)> {
    // In a connection string `+` is no blank.
    let query = query.replace('+', "%2B");
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

pub(super) fn refused(name: &str, value: &str) -> DatabaseError {
    DatabaseError::Permanent(format!("`{name}={value}` in the database's URL is not supported"))
}
