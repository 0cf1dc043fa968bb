//! `hotrow-lab run`.
//!
//! Reading order: [`RunArgs`], [`run`], `start` and `resume` (the experiment and its folder),
//! `folder_default`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use hotrow_lab::experiment::{
    self, ConfigError, Experiment, FILE_BYTES_MAX, Overrides, SHIPPED, Shipped, find_shipped,
};
use hotrow_lab::run::store::{RunRequest, Store, StoredRun};
use hotrow_lab::run::{self as runner, RunOptions, RunOutcome};
use hotrow_lab::workloads::find_elsewhere;
use hotrow_results::{Results, SCHEMA};

use super::progress::ProgressDisplay;
use super::{LabError, time_in_names};
use hotrow_cli::output::print_line;
use hotrow_cli::{Exit, signals};
use hotrow_trial::bottleneck_text;

/// Arguments of `lab run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A built-in experiment (see `hotrow-lab list`), or the file of your own
    #[arg(value_name = "NAME|FILE", required_unless_present = "resume")]
    experiment: Option<String>,
    /// Folder for results and report [default: lab-results/NAME-YYYYMMDD-HHMMSS]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Rounds; overrides the file
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    rounds: Option<u32>,
    /// Length of each measurement, as in 500ms, 10s, 5m; overrides the file
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "resume")]
    duration: Option<Duration>,
    /// Only these deployments
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "resume")]
    only: Vec<String>,
    /// One short round, as a functional check; its figures mean little
    #[arg(long, conflicts_with = "resume")]
    quick: bool,
    /// Seed of the order of deployments and of the requested ids
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "resume")]
    seed: u64,
    /// Resume an interrupted run
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Show a line per measurement instead of a bar
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
}

const RESUMED: &str = "The run was interrupted and resumed later; the machine may have differed \
    between the rounds before and after.";

/// A run that can start or be resumed.
struct Prepared {
    experiment: Experiment,
    results: Results,
    store: Store,
    request: RunRequest,
}

/// Returns the server's program: the one beside `program`, else the one that the system finds on
/// the path. Starting it reports an error when there is none.
fn beside_or_on_path(program: &Path) -> PathBuf {
    let beside = program.with_file_name("hotrow");
    if beside.is_file() { beside } else { PathBuf::from("hotrow") }
}

pub(crate) fn run(args: &RunArgs) -> Result<Exit, LabError> {
    let stop = signals::stop_flag().map_err(LabError::Signals)?;
    let program = std::env::current_exe().map_err(LabError::OwnPath)?;
    let hotrow = beside_or_on_path(&program);
    let Prepared { experiment, mut results, store, request } = match &args.resume {
        Some(folder) => resume(args, folder)?,
        None => start(args)?,
    };
    let resumed = args.resume.is_some() && !results.measurements.is_empty();
    let mut warnings = Vec::new();
    warnings.extend(request.overrides.quick.then(|| quick(&experiment)));
    warnings.extend(resumed.then(|| RESUMED.to_owned()));
    let options = RunOptions {
        program,
        hotrow,
        seed: request.seed,
        stop,
        verdict: bottleneck_text::sentence,
        warnings,
    };
    let mut display = ProgressDisplay::new(args.quiet, args.verbose);
    let ended = runner::run(&experiment, &mut results, &store, &options, &mut |progress| {
        display.show_progress(progress)
    });
    display.clear();
    let folder = store.folder().display();
    let ended =
        ended.map_err(|error| LabError::Run { error, folder: store.folder().to_owned() })?;
    let exit = match ended {
        RunOutcome::Interrupted => {
            print_line(
                std::io::stderr(),
                &format!("interrupted; resume with: hotrow-lab run --resume {folder}"),
            );
            Exit::Interrupted
        }
        RunOutcome::Complete { failed: 0 } => Exit::Fine,
        RunOutcome::Complete { failed } => {
            let measured = results.measurements.len();
            print_line(
                std::io::stderr(),
                &format!(
                    "{failed} of {measured} measurements failed; see the report for the reasons"
                ),
            );
            Exit::Failed
        }
    };
    let missed = report(store.folder())?;
    Ok(if missed > 0 && exit == Exit::Fine { Exit::Failed } else { exit })
}

/// Returns the warning of a quick run, with what it measured.
fn quick(experiment: &Experiment) -> String {
    format!(
        "A quick run: {}, as a functional check; its figures mean little.",
        runner::extent::words(experiment)
    )
}

/// Writes and prints the report so far; returns the number of goals that were missed.
fn report(folder: &Path) -> Result<usize, LabError> {
    let written = hotrow_lab::report::write(folder)?;
    super::print(&written.summary())?;
    Ok(written.goals_missed)
}

