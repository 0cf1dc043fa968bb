//! Which path leads where, how requests are counted, and on which thread they are handled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::database::Database;
use crate::problem::Problem;
use crate::{Config, Model, date, hello, name, row, work};

/// What all requests share.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) clock: Clock,
    /// None when the service was started without one.
    pub(crate) database: Option<Database>,
    served: Arc<AtomicU64>,
    /// The workers of the blocking variant that are free.
    workers: Option<Arc<Semaphore>>,
}

impl Service {
    pub(crate) fn new(config: &Config, database: Option<Database>) -> Self {
        let workers = match config.model {
            Model::Async => None,
            Model::Blocking => Some(Arc::new(Semaphore::new(config.workers.get()))),
        };
        Self { clock: config.clock.clone(), database, served: Arc::default(), workers }
    }
}

/// All endpoints.
pub(crate) fn router(service: Service) -> Router {
    let handled = Router::new()
        .route("/hello", get(hello::hello))
        .route("/plaintext", get(hello::plaintext))
        .route("/json", get(hello::json))
        .route("/what-date-is-it", get(date::date))
        .route("/what-is-my-name", post(name::name).layer(DefaultBodyLimit::max(name::FORM_BYTES_MAX)))
        .route("/db", get(row::row))
        .route("/spin", get(work::spin))
        .route("/sleep", get(work::sleep))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found);
    let handled = match &service.workers {
        Some(_) => handled.layer(middleware::from_fn_with_state(service.clone(), on_a_worker)),
        None => handled,
    };
    // What watches the service is neither counted nor made to wait for a worker.
    let watched = Router::new().route("/served", get(served)).route("/healthz", get(healthz));
    handled.layer(middleware::from_fn_with_state(service.clone(), count)).merge(watched).with_state(service)
}

/// Counts a request once it is answered, whatever the answer.
async fn count(State(service): State<Service>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    service.served.fetch_add(1, Ordering::Relaxed);
    response
}

/// Lets a worker of the pool handle the request, from here to its answer; what waits in the handler blocks that worker.
async fn on_a_worker(State(service): State<Service>, request: Request, next: Next) -> Response {
    let Some(workers) = service.workers else { return next.run(request).await };
    // In the order of arrival. Who waits here is bounded by the connections, each of which has one request at a time.
    let Ok(worker) = workers.acquire_owned().await else {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the service is stopping").into_response();
    };
    let runtime = Handle::current();
    let handled = tokio::task::spawn_blocking(move || {
        let response = runtime.block_on(next.run(request));
        drop(worker);
        response
    });
    handled.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a worker did not finish its request");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be handled").into_response()
    })
}

/// `/served`: requests that this process has answered, those to `/served` and `/healthz` left out.
async fn served(State(service): State<Service>) -> String {
    service.served.load(Ordering::Relaxed).to_string()
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn not_found(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("there is no {}", uri.path()))
}

/// The router adds `Allow`.
async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}", uri.path()))
}
