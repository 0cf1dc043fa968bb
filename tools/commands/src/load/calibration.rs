//! `hotrow load --calibrate`: measures the generator's maximum on this machine and saves it; later
//! runs report the share that they used.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hotrow_diagnose::probe::cpu;
use hotrow_diagnose::root::Root;
use hotrow_load::calibrate::{Calibration, LoopSpeed};
use hotrow_load::outcome::Outcome;
use hotrow_load::plan::LoadModel;
use hotrow_load::run::Config;
use hotrow_measure::calendar::iso_date;
use hotrow_transport::tls::HttpVersion;
use serde::{Deserialize, Serialize};

use hotrow_load::format::{counted, grouped};

/// Version of the file's shape; a file with another version is replaced.
const FILE_SCHEMA: &str = "hotrow.calibrations/1";
/// Version of the shape of `--calibrate --json`.
const SCHEMA: &str = "hotrow.calibration/1";
/// Most calibrations saved; the oldest is removed first.
const ENTRIES_MAX: usize = 16;
/// Larger files are ignored, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The validity of a calibration: the same processor, system and program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    cpu_model: String,
    kernel: String,
    /// Version and size of the program, because two builds of one version differ.
    program: String,
}

/// A calibration as saved and printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    machine: Machine,
    calibrated: String,
    threads: usize,
    connections: usize,
    closed: LoopRates,
    open: LoopRates,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LoopRates {
    ceiling_rps_per_thread: f64,
    cpu_us_per_request: f64,
    measured_rps: f64,
}

#[derive(Debug, Serialize, Deserialize)]
struct CalibrationFile {
    schema: String,
    entries: Vec<Entry>,
}

/// The share of its ceiling that the generator used in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Headroom {
    /// 0 to 1; above 1 when the calibration was disturbed.
    pub(super) used_share: f64,
    pub(super) ceiling_rps_per_thread: f64,
    pub(super) calibrated: String,
}

impl Machine {
    pub(super) fn here() -> Self {
        let program_bytes = std::env::current_exe().and_then(fs::metadata).map_or(0, |m| m.len());
        Self {
            cpu_model: Root::machine()
                .parse(cpu::CPUINFO_FILE, cpu::parse_model)
                .unwrap_or_else(|_| "unknown".to_owned()),
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
            closed: LoopRates::of(&found.closed),
            open: LoopRates::of(&found.open),
        }
    }

    /// Returns the share that a run used; `None` for a kind of run without calibration.
    pub(super) fn headroom(&self, config: &Config, outcome: &Outcome) -> Option<Headroom> {
        let rates = match config.plan.model {
            LoadModel::Closed => &self.closed,
            LoadModel::Open { .. } => &self.open,
        };
        let calibrated = config.keepalive
            && config.depth == 1
            && config.version == HttpVersion::Http1
            && config.tls.is_none();
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
                "  {name:<12}{:>17} requests/s{:>15.2} µs{:>17} requests/s",
                grouped(rates.ceiling_rps_per_thread),
                rates.cpu_us_per_request,
                grouped(rates.measured_rps)
            );
        }
        out.push_str(
            "\n  Generator and server shared the machine's cores while this was measured. The \
             ceiling is what one thread can do with\n  \
             a core of its own, computed from its CPU time; larger answers, TLS and new \
             connections cost more.",
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
        // Plain data with text keys always serializes; an error would still be printed.
        serde_json::to_string(&Report { schema: SCHEMA, entry: self })
            .unwrap_or_else(|e| format!("{{\"schema\":\"{SCHEMA}\",\"error\":\"{e}\"}}"))
    }
}

impl LoopRates {
    fn of(speed: &LoopSpeed) -> Self {
        let rounded = |value: f64, factor: f64| (value * factor).round() / factor;
        Self {
            ceiling_rps_per_thread: rounded(speed.ceiling_per_thread(), 1.0),
            cpu_us_per_request: rounded(speed.cpu_us_per_request, 1e3),
            measured_rps: rounded(speed.answers_per_s, 1.0),
        }
    }
}

/// Returns the calibration file in the cache folder of the XDG base directory specification; `None`
/// without a home folder.
pub(super) fn file(var: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let folder = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("hotrow/calibration.json"))
}

/// Returns this machine's calibration. A missing or foreign file has none.
pub(super) fn find(file: &Path, machine: &Machine) -> Option<Entry> {
    read(file).into_iter().find(|entry| entry.machine == *machine)
}

/// Saves a calibration, replacing that of the same machine.
pub(super) fn save(file: &Path, entry: &Entry) -> io::Result<()> {
    let mut entries = read(file);
    entries.retain(|kept| kept.machine != entry.machine);
    entries.push(entry.clone());
    entries.drain(..entries.len().saturating_sub(ENTRIES_MAX));
    fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
    // Another process may access the file: the last rename wins, and no reader sees half a file.
    let kept = CalibrationFile { schema: FILE_SCHEMA.to_owned(), entries };
    let text = serde_json::to_string_pretty(&kept)? + "\n";
    hotrow_report::file::replace(file, &text).map_err(|failed| failed.error)
}

fn read(file: &Path) -> Vec<Entry> {
    let fits = fs::metadata(file).is_ok_and(|m| m.is_file() && m.len() <= FILE_BYTES_MAX);
    let kept = fits
        .then(|| fs::read(file).ok())
        .flatten()
        .and_then(|bytes| serde_json::from_slice::<CalibrationFile>(&bytes).ok());
    kept.filter(|kept| kept.schema == FILE_SCHEMA).map_or_else(Vec::new, |kept| kept.entries)
}

/// Returns the day in UTC, as 2026-11-21.
fn date(at: SystemTime) -> String {
    iso_date(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
}

#[cfg(test)]
mod tests;
