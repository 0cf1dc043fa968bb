//! The child process: lowers its own limits, then creates threads or connections until it is
//! refused or has enough. It writes a line per step, so that the last state survives its death.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use hotrow_diagnose::probe::{cpu, limits, network, sockets, status, tcp};
use hotrow_diagnose::root::{ProbeResult, Root};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use serde::{Deserialize, Serialize};

use super::LimitCheckError;

/// Maximum number of threads or connections created, independent of the goal: enough to measure the
/// cost of one, and harmless.
pub(super) const RAMP_MAX: u64 = 2_000;
/// Longest wait for a connection that should open at once: the kernel retries after a second when a
/// queue is full.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// Longest wait for a thread to start, on a busy machine.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Instructions of the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "climb", rename_all = "snake_case")]
pub(super) enum RampOrder {
    /// Create threads of Rust's std.
    Threads {
        most: u64,
        /// Lower RLIMIT_AS to the current use plus this.
        address_space_left: Option<u64>,
        /// Enter this cgroup first.
        group: Option<PathBuf>,
    },
    /// Open connections to its own listener, with both ends in this process.
    Connections {
        most: u64,
        /// Lower RLIMIT_NOFILE to this.
        open_files: Option<u64>,
    },
    /// Open connections that are never accepted.
    Queue {
        /// Backlog passed to `listen`.
        backlog: u16,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RampStep {
    /// Number of threads or connections created.
    pub(super) made: u64,
    /// Everything below was measured, not only the number.
    pub(super) measured: bool,
    pub(super) maps: u64,
    pub(super) address_space: u64,
    pub(super) files: u64,
    pub(super) machine_threads: u64,
    /// TCP sockets of the machine.
    pub(super) sockets: u64,
    /// Connections in its listener's accept queue.
    pub(super) queued: u64,
    /// Connections that found a full accept queue, since boot.
    pub(super) overflows: u64,
    /// The next one was refused.
    pub(super) refused: bool,
}

/// Follows the instructions, then returns.
pub(crate) fn ramp(order: &str) -> Result<(), LimitCheckError> {
    let order: RampOrder = serde_json::from_str(order).map_err(LimitCheckError::RampOrder)?;
    let system = |what| move |error: io::Error| LimitCheckError::System { what, error };
    // The child must not outlive the doctor.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| system("tying the process to its parent")(e.into()))?;
    match order {
        RampOrder::Threads { most, address_space_left, group } => {
            if let Some(group) = group {
                let procs = group.join("cgroup.procs");
                std::fs::write(procs, std::process::id().to_string())
                    .map_err(system("entering the cgroup"))?;
            }
            if let Some(left) = address_space_left {
                let used = RampStep::measure(0, None).address_space;
                lower(Resource::As, used.saturating_add(left))
                    .map_err(system("lowering RLIMIT_AS"))?;
            }
            threads(most.min(RAMP_MAX));
        }
        RampOrder::Connections { most, open_files } => {
            if let Some(open_files) = open_files {
                lower(Resource::Nofile, open_files).map_err(system("lowering RLIMIT_NOFILE"))?;
            }
            connections(most.min(RAMP_MAX)).map_err(system("listening"))?;
        }
        RampOrder::Queue { backlog } => queue(backlog).map_err(system("listening"))?,
    }
    Ok(())
}

/// Creates threads with stacks of the default size. Each thread starts before the next is created,
/// because it maps its signal stack itself. The last one may panic instead of being refused, which
/// is the observation.
fn threads(most: u64) {
    RampStep::measure(0, None).print();
    let (begin, began) = mpsc::sync_channel(1);
    let mut step = RampStep::default();
    while step.made < most {
        let begin = begin.clone();
        let spawned = std::thread::Builder::new().spawn(move || {
            // The creator may have stopped waiting.
            let _ = begin.send(());
            loop {
                std::thread::park();
            }
        });
        step.refused = spawned.is_err() || began.recv_timeout(BEGIN_TIMEOUT).is_err();
        if step.refused {
            break;
        }
        step.made += 1;
        step.print();
    }
    // The threads end with the process, which this line ends.
    RampStep { refused: step.refused, ..RampStep::measure(step.made, None) }.print();
}

fn connections(most: u64) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    RampStep::measure(0, Some(at)).print();
    let mut held = Vec::new();
    let mut step = RampStep::default();
    while step.made < most {
        let pair = TcpStream::connect_timeout(&at, CONNECT_TIMEOUT)
            .and_then(|near| Ok((near, listener.accept()?)));
        match pair {
            Ok(pair) => held.push(pair),
            Err(_) => {
                step.refused = true;
                break;
            }
        }
        step.made += 1;
    }
    let files = count_files(&mut held);
    RampStep { refused: step.refused, files, ..RampStep::measure(step.made, Some(at)) }.print();
    Ok(())
}

/// Counts the open files. At the limit, their folder cannot be opened: one pair is closed first,
/// and counted too.
fn count_files<T>(held: &mut Vec<T>) -> u64 {
    open_files()
        .or_else(|| {
            held.pop();
            open_files().map(|files| files + 2)
        })
        .unwrap_or(0)
}

/// Counts the entries of the folder of open files, without the folder itself, which is open too.
fn open_files() -> Option<u64> {
    limits::open_files(&Root::machine(), std::process::id()).ok()?.checked_sub(1)
}

fn queue(backlog: u16) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // Replaces the backlog chosen by the standard library.
    rustix::net::listen(&listener, i32::from(backlog))?;
    let at = listener.local_addr()?;
    RampStep::measure(0, Some(at)).print();
    let mut held = Vec::new();
    let mut refused = false;
    while !refused && (held.len() as u64) < RAMP_MAX {
        match TcpStream::connect_timeout(&at, CONNECT_TIMEOUT) {
            Ok(stream) => held.push(stream),
            Err(_) => refused = true,
        }
    }
    RampStep { refused, ..RampStep::measure(held.len() as u64, Some(at)) }.print();
    Ok(())
}

