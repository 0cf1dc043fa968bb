//! The lab's end of the pipe to its supervisor.

use std::io::{self, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hotrow_diagnose::process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::leftovers;
use super::message::{self, Request, Response};

/// Time limit of a response, longer than ending an uncooperative process takes.
const RESPONSE_WAIT: Duration = Duration::from_secs(60);
/// Time limit for the supervisor to end after the pipe is closed.
const END_WAIT: Duration = Duration::from_secs(20);
/// Polling interval for that.
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The supervisor and the pipes to it.
#[derive(Debug)]
pub(super) struct Link {
    supervisor: Child,
    /// `None` after it is lost or closed.
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
}

impl Link {
    pub(super) fn open(argv: &[String]) -> Result<Self, StageError> {
        let no_supervisor = |why: String| StageError::NoSupervisor { program: argv.join(" "), why };
        let (program, arguments) =
            argv.split_first().ok_or_else(|| no_supervisor("no program given".to_owned()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut supervisor = command.spawn().map_err(|e| no_supervisor(e.to_string()))?;
        match (supervisor.stdin.take(), supervisor.stdout.take()) {
            (Some(requests), Some(responses)) => Ok(Self {
                supervisor,
                requests: Some(requests),
                responses: BufReader::new(responses),
            }),
            _ => Err(no_supervisor("it has no pipes".to_owned())),
        }
    }

    /// Returns the CPU time of the supervisor itself; zero if it has exited.
    pub(super) fn supervisor_cpu(&self) -> Duration {
        process::stat(Path::new("/proc"), self.supervisor.id())
            .map(|stat| stat.cpu)
            .unwrap_or_default()
    }

    /// Sends a request and waits for the response.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Response, StageError> {
        match self.exchange(request) {
            Ok(response) => Ok(response),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Returns the error for a response of the wrong type.
    pub(super) fn unexpected(&mut self, response: &Response) -> StageError {
        self.lost(&format!("it answered {response:?}"))
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Response> {
        let requests =
            self.requests.as_mut().ok_or_else(|| io::Error::other("it was lost before"))?;
        message::send(requests, request)?;
        self.await_response()?;
        message::receive(&mut self.responses)?.ok_or_else(|| io::Error::other("it has ended"))
    }

    /// Requests and responses alternate, so the buffer holds no earlier response.
    fn await_response(&self) -> io::Result<()> {
        let wait = Timespec::try_from(RESPONSE_WAIT).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(self.responses.get_ref(), PollFlags::IN)];
        loop {
            match poll(&mut fds, Some(&wait)) {
                Ok(0) => {
                    return Err(io::Error::other(format!(
                        "no answer within {} s",
                        RESPONSE_WAIT.as_secs()
                    )));
                }
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn await_end(&mut self) {
        let until = Instant::now() + END_WAIT;
        while matches!(self.supervisor.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(END_POLL_INTERVAL);
        }
    }

    fn lost(&mut self, why: &str) -> StageError {
        self.requests = None;
        // Its child processes end with it; the others are found in its groups after its end.
        self.await_end();
        leftovers::clear();
        StageError::SupervisorGone(why.to_owned())
    }
}

impl Drop for Link {
    /// Closes the pipe, which ends everything, and waits for it, so that nothing is left running.
    fn drop(&mut self) {
        self.requests = None;
        self.await_end();
    }
}

/// Error of the stage.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The supervisor cannot be started.
    #[error("the supervisor ({program}) cannot be started: {why}")]
    NoSupervisor {
        /// Its program.
        program: String,
        /// The system's error.
        why: String,
    },
    /// The supervisor no longer answers, for example because it was killed.
    #[error(
        "the supervisor of the processes has exited ({0}); its processes were killed as far as \
         they can be found"
    )]
    SupervisorGone(String),
    /// A process cannot be started.
    #[error("{name} cannot be started: {why}")]
    Start {
        /// Its name.
        name: String,
        /// Reason: program not found, folder missing, limit out of range.
        why: String,
    },
    /// A process could not be ended.
    #[error("{name} cannot be ended: {why}")]
    Stop {
        /// Its name.
        name: String,
        /// Attempted steps.
        why: String,
    },
}
