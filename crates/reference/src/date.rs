//! `/what-date-is-it`: today's date ten thousand times, cacheable until it changes.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, EXPIRES};
use axum::response::{IntoResponse as _, Response};
use jiff::fmt::rfc2822::DateTimePrinter;

use crate::routes::Service;

/// Objects in the responses of this endpoint and of `/what-is-my-name`.
pub(crate) const REPEATS: usize = 10_000;

pub(crate) async fn date(State(service): State<Service>) -> Response {
    // Read once, so that expiry and date belong to the same moment.
    let today = service.clock.today();
    let keep = format!("public, max-age={}", today.max_age_s);
    let mut response = ([(CACHE_CONTROL, keep)], Json(vec![today.date; REPEATS])).into_response();
    // For a cache such as nginx, which serves the response with a new Date and without an Age:
    // caches behind it need a point in time, not a length.
    let expires = DateTimePrinter::new().timestamp_to_rfc9110_string(&today.expires);
    if let Some(expires) = expires.ok().and_then(|text| text.parse().ok()) {
        response.headers_mut().insert(EXPIRES, expires);
    }
    response
}
