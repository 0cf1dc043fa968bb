//! Error responses.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An error as `application/problem+json`. No cache may store it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// Creates a 400: the request breaks a rule.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body {
            // The title contains all that a type could: RFC 9457, section 4.2.1.
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        let headers = [(CONTENT_TYPE, "application/problem+json"), (CACHE_CONTROL, "no-store")];
        (self.status, headers, Json(body)).into_response()
    }
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
}
