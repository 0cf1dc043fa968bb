//! The lab's end of the pipe to its supervisor.

use std::io::{self, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::message::{self, Answer, Request};
use super::{StageError, leftovers};

/// Longest wait for an answer: longer than the supervisor takes for ending a process that does not want to.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Longest wait for the supervisor to end when the pipe is closed.
const END_WAIT: Duration = Duration::from_secs(20);
/// How often it is looked whether it has ended.
const END_LOOK: Duration = Duration::from_millis(5);

/// The supervisor, and the pipes to it.
#[derive(Debug)]
pub(super) struct Link {
    supervisor: Child,
    /// None once it is lost or closed.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Link {
    pub(super) fn open(argv: &[String]) -> Result<Self, StageError> {
        let no_supervisor = |why: String| StageError::NoSupervisor { program: argv.join(" "), why };
        let (program, arguments) = argv.split_first().ok_or_else(|| no_supervisor("no program is named".to_owned()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut supervisor = command.spawn().map_err(|e| no_supervisor(e.to_string()))?;
        match (supervisor.stdin.take(), supervisor.stdout.take()) {
            (Some(requests), Some(answers)) => {
                Ok(Self { supervisor, requests: Some(requests), answers: BufReader::new(answers) })
            }
            _ => Err(no_supervisor("it has no pipes".to_owned())),
        }
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Answer, StageError> {
        match self.exchange(request) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// The error for an answer to another question.
    pub(super) fn unexpected(&mut self, answer: &Answer) -> StageError {
        self.lost(&format!("it answered {answer:?}"))
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Answer> {
        let requests = self.requests.as_mut().ok_or_else(|| io::Error::other("it was lost before"))?;
        message::send(requests, request)?;
        self.await_answer()?;
        message::receive(&mut self.answers)?.ok_or_else(|| io::Error::other("it has ended"))
    }

    /// Requests and answers alternate, so nothing of an answer can be in the buffer before.
    fn await_answer(&self) -> io::Result<()> {
        let wait = Timespec::try_from(ANSWER_WAIT).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        loop {
            match poll(&mut fds, Some(&wait)) {
                Ok(0) => return Err(io::Error::other(format!("no answer within {} s", ANSWER_WAIT.as_secs()))),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn await_end(&mut self) {
        let until = Instant::now() + END_WAIT;
        while matches!(self.supervisor.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(END_LOOK);
        }
    }

    fn lost(&mut self, why: &str) -> StageError {
        self.requests = None;
        // What it started ends with it, as far as it was its child; the rest is found in its groups, once it is gone.
        self.await_end();
        leftovers::clear();
        StageError::SupervisorGone(why.to_owned())
    }
}

impl Drop for Link {
    /// Closing the pipe ends everything; waiting for it means that nothing is left when the lab goes on.
    fn drop(&mut self) {
        self.requests = None;
        self.await_end();
    }
}
