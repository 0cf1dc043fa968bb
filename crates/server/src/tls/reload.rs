//! Takes changed certificate files over.
//!
//! Files are replaced one by one, so they are read when they have not changed for one interval. What
//! does not fit together is refused, and read again when a file changes again.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};

use super::TlsEndpoint;
use super::files::Stamps;

/// Interval of looking at the files.
const INTERVAL: Duration = Duration::from_secs(1);

/// Files as they were at the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    seen: Stamps,
}

impl Watch {
    pub(super) fn new(taken: Stamps) -> Self {
        Self { seen: taken }
    }

    /// Returns whether the files differ from `taken`, which was read last, and did not change since
    /// the last look.
    pub(super) fn is_due(&mut self, taken: Stamps, now: Stamps) -> bool {
        let is_still = std::mem::replace(&mut self.seen, now) == now;
        is_still && now != taken
    }
}

/// Starts the thread that looks at the files until everything must end.
pub(crate) fn start(
    endpoint: Arc<TlsEndpoint>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let ending = shutdown.clone();
    let shutdown = shutdown.clone();
    supervisor.spawn(
        "certificates",
        move || ending.is_ending(),
        || (),
        move || {
            let mut watch = Watch::new(endpoint.source.lock().stamps);
            while shutdown.pause(INTERVAL) {
                supervisor::turn();
                look(&endpoint, &mut watch);
            }
            Ok(())
        },
    )
}

pub(super) fn look(endpoint: &TlsEndpoint, watch: &mut Watch) {
    let now = Stamps::of(&endpoint.settings);
    let taken = endpoint.source.lock().stamps;
    if !watch.is_due(taken, now) {
        return;
    }
    match endpoint.reload(now) {
        Ok(()) => {
            let source = endpoint.source.lock();
            let valid_until = source.certificates.expires();
            tracing::info!(valid_until, "new certificate files are in force");
        }
        Err(error) => tracing::error!(
            %error,
            "changed certificate files are refused; the previous ones stay in force"
        ),
    }
}
