//! Admin side of a process that serves no records: health checks, and a few documents.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use hotrow_answer::body::Body;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::request::RequestBody;
use hotrow_config::Config;
use hotrow_front::connection::serve::HttpService;
use hotrow_front::worker::{WorkerError, WorkerName, WorkerThreads, Workers, run_workers};
use hotrow_net::listen::{ListenError, Listeners};
use hotrow_net::tls::TlsEndpoint;
use hotrow_supervisor::Supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use crate::admin::{carries_token, unauthorised};
use crate::service::admin_config;

/// What a path answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// 200; otherwise 503.
    pub is_fine: bool,
    /// Media type.
    pub content_type: &'static str,
    /// Content.
    pub text: String,
}

/// Source of the documents.
pub trait Documents: Send + Sync + 'static {
    /// Returns the document of a path.
    fn document(&self, path: &str) -> Option<Document>;

    /// Returns whether a path needs no token.
    fn is_open(&self, path: &str) -> bool {
        matches!(path, "/healthz" | "/readyz")
    }
}

/// Admin side with its listener.
#[derive(Debug)]
pub struct DocumentsListener {
    listeners: Listeners,
    config: Config,
}

impl DocumentsListener {
    /// Listens on the admin address.
    ///
    /// # Errors
    /// The address is in use, or the certificate cannot be used.
    pub fn bind(config: &Config) -> Result<Self, ListenError> {
        let tls = TlsEndpoint::of(&config.admin_transport).map_err(ListenError::AdminTls)?;
        let listeners = Listeners::bind(config.admin, 1)?.with_tls(tls);
        Ok(Self { listeners, config: config.clone() })
    }

    /// Returns the address, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.listeners.address()
    }

    /// Serves until `shutdown`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve(
        self,
        documents: Arc<dyn Documents>,
        shutdown: &Shutdown,
        supervisor: &Supervisor,
    ) -> Result<Workers, WorkerError> {
        let token = self.config.admin_token.clone();
        let threads = WorkerThreads { name: WorkerName::Admin, supervisor: supervisor.clone() };
        let make =
            move |_| DocumentsService { documents: Arc::clone(&documents), token: token.clone() };
        run_workers(&admin_config(&self.config), self.listeners, make, shutdown, &threads)
    }
}

struct DocumentsService {
    documents: Arc<dyn Documents>,
    token: Option<String>,
}

impl DocumentsService {
    fn answer(&self, request: &Request<RequestBody>) -> Response<Body> {
        let path = request.uri().path();
        let is_allowed = self.documents.is_open(path)
            || self.token.as_ref().is_none_or(|token| carries_token(request.headers(), token));
        if !is_allowed {
            return unauthorised();
        }
        let Some(document) = self.documents.document(path) else {
            return HttpError::WrongPath("this address has no such path".to_owned()).response();
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return HttpError::Method("GET, HEAD").response();
        }
        let status =
            if document.is_fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        text(status, document.content_type, document.text)
    }
}

impl HttpService for DocumentsService {
    type Body = Body;

    fn call(&self, request: Request<RequestBody>) -> Pin<Box<dyn Future<Output = Response<Body>>>> {
        let mut response = self.answer(&request);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Box::pin(std::future::ready(response))
    }
}

fn text(
    status: StatusCode,
    content_type: &'static str,
    text: impl Into<bytes::Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::Bytes(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
