//! Errors of the connections, as text and as the end of a feed's session.
//!
//! Reference `databases`: Errors of a read of PostgreSQL
//!
//! A missing table or column (42) is 503 once the catalogue confirms it.
//!
//! - 21, 22, 23, 2F, 38, 39, 42, P0, XX001, XX002: [500 for the record](overload.md#one-bad-record)
//! - 42501, unknown ones: 503 for the query
//! - 57014, 55P03: 504; counts for the breaker
//! - 08, 40, 53, 55000, 57, 58, other XX: 503; counts for the breaker

use std::future::Future;
use std::time::Duration;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::delivery::DeliveryError;
use super::wire::WireError;
use hotrow_source::LossCause;
use hotrow_source::feed_loop::Ended;

/// SQLSTATE of an undefined object: the publication. It may also disappear between two looks at the
/// catalogue that belong together.
const UNDEFINED_OBJECT: &str = "42704";

/// Returns an error of the driver with its causes, which its own text omits.
pub(crate) fn full_text(e: &tokio_postgres::Error) -> String {
    match e.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => {
            let mut text = e.to_string();
            let mut source = std::error::Error::source(e);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.ends_with(&cause_text) {
                    text = format!("{text}: {cause_text}");
                }
                source = cause.source();
            }
            text
        }
    }
}

/// Returns the end of a session by an error of the SQL connection.
pub(crate) fn sql_error(doing: &str, error: &Error) -> Ended {
    let cause = match error.code().map(SqlState::code) {
        Some(UNDEFINED_OBJECT) => LossCause::NotWatched,
        _ => LossCause::Unavailable,
    };
    Ended::new(cause, format!("{doing}: {}", full_text(error)))
}

impl From<WireError> for Ended {
    fn from(e: WireError) -> Self {
        let cause = match e.code() {
            Some(UNDEFINED_OBJECT) => LossCause::NotWatched,
            // Undefined file: a segment of the log. Object not in prerequisite state: an
            // invalidated slot.
            Some("58P01" | "55000") => LossCause::LogPruned,
            _ => LossCause::Unavailable,
        };
        Self::new(cause, e.to_string())
    }
}

impl From<DeliveryError> for Ended {
    fn from(e: DeliveryError) -> Self {
        let cause = match e {
            DeliveryError::TooManyTables => LossCause::NotWatched,
            _ => LossCause::Unavailable,
        };
        Self::new(cause, e.to_string())
    }
}

/// Awaits an answer of the SQL connection for at most `limit`.
pub(crate) async fn timely<T>(
    limit: Duration,
    what: &'static str,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Ended> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|e| sql_error(what, &e)),
        Err(_) => Err(Ended::silent(what, limit)),
    }
}
