//! A client of HTTP over `hyper`: one connection, one request at a time, with the times of sending
//! and receipt. It shares no code with the service.
//!
//! Reading order: [`Target`], [`message`], [`connection`], [`Client`], [`coding`] (compressed
//! bodies).

mod coding;
pub(crate) mod connection;
pub(crate) mod message;
mod target;

use std::sync::Arc;
use std::time::Duration;

use hotrow_transport::explain;

use self::connection::{Connection, Failure};
pub use self::message::RequestError;
pub(crate) use self::message::{REQUEST_ERRORS, Request, Response};
pub use self::target::Target;
use crate::history::Ns;

/// Time limit of a connect to one address, TLS included.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// Client of one target.
#[derive(Debug)]
pub(crate) struct Client {
    target: Arc<Target>,
    timeout: Duration,
    connection: Option<Connection>,
    /// Explanation of the last failure to connect.
    failure: Option<String>,
}

impl Client {
    pub(crate) fn new(target: Arc<Target>, timeout: Duration) -> Self {
        Self { target, timeout, connection: None, failure: None }
    }

    /// Makes the next request use a new connection, because the other end may have closed an idle
    /// one.
    pub(crate) fn connect_anew(&mut self) {
        self.connection = None;
    }

    /// Returns why the last attempt to connect failed, in words; `None` after a success.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Sends a request and waits for its response. `on_send` receives the time just before sending.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        on_send: impl FnOnce(Ns),
    ) -> Result<Response, RequestError> {
        let asked = self
            .try_ask(request, on_send)
            .and_then(|response| coding::decoded(response).ok_or((RequestError::Malformed, None)));
        if asked.is_err() {
            self.connection = None;
        }
        asked.map_err(|(lost, error)| {
            if let (Some(error), Some(address)) = (error, self.target.addresses.first()) {
                self.failure = Some(explain::socket(&error, address));
            }
            lost
        })
    }

    fn try_ask(
        &mut self,
        request: &Request,
        on_send: impl FnOnce(Ns),
    ) -> Result<Response, Failure> {
        let kept = self.connection.take();
        let kept = kept.and_then(|mut kept| kept.is_ready(self.timeout).then_some(kept));
        let connection = match kept {
            Some(connection) => connection,
            None => {
                self.failure = None;
                Connection::open(&self.target, self.timeout.min(CONNECT_TIME_MAX))
                    .map_err(|error| (RequestError::Connect, Some(error)))?
            }
        };
        let connection = self.connection.insert(connection);
        connection.ask(&self.target, request, self.timeout, on_send)
    }
}

#[cfg(test)]
mod tests;
