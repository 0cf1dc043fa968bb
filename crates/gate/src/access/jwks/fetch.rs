//! Fetch of a JWKS: one request, whose time and answer are bounded.

use std::path::Path;
use std::time::Duration;

use hotrow_access::jwks::JWKS_BYTES_MAX;
use hotrow_config::access::JwksUrl;
use hotrow_net::http_client::{ClientError, Connection, PROGRAM, Whole, body};
use http::header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT};
use http::{Request, StatusCode};
use tokio::time::timeout;

/// Longest time for a fetch, from the resolution of the name to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason for which a fetch has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// It took too long.
    #[error("no complete answer within {} s", FETCH_TIMEOUT.as_secs())]
    TimedOut,
    /// There is no answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The request cannot be made of the URL.
    #[error("the URL cannot be requested: {0}")]
    Request(#[from] http::Error),
    /// Another status than 200.
    #[error("answers {0}, not 200; redirects are not followed: name the last URL")]
    Status(StatusCode),
}

/// Fetches the text at a URL. `ca`: roots to which the server's certificate must lead, read anew;
/// `None`: the system's.
pub(crate) async fn fetch(url: &JwksUrl, ca: Option<&Path>) -> Result<Vec<u8>, FetchError> {
    timeout(FETCH_TIMEOUT, within_time(url, ca)).await.unwrap_or(Err(FetchError::TimedOut))
}

async fn within_time(JwksUrl(url): &JwksUrl, ca: Option<&Path>) -> Result<Vec<u8>, FetchError> {
    let mut connection = Connection::open(url, ca).await?;
    let request = Request::get(&*url.target)
        .header(HOST, &*url.authority)
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .header(ACCEPT_ENCODING, "identity")
        .header(USER_AGENT, PROGRAM)
        .body(Whole::default())?;
    let answer = connection.send(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    Ok(body(answer, JWKS_BYTES_MAX).await?)
}
