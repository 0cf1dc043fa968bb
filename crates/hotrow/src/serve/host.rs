//! The process that a service runs in: its signals, its threads and its sockets.

use hotrow_cli::signals::{self, Hangup, OnAbort, Phase};
use hotrow_net::listen::inherited::{Holder, Inherited};
use hotrow_supervisor::Supervisor;
use tokio::sync::watch;

use super::error::{ServeError, subsystem};
#[cfg(feature = "failpoints")]
use crate::failpoints::Failpoints;
use crate::service_manager;

/// The process that a service runs in.
#[derive(Debug)]
pub struct Host {
    /// Current phase: running, or draining after a stop signal.
    pub phase: watch::Receiver<Phase>,
    /// Number of SIGHUPs so far.
    pub hangups: watch::Receiver<u64>,
    /// Supervisor of all background threads.
    pub supervisor: Supervisor,
    /// Listening sockets of the service manager.
    pub inherited: Inherited,
    /// Faults requested by a test.
    #[cfg(feature = "failpoints")]
    pub failpoints: Failpoints,
}

impl Host {
    /// Returns one without handlers of signals and without sockets.
    pub(crate) fn for_trial() -> Self {
        Self {
            phase: watch::channel(Phase::Running).1,
            hangups: watch::channel(0).1,
            supervisor: Supervisor::default(),
            inherited: Inherited::new(Holder::None),
            #[cfg(feature = "failpoints")]
            failpoints: Failpoints::default(),
        }
    }

    /// Takes the sockets of the service manager and installs the signal handlers.
    ///
    /// # Errors
    /// Fails if the system refuses a handler or a thread, or if the service manager passed a socket
    /// that cannot be served.
    #[cfg(not(feature = "failpoints"))]
    pub fn start(on_abort: OnAbort) -> Result<Self, ServeError> {
        let inherited = service_manager::passed_sockets().map_err(subsystem)?;
        let supervisor = Supervisor::default();
        let (counter, hangups) = watch::channel(0);
        let phase = signals::listen(Hangup::Counted(counter), on_abort, &supervisor)
            .map_err(ServeError::Signals)?;
        Ok(Self { phase, hangups, supervisor, inherited })
    }

    /// Installs the signal handlers and reads the failpoints of the environment.
    ///
    /// # Errors
    /// Fails if the system refuses a handler or a thread, or if a failpoint does not exist.
    #[cfg(feature = "failpoints")]
    pub fn start(on_abort: OnAbort) -> Result<Self, ServeError> {
        let inherited = service_manager::passed_sockets().map_err(subsystem)?;
        let mut failpoints = Failpoints::from_environment().map_err(subsystem)?;
        let supervisor =
            Supervisor::with_panic_points(std::mem::take(&mut failpoints.panic_points));
        let (counter, hangups) = watch::channel(0);
        let phase = signals::listen(Hangup::Counted(counter), on_abort, &supervisor)
            .map_err(ServeError::Signals)?;
        Ok(Self { phase, hangups, supervisor, inherited, failpoints })
    }
}
