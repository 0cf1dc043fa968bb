//! One request to a running service, with one time limit for all of it.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use hotrow_cli::Exit;
use hotrow_transport::fetch::{self, FetchError, FetchedResponse, Request, RequestError};
use hotrow_transport::target::{Address, TargetError, Url};
use hotrow_transport::tls::{Tls, TlsError, TlsOptions};

/// A request that is ready to be sent.
pub(crate) struct Exchange {
    pub(crate) url: Url,
    /// Socket to connect to instead of the URL's address.
    pub(crate) unix: Option<PathBuf>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) tls: TlsOptions,
    pub(crate) timeout: Duration,
    /// Longest body that is read.
    pub(crate) body_bytes_max: usize,
}

/// Reason for a missing response.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The URL is wrong, or its host unknown.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The path is wrong.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// TLS cannot be configured.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no answer.
    #[error("{0}: {1}")]
    NoAnswer(String, FetchError),
    /// Name resolution or the connection took too long.
    #[error("{0}: no answer within {1:?}")]
    Late(String, Duration),
    /// The system refuses a thread.
    #[error("no thread for the request could be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl ExchangeError {
    /// Returns the exit status: 2 if the command line is wrong.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Request(_) | Self::Target(TargetError::Url { .. }) => Exit::Usage,
            Self::Tls(error) if error.is_usage() => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}

impl Exchange {
    /// Returns what is asked, for messages.
    pub(crate) fn target(&self) -> String {
        match &self.unix {
            Some(path) => format!("{} {}", path.display(), self.url.path),
            None => self.url.to_string(),
        }
    }

    /// Sends the request and returns the response.
    pub(crate) fn run(self) -> Result<FetchedResponse, ExchangeError> {
        let request = fetch::get(&self.url.path, &self.url.host_header(), &self.headers)?;
        let (target, timeout) = (self.target(), self.timeout);
        // Name resolution and connecting to a Unix socket have no time limit of their own. The
        // process ends while the thread may still wait.
        let (sender, receiver) = mpsc::channel();
        let run = move || _ = sender.send(self.send(&request));
        std::thread::Builder::new().name("exchange".to_owned()).spawn(run)?;
        receiver.recv_timeout(timeout).map_err(|_| ExchangeError::Late(target, timeout))?
    }

    fn send(&self, request: &[u8]) -> Result<FetchedResponse, ExchangeError> {
        let address = match &self.unix {
            Some(path) => Address::Unix(path.clone()),
            None => self.url.resolve(self.timeout)?,
        };
        let tls = match self.url.secure {
            true => Some(Tls::new(&self.url.host, &self.tls)?),
            false => None,
        };
        let request = Request { bytes: request, answer_has_body: true };
        fetch::fetch(&address, tls.as_ref(), request, self.timeout, self.body_bytes_max)
            .map_err(|error| ExchangeError::NoAnswer(self.target(), error))
    }
}
