//! What the doctor says of one limit.

use std::path::Path;

use super::goal::Goal;
use crate::root::Unseen;

/// A limit that leaves less than this share of the goal in reserve is tight.
pub const RESERVE: f64 = 0.25;
/// Where settings that are to stay are written.
const SYSCTL_FILE: &str = "/etc/sysctl.d/90-hotrow.conf";
/// The same for limits of processes.
const LIMITS_FILE: &str = "/etc/security/limits.d/90-hotrow.conf";

/// Whether a limit lets the goal be reached, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Enough {
    /// It gives way below the goal.
    No,
    /// It could not be seen, so nobody knows.
    Unseen,
    /// It does, with less than [`RESERVE`] left; or it costs speed.
    Tight,
    /// It does.
    Yes,
    /// It binds who connects, and the goal is to be connected to: shown, and not counted.
    Client,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Open at once.
    Connections,
    /// Opened per second.
    NewConnections,
    /// Per second.
    Requests,
    /// Of one process.
    Threads,
}

/// What a limit allows of what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allows {
    /// The most; none when it sets no bound.
    pub most: Option<u64>,
    /// What is wanted.
    pub wanted: u64,
    /// Of what.
    pub unit: Unit,
}

/// How a limit is raised, as commands for a shell with the needed privileges, or as what to write where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Until the machine, or what was started, ends.
    pub now: Vec<String>,
    /// From the next start on.
    pub for_good: Vec<String>,
}

/// One limit, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Its name, as the system calls it.
    pub limit: &'static str,
    /// What it is set to.
    pub value: String,
    /// What it allows; none for what has no number, as a clock source.
    pub allows: Option<Allows>,
    /// How that follows from the value, with the numbers put in.
    pub formula: String,
    /// Where the formula comes from.
    pub source: &'static str,
    /// Whether that is enough.
    pub enough: Enough,
    /// How to raise it; empty when it is enough.
    pub raise: Commands,
    /// What else must be known.
    pub note: Option<String>,
}

impl Unit {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::NewConnections => "new connections/s",
            Self::Requests => "requests/s",
            Self::Threads => "threads",
        }
    }
}

impl Enough {
    /// Compares what is allowed with what is wanted.
    #[must_use]
    pub fn of(allows: &Allows) -> Self {
        match allows.most {
            Some(most) if most < allows.wanted => Self::No,
            Some(most) if (most as f64) < allows.wanted as f64 * (1.0 + RESERVE) => Self::Tight,
            _ => Self::Yes,
        }
    }

    /// In one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Unseen => "unseen",
            Self::Tight => "tight",
            Self::Yes => "yes",
            Self::Client => "client",
        }
    }
}

impl Verdict {
    /// A limit with a number. How it is raised is kept only where that is needed.
    pub(super) fn counted(limit: &'static str, value: String, allows: Allows, raise: Commands) -> Self {
        let enough = Enough::of(&allows);
        let verdict = Self { allows: Some(allows), ..Self::quality(limit, value, enough) };
        if enough == Enough::Yes { verdict } else { Self { raise, ..verdict } }
    }

    /// What has no number.
    pub(super) fn quality(limit: &'static str, value: String, enough: Enough) -> Self {
        let raise = Commands::default();
        Self { limit, value, allows: None, formula: String::new(), source: "", enough, raise, note: None }
    }

    /// A limit that could not be read.
    pub(super) fn unseen(limit: &'static str, unseen: &Unseen) -> Self {
        Self::quality(limit, format!("could not be seen: {unseen}"), Enough::Unseen)
    }

    pub(super) fn because(self, formula: String, source: &'static str) -> Self {
        Self { formula, source, ..self }
    }

    pub(super) fn noting(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// A limit on who connects: judged only where that is the goal.
    pub(super) fn of_client(self, goal: &Goal) -> Self {
        if goal.client { self } else { Self { enough: Enough::Client, raise: Commands::default(), ..self } }
    }

    /// What is allowed over what is wanted: below 1 it gives way first; infinite where there is no bound.
    #[must_use]
    pub fn margin(&self) -> f64 {
        match self.allows {
            Some(Allows { most: Some(most), wanted, .. }) => most as f64 / wanted.max(1) as f64,
            _ => f64::INFINITY,
        }
    }
}

impl Commands {
    /// A setting of the kernel.
    pub(super) fn sysctl(key: &str, value: impl std::fmt::Display) -> Self {
        Self {
            now: vec![format!("sysctl -w {key}='{value}'")],
            for_good: vec![format!("echo '{key} = {value}' >> {SYSCTL_FILE}")],
        }
    }

    /// A limit of processes: `ulimit`'s letter, the name in limits.conf(5), and systemd's setting.
    pub(super) fn process_limit(letter: char, name: &str, setting: &str, value: u64) -> Self {
        Self {
            now: vec![
                format!(
                    "ulimit -{letter} {value}    # in the shell that starts the program; beyond the hard limit as root"
                ),
                format!("prlimit --pid PID --{name}={value}    # for one that runs"),
            ],
            for_good: vec![
                format!("echo '* - {name} {value}' >> {LIMITS_FILE}    # for those who log in"),
                format!("{setting}={value}    # in [Service] of the systemd unit"),
            ],
        }
    }

    /// A limit of a cgroup.
    pub(super) fn group(file: &Path, value: u64, setting: &str, docker: &str) -> Self {
        Self {
            now: vec![format!("echo {value} > {}", file.display())],
            for_good: vec![
                format!("{setting}={value}    # in [Service] of the systemd unit"),
                format!("docker run {docker}={value} …    # for a container"),
            ],
        }
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        self.now.extend(other.now);
        self.for_good.extend(other.for_good);
        self
    }
}

/// A round number that leaves the reserve: the next power of two.
pub(super) fn rounded_up(needed: u64) -> u64 {
    let reserve = (needed as f64 * RESERVE) as u64;
    needed.saturating_add(reserve).checked_next_power_of_two().unwrap_or(u64::MAX)
}

/// A rate as a whole number, never more than it is.
pub(super) fn whole(rate: f64) -> u64 {
    rate.max(0.0) as u64
}
