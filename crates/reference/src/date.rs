//! `/what-date-is-it`: today's date ten thousand times, and until when it may be kept.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, EXPIRES};
use axum::response::{IntoResponse as _, Response};
use jiff::fmt::rfc2822::DateTimePrinter;

use crate::routes::Service;

/// Objects in the answers of this endpoint and of `/what-is-my-name`.
pub(crate) const REPEATS: usize = 10_000;

pub(crate) async fn date(State(service): State<Service>) -> Response {
    // Once: the expiry belongs to the same moment as the date.
    let today = service.clock.today();
    let keep = format!("public, max-age={}", today.max_age_s);
    let mut response = ([(CACHE_CONTROL, keep)], Json(vec![today.date; REPEATS])).into_response();
    // For a cache that hands the answer on with a new Date and without an Age, as nginx does: what comes after it can only tell
    // by a moment, not by a length.
    let expires = DateTimePrinter::new().timestamp_to_rfc9110_string(&today.expires);
    if let Some(expires) = expires.ok().and_then(|text| text.parse().ok()) {
        response.headers_mut().insert(EXPIRES, expires);
    }
    response
}
