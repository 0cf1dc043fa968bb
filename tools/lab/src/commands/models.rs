//! `hotrow-lab models`: the same requests through every model of request processing.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use hotrow_lab::run::store::StoreError;
use hotrow_models::harness::{self, Plan};
use hotrow_models::results::{FILE, Measured, Outcome};
use hotrow_models::undo::Undo;
use hotrow_models::work::Scale;
use hotrow_models::{
    self as models, REQUESTS_DEFAULT, REQUESTS_MAX, THREAD_PER_REQUEST, child, report,
};
use hotrow_report::text;

use super::{LabError, print, time_in_names};
use hotrow_cli::Exit;
use hotrow_cli::signals::{self, OnAbort};

/// Arguments of `lab models`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ModelsArgs {
    /// Models, or prefixes of their names (pool selects all pools) [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Describe each model in two lines
    #[arg(long)]
    list: bool,
    /// Requests per model
    #[arg(short = 'n', long, value_name = "N", default_value_t = REQUESTS_DEFAULT,
        value_parser = clap::value_parser!(u64).range(1..=REQUESTS_MAX))]
    requests: u64,
    /// Length of the sleeps relative to the published ones (0.001 to 1); below 1 for a quick run
    #[arg(long, value_name = "S", default_value = "1", value_parser = scale)]
    scale: Scale,
    /// Skip a model that cannot finish; the default
    #[arg(long, overrides_with = "no_safe")]
    safe: bool,
    /// Run it until it dies; the report states the limit
    #[arg(long, overrides_with = "safe")]
    no_safe: bool,
    /// Raise vm.max_map_count, kernel.threads-max and kernel.pid_max as a thread per request needs,
    /// for the run; needs root and affects the whole machine
    #[arg(long)]
    raise_limits: bool,
    /// Set vm.max_map_count for the run of thread-per-request, to reach this limit; needs root and
    /// affects the whole machine
    #[arg(long, value_name = "N", conflicts_with = "raise_limits",
        value_parser = clap::value_parser!(u64).range(MAP_COUNT))]
    max_map_count: Option<u64>,
    /// Do not count system calls, which takes a second run of each model
    #[arg(long)]
    no_count: bool,
    /// Folder for results and report [default: lab-results/models-YYYYMMDD-HHMMSS]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "Examples:
  hotrow-lab models --list
  hotrow-lab models
  hotrow-lab models sequential pool io-aware async --requests 20000 --scale 0.1
  hotrow-lab models thread-per-request --no-safe --requests 100000
  hotrow-lab models thread-per-request --no-safe --max-map-count 100000";

/// Accepted `vm.max_map_count`: from the kernel's default to enough for every run.
const MAP_COUNT: std::ops::RangeInclusive<u64> = 65_530..=2 * REQUESTS_MAX + 1_000_000;

/// Arguments of `lab model`.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Run request, as JSON
    #[arg(value_name = "ORDER")]
    order: String,
}

fn scale(text: &str) -> Result<Scale, String> {
    let scale = text.parse().ok().and_then(Scale::new);
    scale.ok_or_else(|| format!("must be a number between {} and 1", Scale::MIN))
}

pub(crate) fn run(args: &ModelsArgs) -> Result<Exit, LabError> {
    let cores = models::cores();
    if args.list {
        list(cores)?;
        return Ok(Exit::Fine);
    }
    let plan = plan(args, cores)?;
    let out = args.out.clone().unwrap_or_else(|| folder_default(plan.began_unix_s));
    // Before minutes of measurement, not after.
    make(&out)?;
    let undo = Undo::default();
    let at_once = undo.clone();
    let stop =
        signals::stop_flag_with(OnAbort::act(move || at_once.run())).map_err(LabError::Signals)?;
    let display = ProgressDisplay { quiet: args.quiet, line: std::io::stderr().is_terminal() };
    let results = harness::run(
        &plan,
        &stop,
        &undo,
        |name| display.begins(name),
        |measured| display.ended(measured),
    );
    let interrupted = results.models.len() < plan.models.len();
    if interrupted && results.models.is_empty() {
        return Ok(Exit::Interrupted);
    }
    let written = report::write(&out, &results)?;
    if args.json {
        // Plain data: it was serialised to a file just now.
        print(&serde_json::to_string(&results).unwrap_or_default())?;
    } else {
        print(text::render(&report::summary(&results)).trim_end())?;
        print(&format!("\n{}\n{}", written.html.display(), written.markdown.display()))?;
    }
    Ok(match results.models.iter().any(failed) {
        _ if interrupted => Exit::Interrupted,
        true => Exit::Failed,
        false => Exit::Fine,
    })
}

