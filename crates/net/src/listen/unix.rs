//! Listening on a Unix socket: one socket that all workers share, and its file.
//!
//! The file appears under its name only when clients may connect: it is bound under another name,
//! gets its permissions, listens, and is renamed. A file that a killed process left is replaced;
//! one that another process still listens on is not.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use hotrow_config::transport::UnixSocket;
use socket2::{Domain, SockAddr, Socket, Type};

use super::BACKLOG;
use super::inherited::{Holder, SharedHolder};
use super::offered::duplicate;

/// Longest path of a socket in bytes: the kernel's 107, less the suffix of the temporary name.
pub const PATH_BYTES_MAX: usize = 107 - SUFFIX_BYTES_MAX;
/// A dot and a process id.
const SUFFIX_BYTES_MAX: usize = 8;

/// A Unix socket that listens; connections wait in the kernel until the workers run.
#[derive(Debug)]
pub struct UnixEndpoint {
    listener: UnixListener,
    /// `None`: another process removes it.
    file: Option<SocketFile>,
    holder: SharedHolder,
}

/// The file of a socket. Removed when dropped, unless another process has replaced it or accepts
/// from its socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    holder: SharedHolder,
}

/// Reason for which the process cannot listen on a Unix socket.
#[derive(Debug, thiserror::Error)]
pub enum UnixListenError {
    /// Another process listens on it.
    #[error(
        "cannot listen on the Unix socket {}: a process listens on it; stop that process (`ss \
         -lxp` shows which), or choose another path", .path.display()
    )]
    InUse {
        /// As configured.
        path: PathBuf,
    },
    /// The path names something else.
    #[error(
        "cannot listen on the Unix socket {}: the file exists and is not a socket; remove it, or \
         choose another path", .path.display()
    )]
    NotASocket {
        /// As configured.
        path: PathBuf,
    },
    /// Any other error of the system.
    #[error(
        "cannot listen on the Unix socket {}: {source}; its folder must exist and be writable for \
         this user", .path.display()
    )]
    Other {
        /// As configured.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl UnixEndpoint {
    /// Begins to listen.
    ///
    /// # Errors
    /// The path is used, or cannot be.
    pub fn bind(socket: &UnixSocket) -> Result<Self, UnixListenError> {
        let path = socket.path.clone();
        match is_free(&path) {
            Ok(Occupant::None) => {}
            Ok(Occupant::Process) => return Err(UnixListenError::InUse { path }),
            Ok(Occupant::OtherFile) => return Err(UnixListenError::NotASocket { path }),
            Err(source) => return Err(UnixListenError::Other { path, source }),
        }
        match open(&path, socket.mode) {
            Ok((listener, identity)) => {
                let holder = SharedHolder::new(Holder::None);
                let file = Some(SocketFile { path, identity, holder: holder.clone() });
                Ok(Self { listener, file, holder })
            }
            Err(source) => Err(UnixListenError::Other { path, source }),
        }
    }

    /// Takes over the socket of another process that `holder` keeps open, if there is one;
    /// otherwise opens the configured one.
    pub fn bind_or_take(
        configured: Option<&UnixSocket>,
        inherited: Option<UnixListener>,
        holder: Holder,
    ) -> Result<Option<Self>, UnixListenError> {
        let Some(inherited) = inherited else {
            return configured.map(Self::bind).transpose();
        };
        // The service manager removes its own file.
        let own = configured.filter(|_| holder == Holder::None);
        Ok(Some(Self::taken_over(inherited, holder, own.map(|unix| unix.path.as_path()))))
    }

    /// Takes over a socket that listens and that `holder` keeps open. `path` is its file if this
    /// process must remove it.
    fn taken_over(listener: UnixListener, holder: Holder, path: Option<&Path>) -> Self {
        let holder = SharedHolder::new(holder);
        let file = path.and_then(|path| {
            let file = std::fs::symlink_metadata(path).ok()?;
            let identity = (file.dev(), file.ino());
            Some(SocketFile { path: path.to_owned(), identity, holder: holder.clone() })
        });
        Self { listener, file, holder }
    }

    pub(super) fn duplicate(&self) -> io::Result<(OwnedFd, SharedHolder)> {
        Ok((duplicate(&self.listener)?, self.holder.clone()))
    }

    /// Returns the socket and its file, for a listener that is served elsewhere than by workers.
    #[must_use]
    pub fn into_listener(self) -> (UnixListener, Option<SocketFile>) {
        (self.listener, self.file)
    }

    pub(super) fn into_parts(self) -> (UnixListener, Option<SocketFile>, SharedHolder) {
        (self.listener, self.file, self.holder)
    }
}

/// User of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occupant {
    /// None, or a process that has ended.
    None,
    Process,
    OtherFile,
}

fn is_free(path: &Path) -> io::Result<Occupant> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::None),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => return Ok(Occupant::OtherFile),
        Ok(_) => {}
    }
    let client = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    match client.connect(&SockAddr::unix(path)?) {
        // A full queue is refused to a client that does not wait.
        Ok(()) => Ok(Occupant::Process),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Occupant::Process),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Occupant::None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Occupant::None),
        Err(error) => Err(error),
    }
}

/// Returns the listening socket with device and inode of its file.
fn open(path: &Path, mode: u32) -> io::Result<(UnixListener, (u64, u64))> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // Left by a killed process that had the same id.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let opened = listen(&temporary, mode).and_then(|opened| {
        std::fs::rename(&temporary, path)?;
        Ok(opened)
    });
    if opened.is_err() {
        // The error that matters is the first.
        let _ = std::fs::remove_file(&temporary);
    }
    opened
}

fn listen(path: &Path, mode: u32) -> io::Result<(UnixListener, (u64, u64))> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    let file = std::fs::symlink_metadata(path)?;
    Ok((socket.into(), (file.dev(), file.ino())))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.holder.get() != Holder::None {
            return;
        }
        let is_ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.identity);
        if is_ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the Unix socket");
        }
    }
}

#[cfg(test)]
mod tests;
