//! Admin side: health, metrics, status, purge. It has its own listener and thread, so that load on
//! the data side does not delay it, nor a slow scrape the data side.
//!
//! Reference `admin`: # State as JSON
//!
//! Of the [admin API](http.md#admin-api), and of a [relay](hub.md#operation).

mod access;
mod budgets;
mod history;
mod limits;
mod miss_ratio_curve;
mod overload;
mod page;
mod reload;
mod sources;
mod standbys;
mod status;
mod text;
mod warm_start;

pub(crate) use self::access::carries_token;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hotrow_answer::body::Body;
use hotrow_answer::error_type::ErrorType;
use hotrow_answer::http_error::{HttpError, problem};
use hotrow_answer::metrics::WorkerMetrics;
use hotrow_answer::request::RequestBody;
use hotrow_answer::respond::capabilities;
use hotrow_answer::route::{self, METHODS};
use hotrow_front::connection::serve::HttpService;
use hotrow_measure::clock::Nanos;
use hotrow_net::tls::ListenerTls;
use hotrow_openapi::{self as openapi, viewer};
use hotrow_push::Purge;
use hotrow_service::in_force::{InForce, Snapshot};
use hotrow_service::shared::{ADMIN_PATHS, Shared};
use hotrow_telemetry::exposition::Exposition;
use hotrow_telemetry::history::History;
use hotrow_telemetry::lookups::WorkerLookups;
use hotrow_types::key::CollectionId;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use crate::process::Process;
use crate::readiness::Readiness;
use crate::reload::Reloads;

/// State shown by the admin side.
#[derive(Clone)]
pub struct View {
    /// Parts shared with the other threads.
    pub shared: Shared,
    /// Counters of each worker.
    pub workers: Vec<Arc<WorkerMetrics>>,
    /// Lookups of each worker, in the same order.
    pub lookups: Vec<Arc<WorkerLookups>>,
    /// Token required by everything but health checks.
    pub token: Option<String>,
    /// Load shedding is enabled.
    pub is_shedding: bool,
    /// Names under which the admin side may be reached, beside `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// The serving process.
    pub process: Process,
    /// Answers `/readyz`.
    pub(crate) readiness: Readiness,
    /// TLS of the two addresses.
    pub(crate) tls: ListenerTls,
    /// Address of the Redis protocol, if it is served.
    pub redis: Option<SocketAddr>,
    /// Reloads of the configuration; `None`: it does not come from a file.
    pub(crate) reloads: Option<Arc<Reloads>>,
    /// Time at which the process started to serve.
    pub started_at: Nanos,
    /// Samples of the last ten minutes.
    pub(crate) history: Arc<History>,
}

/// The admin service. A request sees the settings in force at its arrival.
#[derive(Clone)]
pub struct Admin {
    view: Arc<View>,
    in_force: Arc<InForce>,
}

impl Admin {
    pub(crate) fn new(view: Arc<View>, in_force: Arc<InForce>) -> Self {
        Self { view, in_force }
    }

    fn view(&self) -> View {
        self.view.as_of(&self.in_force.newest())
    }
}

impl View {
    /// Returns the view under these settings.
    pub(crate) fn as_of(&self, snapshot: &Snapshot) -> Self {
        let Snapshot { shared, config, .. } = snapshot;
        Self {
            shared: shared.clone(),
            is_shedding: config.shed.is_some(),
            token: config.admin_token.clone(),
            hosts: config.admin_hosts.clone(),
            ..self.clone()
        }
    }
}

impl HttpService for Admin {
    type Body = Body;

    fn call(&self, request: Request<RequestBody>) -> Pin<Box<dyn Future<Output = Response<Body>>>> {
        let view = self.view();
        Box::pin(async move {
            let path = request.uri().path();
            let answered = if path.starts_with(limits::PREFIX) {
                view.change_rate(request).await
            } else if path == reload::PATH {
                view.reload(&request).await
            } else {
                view.answer(&request, Nanos::now())
            };
            let mut response = answered.unwrap_or_else(|problem| problem.response());
            protect(response.headers_mut());
            response
        })
    }
}