fn start(args: &RunArgs) -> Result<Prepared, LabError> {
    // clap requires one of the two.
    let name_or_file = args.experiment.as_deref().unwrap_or_default();
    let Text { name, file, text, folder } = text(name_or_file)?;
    let overrides = Overrides {
        rounds: args.rounds,
        duration_s: args.duration.map(|duration| duration.as_secs_f64()),
        only: args.only.clone(),
        quick: args.quick,
    };
    let experiment = Experiment::parse(&name, &file, &text, &folder, &overrides)?;
    let request = RunRequest { name: name.clone(), folder, overrides, seed: args.seed };
    let out = args.out.clone().unwrap_or_else(|| folder_default(&name, SystemTime::now()));
    let store = Store::create(&out, &text, &request)?;
    let results = empty_results(&experiment);
    Ok(Prepared { experiment, results, store, request })
}

fn resume(args: &RunArgs, folder: &Path) -> Result<Prepared, LabError> {
    let StoredRun { store, text: stored, request, results } = Store::open(folder)?;
    if let Some(name_or_file) = &args.experiment {
        let named = text(name_or_file)?;
        if named.text != stored {
            return Err(LabError::Changed { file: named.file, folder: folder.to_owned() });
        }
    }
    let file = store.folder().join("experiment.toml").display().to_string();
    let experiment =
        Experiment::parse(&request.name, &file, &stored, &request.folder, &request.overrides)?;
    let results = results.unwrap_or_else(|| empty_results(&experiment));
    if results.complete {
        return Err(LabError::Complete(folder.to_owned()));
    }
    Ok(Prepared { experiment, results, store, request })
}

/// Returns results without a measurement.
fn empty_results(experiment: &Experiment) -> Results {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let durations =
        experiment.loads.iter().filter(|load| !load.background).map(|load| load.stop_condition);
    // One common length, or none.
    let mut lengths: Vec<Option<Duration>> = durations
        .map(
            |stop_condition| {
                if stop_condition.requests.is_some() { None } else { stop_condition.duration }
            },
        )
        .collect();
    lengths.dedup();
    let command: Vec<String> = std::env::args().collect();
    let mut host = hotrow_results::host::host();
    host.programs = vec![("hotrow".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    Results {
        schema: SCHEMA.to_owned(),
        experiment: experiment.info.clone(),
        command: command.join(" "),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began_unix_s: now.as_secs(),
        host,
        rounds: experiment.rounds,
        duration_s: if let [Some(length)] = lengths.as_slice() {
            Some(length.as_secs_f64())
        } else {
            None
        },
        rows: experiment.rows.iter().map(|planned| planned.row.clone()).collect(),
        measurements: Vec::new(),
        complete: false,
        warnings: Vec::new(),
    }
}

struct Text {
    name: String,
    /// Name for messages.
    file: String,
    text: String,
    /// Folder for relative file names.
    folder: PathBuf,
}

/// Reads a built-in experiment, or a file: a name with a slash or a `.toml` extension.
fn text(name_or_file: &str) -> Result<Text, LabError> {
    let path = Path::new(name_or_file);
    if !name_or_file.contains('/') && path.extension().is_none_or(|extension| extension != "toml") {
        let shipped = shipped(name_or_file)?;
        let folder = std::env::current_dir().map_err(LabError::OwnPath)?;
        let file = format!("{} (shipped)", shipped.name);
        return Ok(Text {
            name: shipped.name.to_owned(),
            file,
            text: shipped.text.to_owned(),
            folder,
        });
    }
    let file = path.display().to_string();
    let wrong = |why: String| ConfigError::whole(&file, why);
    let cannot = |e: std::io::Error| wrong(format!("cannot be read: {e}"));
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path).map_err(cannot)?;
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(
            wrong(format!("is larger than {FILE_BYTES_MAX} bytes; is it the right file?")).into()
        );
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| wrong("is not UTF-8 text; is it the right file?".to_owned()))?;
    let name = path
        .file_stem()
        .map_or_else(|| "experiment".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let folder = path.canonicalize().map_err(cannot)?;
    let folder = folder.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
    Ok(Text { name, file, text, folder })
}

/// Returns a built-in experiment by name.
pub(crate) fn shipped(name: &str) -> Result<&'static Shipped, LabError> {
    if let Some(elsewhere) = find_elsewhere(name) {
        return Err(LabError::Elsewhere(elsewhere));
    }
    find_shipped(name).ok_or_else(|| LabError::UnknownName {
        name: name.to_owned(),
        known: SHIPPED.iter().map(|shipped| shipped.name).collect::<Vec<_>>().join(", "),
    })
}

/// Returns `lab-results/NAME-YYYYMMDD-HHMMSS`, in UTC.
fn folder_default(name: &str, now: SystemTime) -> PathBuf {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Path::new("lab-results").join(format!("{name}-{}", time_in_names(since.as_secs())))
}

fn duration(text: &str) -> Result<Duration, String> {
    match experiment::duration(text)? {
        Duration::ZERO => Err("must be above zero".to_owned()),
        duration => Ok(duration),
    }
}
