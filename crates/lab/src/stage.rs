//! Where set-ups run: starts their processes, limits their CPU, watches them, and surely ends them.
//!
//! The processes belong to a supervisor, a process of its own (`hotrow lab supervise`) that holds the end of a pipe to
//! the lab. Whatever happens to the lab, the pipe closes then, and the supervisor kills all that it started: it is the
//! subreaper of all their descendants, so none gets out of its sight by becoming a daemon.
//!
//! Reading order: this file (the lab's side), `link` (the pipe), `message` (what goes through it), `supervise` (the
//! other side), `service` (one process there), `launch` (how it begins inside its limits), `log`, `ending` (how it ends),
//! `limiter` (how CPU is limited), `cgroup`, `pins`, `leftovers`; apart from these `host` (machine and counters) and
//! `ports`.

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

use serde::{Deserialize, Serialize};

pub use host::{IoCounters, host, io};
pub use launch::exec;
use link::Link;
use message::{Answer, Request};
pub use ports::free_port;
pub use supervise::{Cgroups, supervise};

/// Fewest and most cores that a process can be limited to.
pub const CORES: std::ops::RangeInclusive<f64> = 0.01..=1024.0;

/// What to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Name, for messages; unique among what runs.
    pub name: String,
    /// Program and arguments. A program without a slash is looked for in `PATH`.
    pub argv: Vec<String>,
    /// Variables that are set, on top of the lab's own.
    pub env: Vec<(String, String)>,
    /// Where it runs; must exist.
    pub dir: PathBuf,
    /// Where its output goes, standard output and error together; made anew, at most [`LOG_BYTES_MAX`] long.
    pub log: PathBuf,
    /// CPUs that it and its descendants may use together at most, in cores, within [`CORES`]; none without a limit.
    pub cores: Option<f64>,
}

/// Longest log of a process; the rest of its output is dropped, and the log says so.
pub const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A process that was started.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// As the command has it.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// The limit that is in force, in cores; none without one, or where none is possible ([`Stage::limits`]).
    pub limit_cores: Option<f64>,
    id: u32,
}

/// How CPU is limited here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// For the report: "cgroup v2, period 10 ms", "cgroup v1, period 10 ms", "pinned", "not possible: why".
    pub words: String,
    /// Whether a process can be limited at all.
    pub possible: bool,
    /// What is not as good as it could be, for the reader of a report: why only pinning was left.
    pub remark: Option<String>,
}

/// What a process and all its descendants used, living, dead and adopted ones, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time, user and system. Without a cgroup v2 in ticks of the kernel, mostly of 10 ms.
    pub cpu: Duration,
    /// Resident memory of those that live, in bytes; pages that they share count for each.
    pub rss_bytes: u64,
    /// Periods of the CPU limit in which it wanted to run; 0 without a limit by a cgroup.
    pub periods: u64,
    /// Those of them in which the limit held it up.
    pub throttled_periods: u64,
    /// Descendants that lived on when the process itself had ended, however it ended.
    pub left_children: u32,
}

/// The signal that asks a process to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Terminate,
    /// SIGQUIT: nginx ends what it is about first.
    Quit,
    /// SIGINT: PostgreSQL disconnects its clients.
    Interrupt,
}

/// Why the stage did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The supervisor cannot be started.
    #[error("the supervisor ({program}) cannot be started: {why}")]
    NoSupervisor {
        /// What was started.
        program: String,
        /// What the system said.
        why: String,
    },
    /// The supervisor does not answer any more: somebody killed it.
    #[error("the supervisor of the processes is gone ({0}); what it had started was killed as far as it can be found")]
    SupervisorGone(String),
    /// A process cannot be started.
    #[error("{name} cannot be started: {why}")]
    Start {
        /// Its name.
        name: String,
        /// What is wrong: program not found, folder missing, limit out of range.
        why: String,
    },
    /// A process could not be ended.
    #[error("{name} cannot be ended: {why}")]
    Stop {
        /// Its name.
        name: String,
        /// What was tried.
        why: String,
    },
}

/// The supervisor, and what runs under it. Dropping it ends everything.
#[derive(Debug)]
pub struct Stage {
    link: Mutex<Link>,
    limits: Limits,
}

impl Stage {
    /// Starts the supervisor by this command line: `hotrow lab supervise`.
    ///
    /// # Errors
    /// When it does not start, or does not say how it can limit CPU.
    pub fn open(supervisor_argv: &[String]) -> Result<Self, StageError> {
        let mut link = Link::open(supervisor_argv)?;
        let limits = match link.ask(&Request::Limits)? {
            Answer::Limits(limits) => limits,
            other => return Err(link.unexpected(&other)),
        };
        Ok(Self { link: Mutex::new(link), limits })
    }

    /// Starts a process. It is inside its limits before its program begins.
    ///
    /// # Errors
    /// When the program is missing or cannot be executed, the folder is missing, the log cannot be made, the limit is
    /// out of range or refused; or the supervisor is gone.
    pub fn start(&mut self, command: &Command) -> Result<Process, StageError> {
        let Command { name, argv, env, dir, log, cores } = command.clone();
        let mut link = self.link();
        match link.ask(&Request::Start { name, argv, env, dir, log, cores })? {
            Answer::Started { id, pid, limit_cores } => {
                Ok(Process { name: command.name.clone(), pid, limit_cores, id })
            }
            Answer::Failed(why) => Err(StageError::Start { name: command.name.clone(), why }),
            other => Err(link.unexpected(&other)),
        }
    }

    /// How CPU is limited here.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Ends a process with SIGTERM: see [`Self::stop_with`].
    ///
    /// # Errors
    /// When something of it survived SIGKILL, or the supervisor is gone.
    pub fn stop(&mut self, process: &Process) -> Result<(), StageError> {
        self.stop_with(process, StopSignal::Terminate)
    }

    /// Ends a process: asks it by the signal, then the descendants that it left by SIGTERM, and kills what is left
    /// after a bounded wait. Nothing of it lives on the return. A process that ended before is fine.
    ///
    /// # Errors
    /// When something of it survived SIGKILL, or the supervisor is gone.
    pub fn stop_with(&mut self, process: &Process, signal: StopSignal) -> Result<(), StageError> {
        let mut link = self.link();
        match link.ask(&Request::Stop { id: process.id, signal })? {
            Answer::Stopped => Ok(()),
            Answer::Failed(why) => Err(StageError::Stop { name: process.name.clone(), why }),
            other => Err(link.unexpected(&other)),
        }
    }

    /// How the process ended, with the last lines of its log: "exited with status 1; its last lines: …"; none while it runs.
    pub fn exited(&mut self, process: &Process) -> Option<String> {
        match self.link().ask(&Request::Exited { id: process.id }) {
            Ok(Answer::Exited(how)) => how,
            Ok(Answer::Failed(why)) => Some(why),
            Ok(other) => Some(format!("the supervisor answered {other:?}")),
            Err(error) => Some(error.to_string()),
        }
    }

    /// What a process used until now, or until it ended; all zeros when the supervisor is gone.
    #[must_use]
    pub fn usage(&self, process: &Process) -> Usage {
        match self.link().ask(&Request::Usage { id: process.id }) {
            Ok(Answer::Usage(usage)) => usage,
            _ => Usage::default(),
        }
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
