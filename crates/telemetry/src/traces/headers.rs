//! Header fields for the collector, from a file: one `Name: value` per line. Values may be
//! credentials, so no message repeats them.

use std::io;
use std::path::{Path, PathBuf};

use hotrow_config::trace::Trace;
use hotrow_net::file_watch;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Largest file.
const BYTES_MAX: usize = 16 << 10;
/// Most fields.
const FIELDS_MAX: usize = 32;

/// Reason for which a file has no usable fields.
#[derive(Debug, thiserror::Error)]
pub enum HeadersError {
    /// The file cannot be read.
    #[error("trace.headers_file {} cannot be read: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The file breaks a rule.
    #[error("trace.headers_file {} {rule}", .path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The rule, without the text of the file.
        rule: String,
    },
}

/// Checks the file of header fields, if one is configured.
///
/// # Errors
/// It cannot be read, or has a line that is no header field.
pub fn check_headers(config: &Trace) -> Result<(), HeadersError> {
    config.headers_file.as_deref().map_or(Ok(()), |path| read(path).map(drop))
}

/// Reads the fields of a file.
pub(super) fn read(path: &Path) -> Result<HeaderMap, HeadersError> {
    let refuse = |rule: String| HeadersError::Refused { path: path.to_owned(), rule };
    let text = file_watch::read(path, BYTES_MAX)
        .map_err(|error| HeadersError::Read { path: path.to_owned(), error })?
        .ok_or_else(|| refuse(format!("is larger than {BYTES_MAX} bytes")))?;
    parse(&text).map_err(refuse)
}

fn parse(text: &[u8]) -> Result<HeaderMap, String> {
    let mut fields = HeaderMap::new();
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    for (number, line) in (1..).zip(lines) {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let at = line.iter().position(|byte| *byte == b':');
        let field = at.and_then(|at| field(&line[..at], &line[at + 1..]));
        let Some((name, value)) = field else {
            return Err(format!("line {number} is no header field; write \"Name: value\""));
        };
        if [CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING].contains(&name) {
            return Err(format!("line {number} sets {name}, which Hotrow sets; remove it"));
        }
        if fields.len() >= FIELDS_MAX {
            return Err(format!("has more than {FIELDS_MAX} header fields"));
        }
        fields.append(name, value);
    }
    Ok(fields)
}

fn field(name: &[u8], value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(name).ok()?;
    let mut value = HeaderValue::from_bytes(value.trim_ascii()).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_header_fields() {
        let text = b"# For the collector.\nAuthorization: Bearer a:b\r\n\nx-tenant:shop\n";
        let fields = parse(text).unwrap();
        assert_eq!(fields["authorization"], "Bearer a:b");
        assert_eq!(fields["x-tenant"], "shop");
        assert!(!format!("{fields:?}").contains("Bearer"), "values are secret");
        assert!(parse(b"").unwrap().is_empty());
    }

    #[test]
    fn a_refusal_does_not_repeat_the_line() {
        for (text, rule) in [
            ("secret", "line 1 is no header field"),
            ("\na b: secret", "line 2 is no header field"),
            ("a: sec\u{1}ret", "line 1 is no header field"),
            (": secret", "line 1 is no header field"),
            ("Content-Type: secret", "line 1 sets content-type"),
            ("host: secret", "line 1 sets host"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(rule) && !error.contains("secret"), "{text}: {error}");
        }
        let many = "a: b\n".repeat(FIELDS_MAX + 1);
        assert!(parse(many.as_bytes()).unwrap_err().contains("more than 32"));
        let missing = read(Path::new("/nonexistent/headers")).unwrap_err().to_string();
        assert!(missing.starts_with("trace.headers_file /nonexistent/headers cannot be read"));
    }
}
