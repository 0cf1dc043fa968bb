//! Credentials and headers that must not be on the command line, where every user of the machine
//! can read them: they come from files or from standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest file of a token or of headers, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// The name of standard input.
const STANDARD_INPUT: &str = "-";
/// Headers whose values are credentials, in lower case.
const CREDENTIAL_HEADERS: [&str; 5] =
    ["authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token"];

/// Reasons why a file of credentials or headers cannot be used. No text contains a value.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file cannot be read.
    #[error("{path} cannot be read: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's message.
        error: io::Error,
    },
    /// The file is too long.
    #[error("{0} is longer than {FILE_BYTES_MAX} bytes")]
    TooLong(PathBuf),
    /// The token file has no token, or more than one.
    #[error(
        "{0} must hold one token: one line of visible ASCII characters without blanks, as printed \
         by `hotrow key new` or by the issuer"
    )]
    Token(PathBuf),
    /// A line of the header file is no header.
    #[error("line {line} of {path} is no header; write NAME: VALUE")]
    Header {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// Returns whether a header's value is a credential.
pub fn is_credential(name: &str) -> bool {
    CREDENTIAL_HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Reads a token from a file, or from standard input if `path` is `-`; returns the header that
/// carries it.
///
/// # Errors
/// Fails unless the file has exactly one token.
pub fn token_header(path: &Path) -> Result<(String, String), CredentialError> {
    let text = read(path)?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CredentialError::Token(path.to_owned()));
    }
    Ok(("Authorization".to_owned(), format!("Bearer {token}")))
}

/// Reads headers from a file, one a line; empty lines are skipped.
///
/// # Errors
/// Fails at the first line without a colon.
pub fn headers(path: &Path) -> Result<Vec<(String, String)>, CredentialError> {
    let text = read(path)?;
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    filled
        .map(|(index, line)| {
            let (name, value) = line.split_once(':').ok_or_else(|| CredentialError::Header {
                path: path.to_owned(),
                line: index + 1,
            })?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

fn read(path: &Path) -> Result<String, CredentialError> {
    let failed = |error| CredentialError::Read { path: path.to_owned(), error };
    let mut text = String::new();
    let limit = FILE_BYTES_MAX + 1;
    if path == Path::new(STANDARD_INPUT) {
        io::stdin().lock().take(limit).read_to_string(&mut text).map_err(failed)?;
    } else {
        let file = File::open(path).map_err(failed)?;
        file.take(limit).read_to_string(&mut text).map_err(failed)?;
    }
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(CredentialError::TooLong(path.to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_token_file_has_one_token() {
        let header = token_header(file("hrk_abc.def\n").path()).unwrap();
        assert_eq!(header, ("Authorization".to_owned(), "Bearer hrk_abc.def".to_owned()));
        for bad in ["", " \n", "two words", "one\ntwo\n", "ä"] {
            let error = token_header(file(bad).path()).unwrap_err();
            assert!(matches!(error, CredentialError::Token(_)), "{bad:?}: {error}");
        }
        let long = file(&"x".repeat(FILE_BYTES_MAX as usize + 1));
        assert!(matches!(token_header(long.path()), Err(CredentialError::TooLong(_))));
        let missing = token_header(Path::new("/nonexistent/token")).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/token cannot be read"), "{missing}");
    }

    #[test]
    fn errors_show_no_part_of_a_secret() {
        for error in [
            token_header(file("secret one").path()).unwrap_err(),
            headers(file("X-Fine: 1\n\nsecret").path()).unwrap_err(),
        ] {
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn a_header_file_has_one_header_a_line() {
        let found = headers(file("X-Api-Key: a:b\n\n Accept :text/html\r\n").path()).unwrap();
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(found, [text("X-Api-Key", "a:b"), text("Accept", "text/html")]);
        assert!(is_credential("x-API-key") && is_credential("Authorization"));
        assert!(!is_credential("Accept"));
    }
}
