//! The child: lowers its own limits, then makes threads or connections until it may not, or has enough. It writes a
//! line for each step, so that what it said last stays when it dies.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use hotrow_diagnose::probe::{files, loadavg, sockets, sockstat, status, tcp};
use hotrow_diagnose::root::{Root, Seen};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use serde::{Deserialize, Serialize};

use super::DemonstrationError;

/// Most threads or connections that are made, whatever is asked for: enough to see what one costs, and harmless.
pub(super) const CLIMB_MAX: u64 = 2_000;
/// How long a connection may take that should come at once: the kernel asks again after a second when a queue is full.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// How long a thread may take to begin, on a machine that has something else to do.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "climb", rename_all = "snake_case")]
pub(super) enum Order {
    /// Make threads of Rust's std.
    Threads {
        /// At most so many.
        most: u64,
        /// Lower RLIMIT_AS to what is in use and this.
        address_space_left: Option<u64>,
        /// Enter this cgroup first.
        group: Option<PathBuf>,
    },
    /// Open connections to a listener of its own, both ends in this process.
    Connections {
        /// At most so many.
        most: u64,
        /// Lower RLIMIT_NOFILE to this.
        open_files: Option<u64>,
    },
    /// Open connections that nobody accepts.
    Queue {
        /// What is asked of `listen`.
        backlog: u16,
    },
}

/// What the child measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Threads or connections that it has made.
    pub(super) made: u64,
    /// Everything below was measured, not only counted on.
    pub(super) measured: bool,
    /// Its memory maps.
    pub(super) maps: u64,
    /// Its address space, in bytes.
    pub(super) address_space: u64,
    /// Its open files.
    pub(super) files: u64,
    /// Threads of the machine.
    pub(super) machine_threads: u64,
    /// TCP sockets of the machine.
    pub(super) sockets: u64,
    /// Connections that wait in the queue of its listener.
    pub(super) queued: u64,
    /// Connections that found a queue full, since the machine began.
    pub(super) overflows: u64,
    /// It was refused another one.
    pub(super) refused: bool,
}

/// Carries out an order; does not return before it is done.
pub(crate) fn climb(order: &str) -> Result<(), DemonstrationError> {
    let order: Order = serde_json::from_str(order).map_err(DemonstrationError::Order)?;
    let system = |what| move |error: io::Error| DemonstrationError::System { what, error };
    // Should the doctor die, nothing of this must stay.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| system("tying the process to its parent")(e.into()))?;
    match order {
        Order::Threads { most, address_space_left, group } => {
            if let Some(group) = group {
                let procs = group.join("cgroup.procs");
                std::fs::write(procs, std::process::id().to_string()).map_err(system("entering the cgroup"))?;
            }
            if let Some(left) = address_space_left {
                let used = Step::measure(0, None).address_space;
                lower(Resource::As, used.saturating_add(left)).map_err(system("lowering RLIMIT_AS"))?;
            }
            threads(most.min(CLIMB_MAX));
        }
        Order::Connections { most, open_files } => {
            if let Some(open_files) = open_files {
                lower(Resource::Nofile, open_files).map_err(system("lowering RLIMIT_NOFILE"))?;
            }
            connections(most.min(CLIMB_MAX)).map_err(system("listening"))?;
        }
        Order::Queue { backlog } => queue(backlog).map_err(system("listening"))?,
    }
    Ok(())
}

/// With stacks of the usual size. Each begins before the next is made, for it maps its signal stack itself. That the
/// last one may panic instead of being refused is what is to be seen.
fn threads(most: u64) {
    Step::measure(0, None).tell();
    let (begin, began) = mpsc::sync_channel(1);
    let mut step = Step::default();
    while step.made < most {
        let begin = begin.clone();
        let spawned = std::thread::Builder::new().spawn(move || {
            // Whoever made it may have stopped waiting.
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
        step.tell();
    }
    // Threads do not end before the process does, which this ends.
    Step { refused: step.refused, ..Step::measure(step.made, None) }.tell();
}

fn connections(most: u64) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    Step::measure(0, Some(at)).tell();
    let mut held = Vec::new();
    let mut step = Step::default();
    while step.made < most {
        let pair = TcpStream::connect_timeout(&at, CONNECT_TIMEOUT).and_then(|near| Ok((near, listener.accept()?)));
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
    Step { refused: step.refused, files, ..Step::measure(step.made, Some(at)) }.tell();
    Ok(())
}

/// At the limit the folder of the open files cannot be opened: one pair makes room, and is counted all the same.
fn count_files<T>(held: &mut Vec<T>) -> u64 {
    open_files()
        .or_else(|| {
            held.pop();
            open_files().map(|files| files + 2)
        })
        .unwrap_or(0)
}

/// Without the folder itself, which is open while it is counted.
fn open_files() -> Option<u64> {
    files::of_process(&Root::machine(), std::process::id()).ok()?.checked_sub(1)
}

fn queue(backlog: u16) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // The standard library chose another one: this replaces it.
    rustix::net::listen(&listener, i32::from(backlog))?;
    let at = listener.local_addr()?;
    Step::measure(0, Some(at)).tell();
    let mut held = Vec::new();
    let mut refused = false;
    while !refused && (held.len() as u64) < CLIMB_MAX {
        match TcpStream::connect_timeout(&at, CONNECT_TIMEOUT) {
            Ok(stream) => held.push(stream),
            Err(_) => refused = true,
        }
    }
    Step { refused, ..Step::measure(held.len() as u64, Some(at)) }.tell();
    Ok(())
}

fn lower(resource: Resource, to: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(resource);
    let to = maximum.map_or(to, |maximum| maximum.min(to));
    Ok(setrlimit(resource, Rlimit { current: Some(to), maximum })?)
}

impl Step {
    /// Looks at this process and the machine; what cannot be seen is 0.
    fn measure(made: u64, listener: Option<SocketAddr>) -> Self {
        let root = Root::machine();
        let of = |seen: Seen<u64>| seen.unwrap_or(0);
        let queue = |text: &str| {
            let all = sockets::parse(text)?;
            let own = all.iter().find(|s| Some(s.local) == listener && s.state == sockets::State::Listening)?;
            Some(own.unread)
        };
        Self {
            made,
            measured: true,
            maps: of(root.parse("proc/self/maps", |text| Some(text.lines().count() as u64))),
            address_space: of(root.parse(status::OWN_FILE, |text| Some(status::parse(text)?.address_space))),
            files: open_files().unwrap_or(0),
            machine_threads: of(root.parse(loadavg::FILE, |text| Some(loadavg::parse(text)?.threads))),
            sockets: of(root.parse(sockstat::FILE, |text| Some(sockstat::parse(text)?.allocated))),
            queued: listener.map_or(0, |_| of(root.parse(sockets::FILE, queue))),
            overflows: of(root.parse(tcp::NETSTAT_FILE, |text| Some(tcp::parse_trouble(text)?.listen_overflows))),
            refused: false,
        }
    }

    fn tell(&self) {
        // A parent that has gone needs no answer.
        let line = serde_json::to_string(self).unwrap_or_default();
        let _ = writeln!(io::stdout(), "{line}");
    }
}
