//! Protocols of the service manager that started this process, systemd or another with the same:
//! passed sockets (`LISTEN_FDS`), notifications (`NOTIFY_SOCKET`) and the watchdog
//! (`WATCHDOG_USEC`). Without these variables nothing happens.

mod activation;
mod watchdog;

use std::io;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_server::service::Served;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use sd_notify::NotifyState;

pub use self::activation::{ActivationError, passed_sockets};
use self::watchdog::Watchdog;

/// Interval of comparing the status with the one that was sent.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Reports that requests are answered, then the status whenever it changes, and feeds the watchdog.
///
/// # Errors
/// The thread cannot be started.
pub fn report(served: Served, shutdown: &Shutdown, supervisor: &Supervisor) -> io::Result<()> {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return Ok(());
    }
    let mut status = served.status(Nanos::now());
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    let mut watchdog = Watchdog::new(sd_notify::watchdog_enabled());
    let body = move |shutdown: &Shutdown| {
        supervisor::turn();
        while shutdown.pause(watchdog.interval().min(STATUS_INTERVAL)) {
            supervisor::turn();
            let now = Nanos::now();
            if watchdog.is_due(served.progress()) {
                notify(&[NotifyState::Watchdog]);
            }
            let current = served.status(now);
            if current != status {
                status = current;
                notify(&[NotifyState::Status(&status)]);
            }
        }
        Ok(())
    };
    supervisor.spawn_until_end("notify", shutdown, body)?;
    Ok(())
}

/// Reports that the configuration is being read again. Followed by [`reloaded`].
pub fn reloading() {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot read the clock for the service manager"),
    }
}

/// Reports the end of the reload, whatever its result: the process serves.
pub fn reloaded() {
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        notify(&[NotifyState::Ready]);
    }
}

/// Reports that the process ends, and that it takes up to `limit`.
pub fn stopping(limit: Duration) {
    let limit_us = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(limit_us)]);
}

/// Sends a notification. A manager that does not receive it acts by its own time-outs.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager at NOTIFY_SOCKET");
    }
}
