//! The admin side: health, metrics, status, purge. Its own listener and thread, so that neither load nor a slow scrape
//! touches the other side.

mod limits;
mod overload;
mod page;
mod status;
mod text;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hotrow_admit::breaker::State;
use hotrow_cache::config::Upkeep;
use hotrow_cache::key::CollectionId;
use hotrow_measure::clock::Nanos;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::body::Body;
use crate::lookups::WorkerLookups;
use crate::metrics::WorkerMetrics;
use crate::problem::{Problem, problem};
use crate::shared::Shared;
use crate::sink::FeedCounts;

/// What the admin side looks at.
pub struct View {
    /// What the workers share.
    pub shared: Arc<Shared>,
    /// Each worker's counts.
    pub workers: Vec<Arc<WorkerMetrics>>,
    /// Each worker's lookups, in the same order.
    pub lookups: Vec<Arc<WorkerLookups>>,
    /// What the feed brought.
    pub feed: Arc<FeedCounts>,
    /// Token that all but health checks need.
    pub token: Option<String>,
    /// When the process started to serve.
    pub started_at: Nanos,
}

/// The admin service.
#[derive(Clone)]
pub struct Admin(pub Arc<View>);

impl hyper::service::Service<Request<Incoming>> for Admin {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let view = self.0.clone();
        Box::pin(async move {
            let answered = if request.uri().path().starts_with(limits::PREFIX) {
                view.change_rate(request).await
            } else {
                view.answer(&request, Nanos::now())
            };
            let mut response = answered.unwrap_or_else(|problem| problem.response());
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            Ok(response)
        })
    }
}

impl View {
    fn answer<B>(&self, request: &Request<B>, now: Nanos) -> Result<Response<Body>, Problem> {
        let path = request.uri().path();
        let known = matches!(path, "/" | "/metrics" | "/status" | "/healthz" | "/readyz");
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if known && !reads {
            return Err(Problem::Method("GET, HEAD"));
        }
        match path {
            "/healthz" => return Ok(plain(StatusCode::OK, "text/plain; charset=utf-8", "alive\n")),
            "/readyz" => return Ok(self.readiness(now)),
            _ => {}
        }
        if !self.authorised(request) {
            return Ok(unauthorised());
        }
        match path {
            "/" => Ok(plain(StatusCode::OK, "text/html; charset=utf-8", page::PAGE)),
            "/metrics" => Ok(plain(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.metrics_text(now))),
            "/status" => Ok(plain(StatusCode::OK, "application/json", self.status(now).to_string())),
            _ => match path.strip_prefix("/purge/") {
                Some(_) if *request.method() != Method::POST => Err(Problem::Method("POST")),
                Some(target) => self.purge(target),
                None => Err(Problem::NoSuchPath),
            },
        }
    }

    fn purge(&self, target: &str) -> Result<Response<Body>, Problem> {
        let (name, id) = target.split_once('/').map_or((target, None), |(name, id)| (name, Some(id)));
        let collection: CollectionId = self.shared.router.collection(name)?;
        match id {
            None => {
                self.shared.cache.flush(collection, None);
                tracing::info!(collection = name, "purged by request");
                Ok(plain(StatusCode::OK, "application/json", r#"{"purged":"collection"}"#))
            }
            Some(id) => {
                let key = self.shared.collection(collection).schema.parse_url(id).map_err(Problem::BadId)?;
                let present = self.shared.cache.purge(&key);
                Ok(plain(
                    StatusCode::OK,
                    "application/json",
                    format!(r#"{{"purged":"record","was_cached":{present}}}"#),
                ))
            }
        }
    }

    fn readiness(&self, now: Nanos) -> Response<Body> {
        let cache = &self.shared.cache;
        let source = self.shared.source.health();
        let current = cache.is_current(now);
        let followed = cache.config().upkeep == Upkeep::Feed;
        let breaker = self.breaker_state(now);
        let ready = current && source.is_ok() && breaker != State::Open;
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = serde_json::json!({
            "ready": status == StatusCode::OK,
            "feed": if !followed { "none" } else if current { "caught up" } else { "behind" },
            "staleness_ms": followed.then(|| status::millis(cache.staleness(now))),
            "source": if source.is_ok() { "reachable" } else { "unreachable" },
            "breaker": breaker.label(),
        });
        let mut response = plain(status, "application/json", body.to_string());
        if status != StatusCode::OK {
            response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// `Bearer TOKEN`, or `Basic` with the token as password, which is what a browser can send.
    fn authorised<B>(&self, request: &Request<B>) -> bool {
        let Some(token) = &self.token else { return true };
        let Some(given) = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes) else { return false };
        if let Some(bearer) = given.strip_prefix(b"Bearer ") {
            return same(token.as_bytes(), bearer);
        }
        let decoded = given.strip_prefix(b"Basic ").and_then(|text| BASE64.decode(text).ok()).unwrap_or_default();
        let password = decoded.iter().position(|b| *b == b':').map_or(&[][..], |colon| &decoded[colon + 1..]);
        same(token.as_bytes(), password)
    }
}

/// Compares in time that does not depend on where the texts differ.
fn same(token: &[u8], given: &[u8]) -> bool {
    let differing = token.iter().zip(given).fold(0, |acc, (a, b)| acc | (a ^ b));
    given.len() == token.len() && differing == 0
}

fn unauthorised() -> Response<Body> {
    let mut response = problem(
        StatusCode::UNAUTHORIZED,
        "Token needed",
        "send Authorization: Bearer, or Basic with it as password: the configured admin.token",
    );
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"hotrow\""));
    response
}

fn plain(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Bytes(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
