//! Endpoints with little work: the cost of a request alone, today's date, and a row of the
//! database.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, EXPIRES};
use axum::response::{IntoResponse as _, Response};
use jiff::fmt::rfc2822::DateTimePrinter;
use serde::{Deserialize, Serialize};

use crate::database::{QueryMethod, ROWS};
use crate::name::REPEATS;
use crate::problem::Problem;
use crate::service::Service;

/// `/hello`: 11 bytes.
pub(crate) async fn hello() -> &'static str {
    "hello world"
}

/// `/plaintext`: 12 bytes.
pub(crate) async fn plaintext() -> &'static str {
    "Hello World!"
}

#[derive(Serialize)]
pub(crate) struct Message {
    message: &'static str,
}

/// `/json`: a small object, serialized for each request.
pub(crate) async fn json() -> Json<Message> {
    Json(Message { message: "Hello, World!" })
}

/// `/what-date-is-it`: today's date ten thousand times, cacheable until it changes.
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Db {
    via: QueryMethod,
}

/// `/db?via=raw|builder|orm`: one random row of 100,000.
pub(crate) async fn row(
    State(service): State<Service>,
    query: Result<Query<Db>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(Db { via }) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    let Some(database) = service.database else {
        let detail = "this service was started without a database; give it one with --database";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    match database.row(via, fastrand::i32(1..=ROWS)).await {
        Ok(row) => Ok(([(CACHE_CONTROL, "no-store")], Json(row)).into_response()),
        Err(error) => {
            tracing::error!(%error, "/db");
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the database could not be read"))
        }
    }
}