/// Returns whether a model failed; the death of the thread-per-request model is expected.
fn failed(measured: &Measured) -> bool {
    match measured.outcome {
        Outcome::Wrong | Outcome::Lost { .. } => true,
        Outcome::Died { .. } => measured.name != THREAD_PER_REQUEST,
        Outcome::Finished | Outcome::Refused { .. } => false,
    }
}

/// Creates the folder, which must not contain results, and checks that it is writable.
fn make(folder: &Path) -> Result<(), LabError> {
    let results = folder.join(FILE);
    let tried = folder.join(format!("{FILE}.part"));
    if results.exists() {
        return Err(LabError::HasModels(folder.to_owned()));
    }
    let made = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&tried, ""))
        .and_then(|()| std::fs::remove_file(&tried));
    made.map_err(|error| LabError::Store(StoreError::Folder(folder.to_owned(), error)))
}

/// Runs `hotrow-lab model`: one model in this process.
pub(crate) fn child(args: &ModelArgs) -> Result<Exit, LabError> {
    child::run(&args.order).map_err(LabError::Model)?;
    Ok(Exit::Fine)
}

fn list(cores: usize) -> Result<(), LabError> {
    for info in models::list(cores) {
        print(&format!("{}\n    {}\n    {}", info.name, info.lines[0], info.lines[1]))?;
    }
    Ok(())
}

fn plan(args: &ModelsArgs, cores: usize) -> Result<Plan, LabError> {
    let known =
        || models::list(cores).into_iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
    let models = models::chosen(&args.names, cores)
        .map_err(|name| LabError::UnknownModel { name, known: known() })?;
    let program = std::env::current_exe().map_err(LabError::OwnPath)?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Plan {
        program: (program, vec!["model".to_owned()]),
        models,
        requests: args.requests,
        scale: args.scale,
        cores,
        safe: args.safe || !args.no_safe,
        raise_limits: args.raise_limits,
        max_map_count: args.max_map_count,
        count_calls: !args.no_count,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        began_unix_s: began.as_secs(),
    })
}

/// Returns `lab-results/models-YYYYMMDD-HHMMSS`, in UTC.
fn folder_default(began_unix_s: u64) -> PathBuf {
    Path::new("lab-results").join(format!("models-{}", time_in_names(began_unix_s)))
}

/// Progress on standard error: a line per model, and the running one on a terminal.
struct ProgressDisplay {
    quiet: bool,
    line: bool,
}

impl ProgressDisplay {
    fn begins(&self, name: &str) {
        if self.line && !self.quiet {
            put(&format!("\r\x1b[2K{name} …"));
        }
    }

    fn ended(&self, measured: &Measured) {
        if self.quiet {
            return;
        }
        let clear = if self.line { "\r\x1b[2K" } else { "" };
        let words = match (&measured.outcome, &measured.figures, measured.throughput_tps) {
            (Outcome::Finished, Some(figures), Some(tps)) => {
                format!("{:.2} s, {tps:.0} requests/s", figures.wall_s)
            }
            (Outcome::Died { started, why, .. }, ..) => format!("died at {started} threads: {why}"),
            (Outcome::Refused { why, .. }, ..) => format!("not started: {why}"),
            (Outcome::Lost { why }, ..) => format!("no result: {why}"),
            _ => "work missing".to_owned(),
        };
        put(&format!("{clear}{}: {words}\n", measured.name));
    }
}

/// Writes to standard error, which may be closed.
fn put(text: &str) {
    let mut out = std::io::stderr();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}
