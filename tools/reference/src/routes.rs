//! Routing, the count of requests, and the choice of the thread that handles them.

use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::runtime::Handle;

use crate::problem::Problem;
use crate::service::Service;
use crate::{endpoints, name, work};

/// Returns all endpoints.
pub(crate) fn router(service: Service) -> Router {
    let handled = Router::new()
        .route("/hello", get(endpoints::hello))
        .route("/plaintext", get(endpoints::plaintext))
        .route("/json", get(endpoints::json))
        .route("/what-date-is-it", get(endpoints::date))
        .route(
            "/what-is-my-name",
            post(name::name).layer(DefaultBodyLimit::max(name::FORM_BYTES_MAX)),
        )
        .route("/db", get(endpoints::row))
        .route("/spin", get(work::spin))
        .route("/sleep", get(work::sleep))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found);
    let handled = match &service.workers {
        Some(_) => handled.layer(middleware::from_fn_with_state(service.clone(), run_on_worker)),
        None => handled,
    };
    // Requests of monitoring are not counted and do not wait for a worker.
    let watched = Router::new().route("/served", get(served)).route("/healthz", get(healthz));
    handled
        .layer(middleware::from_fn_with_state(service.clone(), count))
        .merge(watched)
        .with_state(service)
}

/// Counts a request once it is answered, with any status.
async fn count(State(service): State<Service>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    service.served.fetch_add(1, Ordering::Relaxed);
    response
}

/// Handles the request on a worker of the pool until its response; a wait in the handler blocks
/// that worker.
async fn run_on_worker(State(service): State<Service>, request: Request, next: Next) -> Response {
    let Some(workers) = service.workers else { return next.run(request).await };
    // In order of arrival. The number of waiting requests is bounded by the connections, which
    // carry one request each.
    let Ok(worker) = workers.acquire_owned().await else {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the service is stopping")
            .into_response();
    };
    let runtime = Handle::current();
    let handled = tokio::task::spawn_blocking(move || {
        let response = runtime.block_on(next.run(request));
        drop(worker);
        response
    });
    handled.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a worker did not finish its request");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be handled")
            .into_response()
    })
}

/// `/served`: requests answered by this process, except `/served` and `/healthz`.
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
