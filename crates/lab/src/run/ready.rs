//! Waiting for processes: until they are ready, or until they have ended. Every wait is bounded and sees who falls meanwhile.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotrow_load::ask;
use hotrow_load::target::Address;

use super::standing::stopped;
use crate::experiment::Service;
use crate::stage::{Command, Process, Stage, StageError};

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// How long one question may take.
const ASK_WITHIN: Duration = Duration::from_secs(2);
/// Longest answer of a check that is taken, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why something is not ready.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReady {
    #[error("{name} {how}, before it was ready")]
    Exited { name: String, how: String },
    #[error("{name} was not ready within {within:?}: {last}")]
    Late { name: String, within: Duration, last: String },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error("the path of its ready check: {0}")]
    Path(#[from] hotrow_load::request::RequestError),
}

/// How a service is asked.
pub(super) struct Ask<'a> {
    pub(super) service: &'a Service,
    pub(super) address: SocketAddr,
    pub(super) ready_command: &'a [String],
    pub(super) log: &'a Path,
    pub(super) dir: &'a Path,
}

/// Waits until a service is ready: its path answers 2xx, its command ends well, or its port takes connections.
pub(super) fn wait(stage: &mut Stage, process: &Process, ask: &Ask<'_>, stop: &AtomicBool) -> Result<(), NotReady> {
    let within = ask.service.ready_within;
    if !ask.ready_command.is_empty() {
        return wait_command(stage, process, ask, stop);
    }
    let Some(path) = &ask.service.ready else { return wait_tcp(stage, process, ask.address, within, stop) };
    let request = super::answers::get(path, &ask.address.to_string())?;
    let address = Address::Tcp(ask.address);
    until(stage, process, within, stop, &mut |_| match ask::once(
        &address,
        None,
        &request,
        1,
        ASK_WITHIN.min(within),
        ANSWER_BYTES_MAX,
    ) {
        Ok(reply) if (200..300).contains(&reply.status) => Ok(()),
        Ok(reply) => Err(format!("{path} answered {}", reply.status)),
        Err(error) => Err(format!("{path}: {error}")),
    })
}

/// Waits until a port takes connections.
pub(super) fn wait_tcp(
    stage: &mut Stage,
    process: &Process,
    address: SocketAddr,
    within: Duration,
    stop: &AtomicBool,
) -> Result<(), NotReady> {
    until(stage, process, within, stop, &mut |_| {
        let opened = TcpStream::connect_timeout(&address, ASK_WITHIN);
        opened.map(|_| ()).map_err(|e| format!("port {}: {e}", address.port()))
    })
}

fn wait_command(stage: &mut Stage, process: &Process, ask: &Ask<'_>, stop: &AtomicBool) -> Result<(), NotReady> {
    let command = Command {
        name: format!("{}, ready", process.name),
        argv: ask.ready_command.to_vec(),
        env: Vec::new(),
        dir: ask.dir.to_owned(),
        log: ask.log.to_owned(),
        cores: None,
    };
    until(stage, process, ask.service.ready_within, stop, &mut |stage| match run_to_end(
        stage, &command, ASK_WITHIN, stop,
    ) {
        Ok(how) if went_well(&how) => Ok(()),
        Ok(how) => Err(format!("its ready command {how}")),
        Err(error) => Err(error.to_string()),
    })
}

/// Looks again and again until `look` finds it good.
fn until(
    stage: &mut Stage,
    process: &Process,
    within: Duration,
    stop: &AtomicBool,
    look: &mut dyn FnMut(&mut Stage) -> Result<(), String>,
) -> Result<(), NotReady> {
    let (name, end) = (process.name.clone(), Instant::now() + within);
    loop {
        if stopped(stop) {
            return Err(NotReady::Interrupted);
        }
        let looked = look(stage);
        // First who fell: on its port somebody else may answer.
        if let Some(how) = stage.exited(process) {
            return Err(NotReady::Exited { name, how });
        }
        match looked {
            Ok(()) => return Ok(()),
            Err(last) if Instant::now() >= end => return Err(NotReady::Late { name, within, last }),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

/// Runs a command to its end; how it ended, in the stage's words. It is ended when it takes too long.
pub(super) fn run_to_end(
    stage: &mut Stage,
    command: &Command,
    within: Duration,
    stop: &AtomicBool,
) -> Result<String, NotReady> {
    let process = stage.start(command)?;
    let end = Instant::now() + within;
    let how = loop {
        if let Some(how) = stage.exited(&process) {
            break how;
        }
        if stopped(stop) {
            stage.stop(&process)?;
            return Err(NotReady::Interrupted);
        }
        if Instant::now() >= end {
            break format!("did not end within {within:?}");
        }
        std::thread::sleep(LOOK);
    };
    stage.stop(&process)?;
    Ok(how)
}

/// Whether these words of the stage mean that a process ended well.
pub(super) fn went_well(how: &str) -> bool {
    how.split(';').next().is_some_and(|words| words.trim_end() == "exited with status 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_status_0_is_well() {
        for well in [
            "exited with status 0",
            "exited with status 0; it printed nothing",
            "exited with status 0; its last lines:\nx",
        ] {
            assert!(went_well(well), "{well}");
        }
        for ill in [
            "exited with status 1; exited with status 0",
            "killed by signal 9",
            "did not end within 2s",
            "",
            "exited with status 01",
        ] {
            assert!(!went_well(ill), "{ill}");
        }
    }
}
