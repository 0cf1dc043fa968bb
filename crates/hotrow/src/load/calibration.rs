//! `hotrow load --calibrate`: measures what the generator can do on this machine, keeps it, and tells later runs how much of it
//! they used.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hotrow_diagnose::probe::cpuinfo;
use hotrow_diagnose::root::Root;
use hotrow_load::calibrate::{Calibration, Speed};
use hotrow_load::outcome::Outcome;
use hotrow_load::plan::Pace;
use hotrow_load::run::Config;
use serde::{Deserialize, Serialize};

use super::text::counted;

/// Version of the file's shape; a file of another is started anew.
const FILE_SCHEMA: &str = "hotrow.calibrations/1";
/// Version of the shape of what `--calibrate --json` prints.
const SCHEMA: &str = "hotrow.calibration/1";
/// Calibrations that are kept; the oldest goes first.
const ENTRIES_MAX: usize = 16;
/// A larger file is none of ours, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// What a calibration holds for: the same processor, system and program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    cpu_model: String,
    kernel: String,
    /// Version and size of the program: two builds of one version differ.
    program: String,
}

/// One calibration as it is kept and printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    machine: Machine,
    calibrated: String,
    threads: usize,
    connections: usize,
    closed: Rates,
    open: Rates,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Rates {
    ceiling_rps_per_thread: f64,
    cpu_us_per_request: f64,
    measured_rps: f64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    schema: String,
    entries: Vec<Entry>,
}

/// How much of its ceiling the generator used in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Headroom {
    /// 0 to 1; beyond 1 when the calibration was disturbed.
    pub(super) used_share: f64,
    pub(super) ceiling_rps_per_thread: f64,
    pub(super) calibrated: String,
}

impl Machine {
    /// This one.
    pub(super) fn here() -> Self {
        let program_bytes = std::env::current_exe().and_then(fs::metadata).map_or(0, |m| m.len());
        Self {
            cpu_model: Root::machine().parse(cpuinfo::FILE, cpuinfo::parse).unwrap_or_else(|_| "unknown".to_owned()),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            program: format!("{} ({program_bytes} bytes)", env!("CARGO_PKG_VERSION")),
        }
    }
}

impl Entry {
    pub(super) fn new(found: &Calibration, machine: Machine, at: SystemTime) -> Self {
        Self {
            machine,
            calibrated: date(at),
            threads: found.threads,
            connections: found.connections,
            closed: Rates::of(&found.closed),
            open: Rates::of(&found.open),
        }
    }

    /// What a run used of it; none when the run was of a kind that was not calibrated.
    pub(super) fn headroom(&self, config: &Config, outcome: &Outcome) -> Option<Headroom> {
        let rates = match config.plan.pace {
            Pace::Closed => &self.closed,
            Pace::Open { .. } => &self.open,
        };
        let calibrated = config.keepalive && config.pipeline == 1 && config.tls.is_none();
        let all_threads_rps = rates.ceiling_rps_per_thread * config.threads as f64;
        (calibrated && all_threads_rps > 0.0).then(|| Headroom {
            used_share: outcome.throughput_rps() / all_threads_rps,
            ceiling_rps_per_thread: rates.ceiling_rps_per_thread,
            calibrated: self.calibrated.clone(),
        })
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{}, {}, against a null server in this process\n\n  {:<12}{:>28}{:>18}{:>28}\n",
            counted(self.threads, "thread"),
            counted(self.connections, "connection"),
            "",
            "ceiling, one thread",
            "CPU per request",
            "measured, all threads"
        );
        for (name, rates) in [("closed loop", &self.closed), ("open loop", &self.open)] {
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "  {name:<12}{:>17.0} requests/s{:>15.2} µs{:>17.0} requests/s",
                rates.ceiling_rps_per_thread, rates.cpu_us_per_request, rates.measured_rps
            );
        }
        out.push_str(
            "\n  Generator and server shared the machine's cores while this was measured. The ceiling is what one thread can do with\n  \
             a core of its own, worked out from its CPU time; larger answers, TLS and new connections cost more.",
        );
        out
    }

    pub(super) fn json(&self) -> String {
        #[derive(Serialize)]
        struct Report<'a> {
            schema: &'static str,
            #[serde(flatten)]
            entry: &'a Entry,
        }
        // Plain data with text keys: nothing in it can fail to serialize. An error would still be told, not hidden.
        serde_json::to_string(&Report { schema: SCHEMA, entry: self })
            .unwrap_or_else(|e| format!("{{\"schema\":\"{SCHEMA}\",\"error\":\"{e}\"}}"))
    }
}

impl Rates {
    fn of(speed: &Speed) -> Self {
        let rounded = |value: f64, factor: f64| (value * factor).round() / factor;
        Self {
            ceiling_rps_per_thread: rounded(speed.ceiling_per_thread(), 1.0),
            cpu_us_per_request: rounded(speed.cpu_us_per_request, 1e3),
            measured_rps: rounded(speed.answers_per_s, 1.0),
        }
    }
}

/// Where calibrations are kept: the XDG base directory specification's place for caches. None without a home.
pub(super) fn file(var: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let folder = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("hotrow/calibration.json"))
}

/// The calibration of this machine. A file that is missing or not ours holds none.
pub(super) fn find(file: &Path, machine: &Machine) -> Option<Entry> {
    read(file).into_iter().find(|entry| entry.machine == *machine)
}

/// Keeps a calibration; one of the same machine is replaced.
pub(super) fn keep(file: &Path, entry: &Entry) -> io::Result<()> {
    let mut entries = read(file);
    entries.retain(|kept| kept.machine != entry.machine);
    entries.push(entry.clone());
    entries.drain(..entries.len().saturating_sub(ENTRIES_MAX));
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    // Another process may read or write it meanwhile: whoever renames last wins, and nobody sees half a file.
    let draft = folder.join(format!("calibration.{}.draft", std::process::id()));
    let written = fs::File::create(&draft).and_then(|mut out| {
        serde_json::to_writer_pretty(&mut out, &Kept { schema: FILE_SCHEMA.to_owned(), entries })?;
        out.write_all(b"\n")
    });
    written.and_then(|()| fs::rename(&draft, file)).inspect_err(|_| {
        // The error is told; the draft may never have been made.
        let _ = fs::remove_file(&draft);
    })
}

fn read(file: &Path) -> Vec<Entry> {
    let fits = fs::metadata(file).is_ok_and(|m| m.is_file() && m.len() <= FILE_BYTES_MAX);
    let kept =
        fits.then(|| fs::read(file).ok()).flatten().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
    kept.filter(|kept| kept.schema == FILE_SCHEMA).map_or_else(Vec::new, |kept| kept.entries)
}

/// The day in UTC, as 2026-11-21. The calendar is worked out in eras of 400 years that begin on the first of March.
fn date(at: SystemTime) -> String {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    const ERA_DAYS: u64 = 146_097;
    /// From 0000-03-01 to 1970-01-01.
    const EPOCH_DAYS: u64 = 719_468;
    let days = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / DAY.as_secs() + EPOCH_DAYS;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day_of_month:02}", era * 400 + year + next_year)
}

#[cfg(test)]
mod tests;