/// Adds the headers of every answer: it is not stored, sniffed, framed or embedded, and sends no
/// referrer.
fn protect(headers: &mut HeaderMap) {
    const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, page::POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

impl View {
    fn answer<B>(&self, request: &Request<B>, now: Nanos) -> Result<Response<Body>, HttpError> {
        let path = request.uri().path();
        if !path.starts_with('/') {
            return route::without_path(request.method(), path).map(|_| capabilities(METHODS));
        }
        let part = page::part(path).or_else(|| viewer::file(path));
        let known = part.is_some()
            || matches!(path, "/metrics" | "/status" | "/healthz" | "/readyz" | openapi::PATH)
            || matches!(path, "/history" | "/hot-keys");
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if known && !reads {
            return Err(HttpError::Method("GET, HEAD"));
        }
        match path {
            "/healthz" => return Ok(self.health(now)),
            "/readyz" => return Ok(self.readiness(now)),
            // Scrapers, like probes, use any name that reaches the service.
            "/metrics" => {}
            _ => self.check_host(request)?,
        }
        if !self.authorised(request.headers()) {
            return Ok(unauthorised());
        }
        if let Some((content_type, content)) = part {
            return Ok(plain(StatusCode::OK, content_type, content));
        }
        match path {
            "/metrics" => Ok(plain(
                StatusCode::OK,
                "text/plain; version=0.0.4; charset=utf-8",
                self.metrics_text(now),
            )),
            openapi::PATH => {
                Ok(plain(StatusCode::OK, "application/json", self.shared.description.for_admin()))
            }
            "/history" => self.answer_history(request.uri().query(), now),
            "/hot-keys" => {
                Ok(plain(StatusCode::OK, "application/json", self.hot_keys_document().to_string()))
            }
            "/status" => {
                Ok(plain(StatusCode::OK, "application/json", self.status(now).to_string()))
            }
            _ => match path.strip_prefix("/purge/") {
                Some(_) if *request.method() != Method::POST => Err(HttpError::Method("POST")),
                Some(target) => {
                    access::check_change(request).and_then(|()| self.purge(target, now))
                }
                None => Err(self.no_such_path(path)),
            },
        }
    }

    /// Returns why a path does not exist here: it may be one of the data address.
    fn no_such_path(&self, path: &str) -> HttpError {
        let is_of_data = self.shared.collections.router.route(&Method::GET, path, None).is_ok();
        match self.shared.ports.get() {
            Some((port, _)) if is_of_data => HttpError::OtherAddress { name: "data", port: *port },
            _ => HttpError::WrongPath(format!(
                "the admin address has /, /openapi.html and {}",
                ADMIN_PATHS.map(|name| format!("/{name}")).join(", ")
            )),
        }
    }

    fn purge(&self, target: &str, now: Nanos) -> Result<Response<Body>, HttpError> {
        let (name, id) =
            target.split_once('/').map_or((target, None), |(name, id)| (name, Some(id)));
        let collection: CollectionId = self.shared.collections.router.collection(name)?;
        match id {
            None => {
                let aliases = self.shared.collections.aliases_of(collection);
                for flushed in aliases.chain([collection]) {
                    self.shared.cache.flush(flushed, None);
                    self.shared.cache.release_standbys_after(flushed, Nanos::now());
                    self.shared.cache.note_flushed(flushed, now);
                    let source = self.shared.collections.get(flushed).source;
                    self.shared.tracking.iter().for_each(|own| own.flush(source, flushed, None));
                }
                let purge = Purge::Collection(collection);
                self.shared.purger.iter().for_each(|purger| purger.purge_by_request(&purge));
                tracing::info!(collection = name, "purged by request");
                Ok(plain(StatusCode::OK, "application/json", r#"{"purged":"collection"}"#))
            }
            Some(id) => {
                let key = self
                    .shared
                    .collections
                    .get(collection)
                    .schema
                    .parse_url(id)
                    .map_err(HttpError::BadId)?;
                let present = self.shared.cache.purge(&key);
                self.shared.cache.release_standbys_after(collection, Nanos::now());
                self.shared.cache.note_removed(&key, false, now);
                let source = self.shared.collections.get(collection).source;
                self.shared.tracking.iter().for_each(|own| own.purged(source, &key));
                let purge = Purge::Record(key);
                self.shared.purger.iter().for_each(|purger| purger.purge_by_request(&purge));
                Ok(plain(
                    StatusCode::OK,
                    "application/json",
                    format!(r#"{{"purged":"record","was_cached":{present}}}"#),
                ))
            }
        }
    }

    fn readiness(&self, now: Nanos) -> Response<Body> {
        let (is_ready, document) = self.readiness.report(now);
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut response = plain(status, "application/json", document.to_string());
        if !is_ready {
            response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

pub(crate) fn unauthorised() -> Response<Body> {
    let mut response = problem(
        StatusCode::UNAUTHORIZED,
        ErrorType::TokenNeeded,
        "send Authorization: Bearer, or Basic with it as password: the configured admin.token",
    );
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"hotrow\""));
    response
}

fn plain(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Bytes(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

impl View {
    /// Answers `/healthz`. Fails when a thread keeps failing, because restarting the process may
    /// then help.
    pub(super) fn health(&self, now: Nanos) -> Response<Body> {
        const KIND: &str = "text/plain; charset=utf-8";
        match self.process.supervisor.failing(now) {
            None => plain(StatusCode::OK, KIND, "alive\n"),
            Some(thread) => {
                let text = format!(
                    "thread {} failed {} times in a row; restart the process\n",
                    thread.name, thread.failures_in_a_row
                );
                plain(StatusCode::SERVICE_UNAVAILABLE, KIND, text)
            }
        }
    }

    pub(super) fn expose_threads(&self, out: &mut Exposition) {
        let panics = self.process.supervisor.panics();
        out.counter(
            "hotrow_thread_panics_total",
            "Panics caught in background threads, which were restarted.",
            panics.iter().map(|(name, count)| ([("thread", name.as_str())], *count)),
        );
        let dropped = self.process.log_dropped_total.load(Ordering::Relaxed);
        out.counter(
            "hotrow_log_dropped_total",
            "Log lines that could not be written.",
            [([], dropped)],
        );
    }
}
