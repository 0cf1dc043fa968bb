//! The verdict on one limit.

use std::path::Path;

use super::goal::Goal;
use super::limits::Limits;
use crate::root::{ProbeError, ProbeResult};

/// A limit that leaves less than this share of the goal in reserve is tight.
pub const RESERVE: f64 = 0.25;
/// File for permanent kernel settings.
const SYSCTL_FILE: &str = "/etc/sysctl.d/90-hotrow.conf";
/// File for permanent process limits.
const LIMITS_FILE: &str = "/etc/security/limits.d/90-hotrow.conf";

/// The rule of one limit. `Ok(None)`: it does not apply here.
pub(super) type Rule = fn(&Limits, &Goal) -> ProbeResult<Option<LimitVerdict>>;

/// Sufficiency of a limit for the goal, in order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sufficiency {
    /// It is reached below the goal.
    No,
    /// It could not be read.
    Unknown,
    /// It suffices with less than [`RESERVE`] left; or it costs speed.
    Tight,
    /// It suffices.
    Yes,
    /// It applies to clients, and the goal is a server: shown, not counted.
    Client,
}

/// The unit of a limit. Concurrently open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Open at once.
    Connections,
    /// Connections opened per second.
    NewConnections,
    /// Requests per second.
    Requests,
    /// Threads of one process.
    Threads,
}

/// The allowance of a limit, compared with the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The maximum; none without a bound.
    pub max: Option<u64>,
    /// The goal.
    pub wanted: u64,
    /// The unit of both.
    pub unit: Unit,
}

/// Instructions to raise a limit: commands for a shell with the needed privileges, or file
/// contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Valid until reboot, or until the started program ends.
    pub now: Vec<String>,
    /// Valid from the next start on.
    pub permanent: Vec<String>,
}

/// The evaluation of one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitVerdict {
    /// The system's name of the limit.
    pub limit: &'static str,
    /// Its current setting.
    pub value: String,
    /// Its allowance; none for settings without a number, such as a clock source.
    pub allows: Option<Allowance>,
    /// The formula from value to allowance, with the numbers filled in.
    pub formula: String,
    /// The source of the formula.
    pub source: &'static str,
    /// Sufficiency for the goal.
    pub enough: Sufficiency,
    /// Commands that raise it; empty when it suffices.
    pub raise: Commands,
    /// Additional information.
    pub note: Option<String>,
}

impl Unit {
    /// Returns the unit as text.
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

impl Sufficiency {
    /// Compares the allowance with the goal.
    #[must_use]
    pub fn of(allows: &Allowance) -> Self {
        match allows.max {
            Some(max) if max < allows.wanted => Self::No,
            Some(max) if (max as f64) < allows.wanted as f64 * (1.0 + RESERVE) => Self::Tight,
            _ => Self::Yes,
        }
    }

    /// Returns the sufficiency as one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::Tight => "tight",
            Self::Yes => "yes",
            Self::Client => "client",
        }
    }
}

impl LimitVerdict {
    /// Creates the verdict of a numeric limit; keeps the instructions only where needed.
    pub(super) fn counted(
        limit: &'static str,
        value: String,
        allows: Allowance,
        raise: Commands,
    ) -> Self {
        let enough = Sufficiency::of(&allows);
        let verdict = Self { allows: Some(allows), ..Self::quality(limit, value, enough) };
        if enough == Sufficiency::Yes { verdict } else { Self { raise, ..verdict } }
    }

    /// Creates the verdict of a setting without a number.
    pub(super) fn quality(limit: &'static str, value: String, enough: Sufficiency) -> Self {
        let raise = Commands::default();
        Self {
            limit,
            value,
            allows: None,
            formula: String::new(),
            source: "",
            enough,
            raise,
            note: None,
        }
    }

    /// Creates the verdict of an unreadable limit.
    pub(super) fn unreadable(limit: &'static str, probe_error: &ProbeError) -> Self {
        Self::quality(limit, format!("unknown: {probe_error}"), Sufficiency::Unknown)
    }

    pub(super) fn because(self, formula: String, source: &'static str) -> Self {
        Self { formula, source, ..self }
    }

    pub(super) fn noting(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// Marks a limit that applies to clients: evaluated only when the goal is a client.
    pub(super) fn of_client(self, goal: &Goal) -> Self {
        if goal.client {
            self
        } else {
            Self { enough: Sufficiency::Client, raise: Commands::default(), ..self }
        }
    }

    /// Returns allowance over goal; infinite without a bound.
    pub fn margin(&self) -> f64 {
        match self.allows {
            Some(Allowance { max: Some(max), wanted, .. }) => max as f64 / wanted.max(1) as f64,
            _ => f64::INFINITY,
        }
    }
}

impl Commands {
    /// Returns commands for a kernel setting.
    pub(super) fn sysctl(key: &str, value: impl std::fmt::Display) -> Self {
        Self {
            now: vec![format!("sysctl -w {key}='{value}'")],
            permanent: vec![format!("echo '{key} = {value}' >> {SYSCTL_FILE}")],
        }
    }

    /// Returns commands for a process limit: `ulimit`'s letter, the name in limits.conf(5), and
    /// systemd's setting.
    pub(super) fn process_limit(letter: char, name: &str, setting: &str, value: u64) -> Self {
        Self {
            now: vec![
                format!(
                    "ulimit -{letter} {value}    # in the shell that starts the program; beyond \
                     the hard limit as root"
                ),
                format!("prlimit --pid PID --{name}={value}    # for one that runs"),
            ],
            permanent: vec![
                format!("echo '* - {name} {value}' >> {LIMITS_FILE}    # for those who log in"),
                format!("{setting}={value}    # in [Service] of the systemd unit"),
            ],
        }
    }

    /// Returns commands for a cgroup limit.
    pub(super) fn group(file: &Path, value: u64, setting: &str, docker: &str) -> Self {
        Self {
            now: vec![format!("echo {value} > {}", file.display())],
            permanent: vec![
                format!("{setting}={value}    # in [Service] of the systemd unit"),
                format!("docker run {docker}={value} …    # for a container"),
            ],
        }
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        self.now.extend(other.now);
        self.permanent.extend(other.permanent);
        self
    }
}

/// Returns a round number that leaves the reserve: the next power of two.
pub(super) fn rounded_up(needed: u64) -> u64 {
    let reserve = (needed as f64 * RESERVE) as u64;
    needed.saturating_add(reserve).checked_next_power_of_two().unwrap_or(u64::MAX)
}

/// Returns a rate rounded down to a whole number.
pub(super) fn whole(rate: f64) -> u64 {
    rate.max(0.0) as u64
}
