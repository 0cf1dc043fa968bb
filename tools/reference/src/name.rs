//! `/what-is-my-name`: the name from a form ten thousand times. It belongs to one client and is not
//! cacheable.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use crate::problem::Problem;

/// The largest form, in bytes.
pub(crate) const FORM_BYTES_MAX: usize = 4096;
/// The longest name, in bytes of UTF-8; the response repeats it [`REPEATS`] times.
const NAME_BYTES_MAX: usize = 256;
const FORM: &str = "application/x-www-form-urlencoded";

/// One element of the response.
#[derive(Clone, Copy, Serialize)]
struct NameEntry<'a> {
    name: &'a str,
}

pub(crate) async fn name(headers: HeaderMap, body: Result<Bytes, BytesRejection>) -> Response {
    answer(&headers, body).unwrap_or_else(|(problem, accept)| match accept {
        // The accepted media type, as RFC 9110, section 15.5.16 suggests.
        Some(accept) => ([(ACCEPT, accept)], problem).into_response(),
        None => problem.into_response(),
    })
}

/// Returns the response, or the problem and the media type to send instead.
fn answer(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, (Problem, Option<&'static str>)> {
    if !is_form(headers) {
        let problem =
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("send the name as {FORM}"));
        return Err((problem, Some(FORM)));
    }
    let body = body.map_err(|error| (body_error(&error), None))?;
    let name =
        parse_name(&body).map_err(|error| (Problem::bad_request(error.to_string()), None))?;
    Ok(([(CACHE_CONTROL, "no-store")], Json(vec![NameEntry { name: &name }; REPEATS]))
        .into_response())
}

/// Returns whether the body is a form; parameters such as a character set do not matter.
fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM)
}

fn body_error(error: &BytesRejection) -> Problem {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a form may have {FORM_BYTES_MAX} bytes at most"),
        ),
        status => Problem::new(status, "the form did not arrive whole"),
    }
}

/// Reasons why a form contains no valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum NameError {
    #[error("the field `name` is missing; send name=…")]
    Missing,
    #[error("the field `name` is empty; send name=…")]
    Empty,
    #[error("the field `name` must be given once")]
    Repeated,
    #[error("a name may have {NAME_BYTES_MAX} bytes at most, this one has {0}")]
    Long(usize),
    #[error("the form is not in UTF-8")]
    Encoding,
}

/// Returns the name in a form.
fn parse_name(form: &[u8]) -> Result<String, NameError> {
    let mut names =
        form_urlencoded::parse(form).filter(|(key, _)| key == "name").map(|(_, value)| value);
    let name = names.next().ok_or(NameError::Missing)?;
    if names.next().is_some() {
        return Err(NameError::Repeated);
    }
    match name.len() {
        0 => Err(NameError::Empty),
        // The parser replaces invalid UTF-8 by this character; a name that contains the character
        // itself is rejected too.
        _ if name.contains(char::REPLACEMENT_CHARACTER) => Err(NameError::Encoding),
        1..=NAME_BYTES_MAX => Ok(name.into_owned()),
        long => Err(NameError::Long(long)),
    }
}

/// Objects in the responses of `/what-date-is-it` and of `/what-is-my-name`.
pub(crate) const REPEATS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_contains_a_name() {
        for (form, name) in [
            ("name=Alexander+Sergeevich+Pushkin", "Alexander Sergeevich Pushkin"),
            ("name=Alexander%20Sergeevich%20Pushkin&x=1", "Alexander Sergeevich Pushkin"),
            ("x=1&name=%D0%9F%D1%83%D1%88%D0%BA%D0%B8%D0%BD", "Пушкин"),
            ("n%61me=a=b", "a=b"),
            ("name=%22%5C%0A", "\"\\\n"),
            ("name=100%", "100%"),
        ] {
            assert_eq!(parse_name(form.as_bytes()), Ok(name.to_owned()), "{form}");
        }
    }

    #[test]
    fn a_form_without_a_name_has_a_reason() {
        for (form, why) in [
            ("", NameError::Missing),
            ("Name=x", NameError::Missing),
            ("names=x&xname=y", NameError::Missing),
            ("name", NameError::Empty),
            ("name=", NameError::Empty),
            ("name=a&name=a", NameError::Repeated),
            ("name=%FF", NameError::Encoding),
            ("name=%C3", NameError::Encoding),
        ] {
            assert_eq!(parse_name(form.as_bytes()), Err(why), "{form}");
        }
        let of = |bytes: usize| {
            parse_name(format!("name={}", "x".repeat(bytes)).as_bytes()).map(|name| name.len())
        };
        assert_eq!((of(256), of(257)), (Ok(256), Err(NameError::Long(257))));
    }

    #[test]
    fn only_forms_are_taken() {
        let is = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, kind.parse().expect("a value"));
            is_form(&headers)
        };
        assert!(
            is("application/x-www-form-urlencoded")
                && is("Application/X-WWW-Form-Urlencoded ; charset=UTF-8")
        );
        assert!(!is("multipart/form-data") && !is("") && !is("application/x-www-form-urlencoded2"));
        assert!(!is_form(&HeaderMap::new()));
    }
}
