//! `/db?via=raw|builder|orm`: one random row of 100,000.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use crate::database::{QueryMethod, ROWS};
use crate::problem::Problem;
use crate::routes::Service;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Db {
    via: QueryMethod,
}

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
