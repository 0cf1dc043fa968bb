//! Listening sockets of this process that its successor may take over.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hotrow_supervisor::shutdown::Shutdown;

use super::inherited::{Holder, ListenerKind, SharedHolder};

/// Duplicates of all listening sockets. Dropping them closes nothing that the workers hold; they
/// must be dropped before the workers close theirs, for a queue from which no process accepts
/// would outlive its worker.
#[derive(Debug)]
pub struct Offered {
    sockets: Vec<(ListenerKind, OwnedFd)>,
    holders: [SharedHolder; ListenerKind::ALL.len()],
    admin_shutdown: Shutdown,
}

impl Offered {
    /// Offers these sockets, with the holder of each kind, and the end of the admin listener.
    pub fn new(
        sockets: Vec<(ListenerKind, OwnedFd)>,
        holders: [SharedHolder; ListenerKind::ALL.len()],
        admin_shutdown: Shutdown,
    ) -> Self {
        Self { sockets, holders, admin_shutdown }
    }

    /// Returns the sockets with their uses.
    pub fn sockets(&self) -> impl ExactSizeIterator<Item = (ListenerKind, BorrowedFd<'_>)> {
        self.sockets.iter().map(|(kind, socket)| (*kind, socket.as_fd()))
    }

    /// Records that the successor accepts from the sockets of these kinds. The data listeners stop
    /// accepting when the end is announced; the admin listener stops now.
    pub fn succeed(self, kinds: &[ListenerKind]) {
        for kind in kinds {
            self.holders[*kind as usize].set(Holder::Successor);
        }
        if kinds.contains(&ListenerKind::Admin) {
            self.admin_shutdown.leave();
        }
    }
}

pub(super) fn duplicate(socket: &impl AsFd) -> io::Result<OwnedFd> {
    socket.as_fd().try_clone_to_owned()
}
