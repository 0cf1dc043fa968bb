//! The process before: gives its sockets to the next one, and ends when that one is ready.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hotrow_config::transport::UnixSocket;
use hotrow_net::listen::inherited::ListenerKind;
use hotrow_net::listen::offered::Offered;
use hotrow_net::listen::unix::{UnixEndpoint, UnixListenError};
use hotrow_server::service::HANDOVER_WAIT_MAX;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::wire::{self, Greeting};
use super::{HandoverError, check_user};

/// Permissions of the handover socket: who connects gets the listening sockets.
const MODE: u32 = 0o600;
/// Longest time from the connection of the next process, which waits until it is ready, to its
/// report.
const READY_TIMEOUT: Duration = HANDOVER_WAIT_MAX.saturating_add(Duration::from_secs(60));

/// The offered sockets. Emptied by the handover, and before the drain closes the originals: a
/// duplicate would keep a queue alive from which no process accepts.
#[derive(Clone, Debug)]
pub struct Offer(Arc<std::sync::Mutex<Option<Offered>>>);

impl Offer {
    /// Creates the offer.
    #[must_use]
    pub fn new(offered: Offered) -> Self {
        Self(Arc::new(std::sync::Mutex::new(Some(offered))))
    }

    /// Withdraws it. Returns what was offered.
    pub fn take(&self) -> Option<Offered> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    fn with<T>(&self, use_it: impl FnOnce(&Offered) -> T) -> Option<T> {
        let offered = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        offered.as_ref().map(use_it)
    }
}

/// Begins to listen for the next process at `path`.
///
/// # Errors
/// The path is used, or cannot be.
pub fn listen(path: &Path) -> Result<UnixEndpoint, UnixListenError> {
    UnixEndpoint::bind(&UnixSocket { path: path.to_owned(), mode: MODE })
}

/// Starts the thread that waits at `endpoint` for the next process, until the end is announced.
/// `succeeded` runs on that thread when the next process accepts.
///
/// # Errors
/// The thread cannot be started.
pub fn start(
    offer: Offer,
    endpoint: UnixEndpoint,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
    succeeded: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let mut endpoint = Some(endpoint);
    let body = move |shutdown: &Shutdown| {
        supervisor::turn();
        // After a failure no process can take over; this one serves all the same.
        let Some(endpoint) = endpoint.take() else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let is_succeeded = runtime.block_on(async {
            tokio::select! {
                biased;
                () = shutdown.leaving() => Ok(false),
                given = give(&offer, endpoint) => given.map(|()| true),
            }
        })?;
        if is_succeeded {
            succeeded();
        }
        Ok(())
    };
    supervisor.spawn_until_end("handover", shutdown, body)?;
    Ok(())
}

/// Offers the sockets until a process has taken them and accepts.
async fn give(offer: &Offer, endpoint: UnixEndpoint) -> io::Result<()> {
    let (listener, file) = endpoint.into_listener();
    let listener = UnixListener::from_std(listener)?;
    loop {
        let mut next = listener.accept().await?.0;
        let given = {
            let session = timeout(READY_TIMEOUT, session(&mut next, offer));
            tokio::pin!(session);
            loop {
                tokio::select! {
                    given = &mut session => break given.unwrap_or_else(|_| Err(late())),
                    other = listener.accept() => refuse(other?.0).await,
                }
            }
        };
        match given {
            Ok(kinds) => {
                // The next process listens at the same path.
                drop(listener);
                drop(file);
                if let Some(offered) = offer.take() {
                    offered.succeed(&kinds);
                }
                tracing::info!(?kinds, "the next process accepts; this one ends");
                // It does not depend on the confirmation.
                _ = next.write_all(format!("{}\n", wire::DONE).as_bytes()).await;
                return Ok(());
            }
            Err(error) => tracing::warn!(
                %error,
                "a handover ended before the next process was ready; this one goes on serving"
            ),
        }
    }
}

/// Passes the sockets to one process. Returns the kinds that it accepts from.
async fn session(next: &mut UnixStream, offer: &Offer) -> Result<Vec<ListenerKind>, HandoverError> {
    check_user(next.peer_cred()?.uid())?;
    let sockets = offer.with(|offered| offered.sockets().len()).unwrap_or(0);
    let greeting = Greeting { pid: std::process::id(), sockets };
    next.write_all(greeting.line().as_bytes()).await?;
    for index in 0..sockets {
        next.async_io(Interest::WRITABLE, || {
            let sent = offer.with(|offered| {
                let socket = offered.sockets().nth(index);
                socket.map(|(kind, socket)| wire::send_socket(&*next, kind, socket))
            });
            sent.flatten().unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
        })
        .await?;
    }
    wire::parse_ready(&read_line(next).await?)
}

fn late() -> HandoverError {
    HandoverError::Io(io::Error::new(io::ErrorKind::TimedOut, "it was not ready in time"))
}

async fn read_line(next: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        if line.len() > wire::LINE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match next.read_u8().await {
            Ok(byte) => line.push(byte),
            Err(_) => {
                let what = "it ended before it was ready";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
        }
    }
    line.pop();
    String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Refuses a second process while another takes over. It is small and fits any buffer.
async fn refuse(mut second: UnixStream) {
    let line = wire::refusal("another process is taking over; start one at a time");
    _ = second.write_all(line.as_bytes()).await;
    tracing::warn!("a second process was refused at the handover socket: one is taking over");
}