fn lower(resource: Resource, to: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(resource);
    let to = maximum.map_or(to, |maximum| maximum.min(to));
    Ok(setrlimit(resource, Rlimit { current: Some(to), maximum })?)
}

impl RampStep {
    /// Measures this process and the machine; unreadable values are 0.
    fn measure(made: u64, listener: Option<SocketAddr>) -> Self {
        let root = Root::machine();
        let of = |seen: ProbeResult<u64>| seen.unwrap_or(0);
        let queue = |text: &str| {
            let all = sockets::parse(text)?;
            let own = all.iter().find(|s| {
                Some(s.local) == listener && s.state == sockets::SocketState::Listening
            })?;
            Some(own.unread)
        };
        Self {
            made,
            measured: true,
            maps: of(root.parse("proc/self/maps", |text| Some(text.lines().count() as u64))),
            address_space: of(
                root.parse(status::OWN_FILE, |text| Some(status::parse(text)?.address_space))
            ),
            files: open_files().unwrap_or(0),
            machine_threads: of(
                root.parse(cpu::LOADAVG_FILE, |text| Some(cpu::parse_load(text)?.threads))
            ),
            sockets: of(root.parse(network::SOCKSTAT_FILE, |text| {
                Some(network::parse_sockstat(text)?.allocated)
            })),
            queued: listener.map_or(0, |_| of(root.parse(sockets::FILE, queue))),
            overflows: of(root
                .parse(tcp::NETSTAT_FILE, |text| Some(tcp::parse_errors(text)?.listen_overflows))),
            refused: false,
        }
    }

    fn print(&self) {
        // A parent that has gone needs no output.
        let line = serde_json::to_string(self).unwrap_or_default();
        let _ = writeln!(io::stdout(), "{line}");
    }
}
