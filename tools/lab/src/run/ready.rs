//! Waits for processes to become ready or to end. Every wait is bounded and notices processes that
//! exit.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotrow_transport::fetch::{self, Request};
use hotrow_transport::target::Address;

use crate::experiment::Service;
use crate::stage::{Command, Process, Stage, StageError};

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit of one request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(2);
/// Largest accepted response, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Reason a process is not ready.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadyError {
    #[error("{name} ended before it was ready: {end}")]
    Exited { name: String, end: String },
    #[error("{name} was not ready within {within:?}: {last}")]
    Late { name: String, within: Duration, last: String },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error("the path of its ready check: {0}")]
    Path(#[from] fetch::RequestError),
}

/// Readiness check of a service.
pub(super) struct ReadyCheck<'a> {
    pub(super) service: &'a Service,
    pub(super) address: SocketAddr,
    pub(super) ready_command: &'a [String],
    pub(super) log: &'a Path,
    pub(super) dir: &'a Path,
}

/// How an instance is started.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) command: Command,
    /// Address of its readiness check.
    pub(super) ready: SocketAddr,
    pub(super) ready_command: Vec<String>,
    pub(super) ready_log: PathBuf,
}

impl Launch {
    /// Returns its readiness check.
    pub(super) fn check<'a>(&'a self, service: &'a Service) -> ReadyCheck<'a> {
        ReadyCheck {
            service,
            address: self.ready,
            ready_command: &self.ready_command,
            log: &self.ready_log,
            dir: &self.command.dir,
        }
    }
}

/// Waits until a service is ready: its path answers 2xx, its command succeeds, or its port accepts
/// connections.
pub(super) fn wait(
    stage: &mut Stage,
    process: &Process,
    check: &ReadyCheck<'_>,
    stop: &AtomicBool,
) -> Result<(), ReadyError> {
    let within = check.service.ready_within;
    if !check.ready_command.is_empty() {
        return wait_command(stage, process, check, stop);
    }
    let Some(path) = &check.service.ready else {
        return wait_tcp(stage, process, check.address, within, stop);
    };
    wait_http(stage, process, check.address, path, within, stop)
}

/// Waits until a path answers 2xx.
pub(super) fn wait_http(
    stage: &mut Stage,
    process: &Process,
    at: SocketAddr,
    path: &str,
    within: Duration,
    stop: &AtomicBool,
) -> Result<(), ReadyError> {
    let request = fetch::get(path, &at.to_string(), &[])?;
    let request = Request { bytes: &request, answer_has_body: true };
    let address = Address::Tcp(at);
    poll_until(stage, process, within, stop, &mut |_| match fetch::fetch(
        &address,
        None,
        request,
        REQUEST_TIME_MAX.min(within),
        ANSWER_BYTES_MAX,
    ) {
        Ok(reply) if (200..300).contains(&reply.status) => Ok(()),
        Ok(reply) => Err(format!("{path} answered {}", reply.status)),
        Err(error) => Err(format!("{path}: {error}")),
    })
}

/// Waits until a port accepts connections.
pub(super) fn wait_tcp(
    stage: &mut Stage,
    process: &Process,
    address: SocketAddr,
    within: Duration,
    stop: &AtomicBool,
) -> Result<(), ReadyError> {
    poll_until(stage, process, within, stop, &mut |_| {
        let opened = TcpStream::connect_timeout(&address, REQUEST_TIME_MAX);
        opened.map(|_| ()).map_err(|e| format!("port {}: {e}", address.port()))
    })
}

fn wait_command(
    stage: &mut Stage,
    process: &Process,
    check: &ReadyCheck<'_>,
    stop: &AtomicBool,
) -> Result<(), ReadyError> {
    let command = Command {
        name: format!("{}, ready", process.name),
        argv: check.ready_command.to_vec(),
        env: Vec::new(),
        dir: check.dir.to_owned(),
        log: check.log.to_owned(),
        cores: None,
    };
    poll_until(stage, process, check.service.ready_within, stop, &mut |stage| match run_to_end(
        stage,
        &command,
        REQUEST_TIME_MAX,
        stop,
    ) {
        Ok(end) if succeeded(&end) => Ok(()),
        Ok(end) => Err(format!("its ready command {end}")),
        Err(error) => Err(error.to_string()),
    })
}

/// Polls `probe` until it succeeds.
fn poll_until(
    stage: &mut Stage,
    process: &Process,
    within: Duration,
    stop: &AtomicBool,
    probe: &mut dyn FnMut(&mut Stage) -> Result<(), String>,
) -> Result<(), ReadyError> {
    let (name, deadline) = (process.name.clone(), Instant::now() + within);
    loop {
        if stopped(stop) {
            return Err(ReadyError::Interrupted);
        }
        let result = probe(stage);
        // Exits first: another program may answer on its port.
        if let Some(end) = stage.exited(process) {
            return Err(ReadyError::Exited { name, end });
        }
        match result {
            Ok(()) => return Ok(()),
            Err(last) if Instant::now() >= deadline => {
                return Err(ReadyError::Late { name, within, last });
            }
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Runs a command to its end or its time limit; returns how it ended, in the stage's words.
pub(super) fn run_to_end(
    stage: &mut Stage,
    command: &Command,
    within: Duration,
    stop: &AtomicBool,
) -> Result<String, ReadyError> {
    let process = stage.start(command)?;
    let deadline = Instant::now() + within;
    let end = loop {
        if let Some(end) = stage.exited(&process) {
            break end;
        }
        if stopped(stop) {
            stage.stop(&process)?;
            return Err(ReadyError::Interrupted);
        }
        if Instant::now() >= deadline {
            break format!("did not end within {within:?}");
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    stage.stop(&process)?;
    Ok(end)
}

/// Returns whether the stage's description means success.
pub(super) fn succeeded(end: &str) -> bool {
    end.split(';').next().is_some_and(|words| words.trim_end() == "exited with status 0")
}

/// Returns whether the user asked to stop.
pub(super) fn stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_status_0_is_success() {
        for success in [
            "exited with status 0",
            "exited with status 0; it printed nothing",
            "exited with status 0; its last lines:\nx",
        ] {
            assert!(succeeded(success), "{success}");
        }
        for failure in [
            "exited with status 1; exited with status 0",
            "killed by signal 9",
            "did not end within 2s",
            "",
            "exited with status 01",
        ] {
            assert!(!succeeded(failure), "{failure}");
        }
    }
}
