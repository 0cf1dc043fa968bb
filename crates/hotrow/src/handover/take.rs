//! The next process: takes the sockets, and reports when it accepts from them.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use hotrow_config::Config;
use hotrow_net::listen::inherited::{Inherited, ListenerKind};

use super::wire::{self, Greeting};
use super::{HandoverError, check_user};

/// Longest wait for one message of the process before.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The process before this one. Dropped, it goes on as if nothing had happened.
#[derive(Debug)]
pub struct Predecessor {
    stream: UnixStream,
    pid: u32,
    kinds: Vec<ListenerKind>,
}

/// Takes the sockets of the process that listens at `path`, as far as the configuration has the
/// same addresses. `None`: there is no such process.
///
/// # Errors
/// The process refuses, belongs to another user, or does not speak the protocol.
pub fn take(
    path: &Path,
    config: &Config,
) -> Result<Option<(Inherited, Predecessor)>, HandoverError> {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
    stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(io::Error::from)?;
    check_user(peer.uid.as_raw())?;
    let greeting = Greeting::parse(&wire::read_line(&mut stream)?)?;
    let mut inherited = Inherited::of_predecessor();
    for _ in 0..greeting.sockets {
        // A socket of an unknown kind is left to the process before.
        if let (Some(kind), socket) = wire::receive_socket(&stream)? {
            inherited.add(kind, socket)?;
        }
    }
    inherited.keep_configured(config);
    let kinds = inherited.kinds();
    tracing::info!(predecessor = greeting.pid, ?kinds, "taking over listening sockets");
    Ok(Some((inherited, Predecessor { stream, pid: greeting.pid, kinds })))
}

impl Predecessor {
    /// Reports that this process accepts from the sockets, and waits until the other one has
    /// stopped and given up its handover socket.
    pub fn succeed(mut self) {
        let pid = self.pid;
        match self.report() {
            Ok(()) => tracing::info!(predecessor = pid, "took over from the process before"),
            // This process holds the sockets and accepts: it goes on, whatever the other does.
            Err(error) => {
                tracing::warn!(predecessor = pid, %error, "the process before did not confirm");
            }
        }
    }

    fn report(&mut self) -> Result<(), HandoverError> {
        self.stream.write_all(wire::ready_line(&self.kinds).as_bytes())?;
        let answer = wire::read_line(&mut self.stream)?;
        wire::check_refusal(&answer)?;
        match answer == wire::DONE {
            true => Ok(()),
            false => Err(HandoverError::Protocol("it did not confirm")),
        }
    }
}
