//! Process management of the lab: starts processes, limits their CPU, observes them, and reliably
//! ends them.
//!
//! The processes belong to a supervisor, a process of its own (`hotrow-lab supervise`) with a pipe
//! to the lab. When the lab ends for any reason, the pipe closes and the supervisor kills all its
//! processes. It is the subreaper of all descendants, so daemons cannot escape.
//!
//! Reading order: this file (the lab's side), `link` (the pipe), `message` (the protocol),
//! `supervise` (the other side), `service` (one process), `launch` (the start inside limits),
//! `log`, `ending` (the end of processes), `limiter` (CPU limits and weights), `cgroup`, `pins`,
//! `leftovers`; separately `host` (machine and counters) and `ports`.

mod allocation;
mod cgroup;
mod ending;
pub mod host;
mod launch;
mod leftovers;
mod limiter;
mod link;
mod log;
mod message;
mod pins;
pub mod ports;
mod service;
mod supervise;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use host::{IoCounters, MachineCpu, io, machine_cpu};
pub use launch::exec;
pub use limiter::Cgroups;
use link::Link;
pub use link::StageError;
pub use message::{Limits, StopSignal, Usage, Weights};
use message::{Request, Response};
pub use ports::free_port;
pub use supervise::supervise;

/// Accepted range of CPU limits, in cores.
pub const CORES: std::ops::RangeInclusive<f64> = 0.01..=1024.0;

/// A command to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Name for messages; unique among running processes.
    pub name: String,
    /// Program and arguments. A program without a slash is searched in `PATH`.
    pub argv: Vec<String>,
    /// Environment variables in addition to the lab's own and to `HOTROW_LAB_PROCESS`, which
    /// identifies orphans.
    pub env: Vec<(String, String)>,
    /// Working directory; must exist.
    pub dir: PathBuf,
    /// File for standard output and error together; truncated at the start, at most
    /// [`LOG_BYTES_MAX`] long.
    pub log: PathBuf,
    /// CPU limit of the process and its descendants in cores, within [`CORES`]; `None` without a
    /// limit.
    pub cores: Option<f64>,
}

/// Longest log of a process in bytes; further output is dropped, with a note in the log.
pub const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A started process.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Name of its command.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Effective limit in cores; `None` without one or where none is possible ([`Stage::limits`]).
    pub limit_cores: Option<f64>,
    id: u32,
}

/// The supervisor and its processes. Dropping it ends everything.
#[derive(Debug)]
pub struct Stage {
    link: Mutex<Link>,
    limits: Limits,
}

impl Stage {
    /// Starts the supervisor with this command line: `hotrow-lab supervise`.
    ///
    /// # Errors
    /// It does not start, or does not report its CPU limits.
    pub fn open(supervisor_argv: &[String]) -> Result<Self, StageError> {
        let mut link = Link::open(supervisor_argv)?;
        let limits = match link.ask(&Request::Limits)? {
            Response::Limits(limits) => limits,
            other => return Err(link.unexpected(&other)),
        };
        Ok(Self { link: Mutex::new(link), limits })
    }

    /// Starts a process, with its limits in force before its program starts.
    ///
    /// # Errors
    /// The program is missing or not executable, the folder is missing, the log cannot be created,
    /// the limit is out of range or refused, or the supervisor has exited.
    pub fn start(&mut self, command: &Command) -> Result<Process, StageError> {
        let Command { name, argv, env, dir, log, cores } = command.clone();
        let mut link = self.link();
        match link.ask(&Request::Start { name, argv, env, dir, log, cores })? {
            Response::Started { id, pid, limit_cores } => {
                Ok(Process { name: command.name.clone(), pid, limit_cores, id })
            }
            Response::Failed(why) => Err(StageError::Start { name: command.name.clone(), why }),
            other => Err(link.unexpected(&other)),
        }
    }

    /// Returns the method of the CPU limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Gives the started processes together the greatest CPU weight, and the process of the
    /// generator a quarter of it. What cannot be set is a warning.
    ///
    /// # Errors
    /// The supervisor has exited.
    pub fn weigh(&mut self, generator_pid: u32) -> Result<Weights, StageError> {
        let mut link = self.link();
        match link.ask(&Request::Weigh { generator_pid })? {
            Response::Weights(weights) => Ok(weights),
            other => Err(link.unexpected(&other)),
        }
    }

    /// Returns the CPU time of the supervisor itself; zero if it has exited.
    pub fn supervisor_cpu(&self) -> Duration {
        self.link().supervisor_cpu()
    }

    /// Ends a process with SIGTERM; see [`Self::stop_with`].
    ///
    /// # Errors
    /// A part of it survived SIGKILL, or the supervisor has exited.
    pub fn stop(&mut self, process: &Process) -> Result<(), StageError> {
        self.stop_with(process, StopSignal::Terminate)
    }

    /// Ends a process: sends the signal, then SIGTERM to remaining descendants, and SIGKILL after a
    /// bounded wait. Nothing of it is alive afterwards. A process that has already ended is fine.
    ///
    /// # Errors
    /// A part of it survived SIGKILL, or the supervisor has exited.
    pub fn stop_with(&mut self, process: &Process, signal: StopSignal) -> Result<(), StageError> {
        let mut link = self.link();
        match link.ask(&Request::Stop { id: process.id, signal })? {
            Response::Stopped => Ok(()),
            Response::Failed(why) => Err(StageError::Stop { name: process.name.clone(), why }),
            other => Err(link.unexpected(&other)),
        }
    }

    /// Returns how the process ended, with the last lines of its log: "exited with status 1; its
    /// last lines: …"; `None` while it runs.
    pub fn exited(&mut self, process: &Process) -> Option<String> {
        match self.link().ask(&Request::Exited { id: process.id }) {
            Ok(Response::Exited(how)) => how,
            Ok(Response::Failed(why)) => Some(why),
            Ok(other) => Some(format!("the supervisor answered {other:?}")),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Returns the resource usage so far, or until its end; zeros if the supervisor has exited.
    pub fn usage(&self, process: &Process) -> Usage {
        match self.link().ask(&Request::Usage { id: process.id }) {
            Ok(Response::Usage(usage)) => usage,
            _ => Usage::default(),
        }
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
