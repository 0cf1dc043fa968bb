//! `hotrow lab run`.
//!
//! Reading order: [`RunArgs`], [`run`], `begin` and `go_on` (what is to be measured, and where it is kept), `folder_default`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use hotrow_lab::experiment::shipped::{self, Shipped};
use hotrow_lab::experiment::{self, Experiment, ExperimentError, FILE_BYTES_MAX, Overrides};
use hotrow_lab::results::{Results, SCHEMA};
use hotrow_lab::run::store::{Asked, Found, Store};
use hotrow_lab::run::{self as runner, Ended, Options};

use super::progress::Watch;
use super::{LabError, utc};
use crate::cli::{Exit, tell};
use crate::load::verdict;
use crate::signals;

/// Arguments of `lab run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// A shipped experiment (see `hotrow lab list`), or the file of one's own
    #[arg(value_name = "NAME|FILE", required_unless_present = "resume")]
    experiment: Option<String>,
    /// Folder for results and report [default: lab-results/NAME-YYYYMMDD-HHMMSS]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Rounds, instead of those of the file
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    rounds: Option<u32>,
    /// Length of each measurement, instead of that of the file: 500ms, 10s, 5m
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "resume")]
    duration: Option<Duration>,
    /// Only these set-ups
    #[arg(long, value_name = "SETUP,...", value_delimiter = ',', conflicts_with = "resume")]
    only: Vec<String>,
    /// One short round, to see that everything works; the figures mean little
    #[arg(long, conflicts_with = "resume")]
    quick: bool,
    /// Seed of the order of set-ups and of the ids that are asked for
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "resume")]
    seed: u64,
    /// Go on with an interrupted run
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Show nothing until the report is written
    #[arg(short, long)]
    quiet: bool,
    /// A line for each measurement
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
}

const QUICK: &str = "A quick run: short and once, to see that everything works; its figures mean little.";
const RESUMED: &str =
    "The run was interrupted and went on later; the rounds before and after met the machine at different times.";

/// A run that can begin or go on.
struct Prepared {
    experiment: Experiment,
    results: Results,
    store: Store,
    asked: Asked,
}

pub(super) fn run(args: &RunArgs) -> Result<Exit, LabError> {
    let stop = signals::stop_flag().map_err(LabError::Signals)?;
    let hotrow = std::env::current_exe().map_err(LabError::OwnPath)?;
    let Prepared { experiment, mut results, store, asked } = match &args.resume {
        Some(folder) => go_on(args, folder)?,
        None => begin(args)?,
    };
    let resumed = args.resume.is_some() && !results.measurements.is_empty();
    let mut remarks = Vec::new();
    remarks.extend(asked.overrides.quick.then(|| QUICK.to_owned()));
    remarks.extend(resumed.then(|| RESUMED.to_owned()));
    let options = Options { hotrow, seed: asked.seed, stop, verdict: verdict::sentence, remarks };
    let mut watch = Watch::new(args.quiet, args.verbose);
    let ended = runner::run(&experiment, &mut results, &store, &options, &mut |progress| watch.told(progress));
    watch.clear();
    let folder = store.folder().display();
    let ended = ended.map_err(|error| LabError::Run { error, folder: store.folder().to_owned() })?;
    let exit = match ended {
        Ended::Interrupted => {
            tell(std::io::stderr(), &format!("interrupted; go on with: hotrow lab run --resume {folder}"));
            Exit::Interrupted
        }
        Ended::Complete { failed: 0 } => Exit::Fine,
        Ended::Complete { failed } => {
            let measured = results.measurements.len();
            tell(std::io::stderr(), &format!("{failed} of {measured} measurements failed; the report says why"));
            Exit::Failed
        }
    };
    report(store.folder())?;
    Ok(exit)
}

/// The report of what was measured until now.
fn report(folder: &Path) -> Result<(), LabError> {
    let written = hotrow_lab::report::write(folder)?;
    super::tell(&format!("{}\n\n{}\n{}", written.answer, written.html.display(), written.markdown.display()))
}

/// A new run.
fn begin(args: &RunArgs) -> Result<Prepared, LabError> {
    // clap demands one of the two.
    let asked_for = args.experiment.as_deref().unwrap_or_default();
    let Text { name, file, text, folder } = text(asked_for)?;
    let overrides = Overrides {
        rounds: args.rounds,
        duration_s: args.duration.map(|duration| duration.as_secs_f64()),
        only: args.only.clone(),
        quick: args.quick,
    };
    let experiment = Experiment::parse(&name, &file, &text, &folder, &overrides)?;
    let asked = Asked { name: name.clone(), folder, overrides, seed: args.seed };
    let out = args.out.clone().unwrap_or_else(|| folder_default(&name, SystemTime::now()));
    let store = Store::create(&out, &text, &asked)?;
    let results = fresh(&experiment);
    Ok(Prepared { experiment, results, store, asked })
}

/// An interrupted run.
fn go_on(args: &RunArgs, folder: &Path) -> Result<Prepared, LabError> {
    let Found { store, text: kept, asked, results } = Store::open(folder)?;
    if let Some(asked_for) = &args.experiment {
        let given = text(asked_for)?;
        if given.text != kept {
            return Err(LabError::Changed { file: given.file, folder: folder.to_owned() });
        }
    }
    let file = store.folder().join("experiment.toml").display().to_string();
    let experiment = Experiment::parse(&asked.name, &file, &kept, &asked.folder, &asked.overrides)?;
    let results = results.unwrap_or_else(|| fresh(&experiment));
    if results.complete {
        return Err(LabError::Complete(folder.to_owned()));
    }
    Ok(Prepared { experiment, results, store, asked })
}

/// Results without a measurement.
fn fresh(experiment: &Experiment) -> Results {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let durations = experiment.loads.iter().filter(|load| !load.background).map(|load| load.extent);
    // One length for all, or none to be told.
    let mut lengths: Vec<Option<Duration>> =
        durations.map(|extent| if extent.requests.is_some() { None } else { extent.duration }).collect();
    lengths.dedup();
    let command: Vec<String> = std::env::args().collect();
    let mut host = hotrow_lab::stage::host();
    host.programs = vec![("hotrow".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    Results {
        schema: SCHEMA.to_owned(),
        experiment: experiment.about.clone(),
        command: command.join(" "),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began_unix_s: now.as_secs(),
        host,
        rounds: experiment.rounds,
        duration_s: if let [Some(length)] = lengths.as_slice() { Some(length.as_secs_f64()) } else { None },
        rows: experiment.rows.iter().map(|planned| planned.row.clone()).collect(),
        measurements: Vec::new(),
        complete: false,
        remarks: Vec::new(),
    }
}

/// An experiment's file as it stands.
struct Text {
    name: String,
    /// For messages.
    file: String,
    text: String,
    /// Where names of files in it begin.
    folder: PathBuf,
}

/// A shipped experiment, or a file: what has a slash or ends in `.toml` is one.
fn text(asked_for: &str) -> Result<Text, LabError> {
    let path = Path::new(asked_for);
    if !asked_for.contains('/') && path.extension().is_none_or(|extension| extension != "toml") {
        let shipped = shipped(asked_for)?;
        let here = std::env::current_dir().map_err(LabError::OwnPath)?;
        let file = format!("{} (shipped)", shipped.name);
        return Ok(Text { name: shipped.name.to_owned(), file, text: shipped.text.to_owned(), folder: here });
    }
    let file = path.display().to_string();
    let wrong = |why: String| ExperimentError::whole(&file, why);
    let cannot = |e: std::io::Error| wrong(format!("cannot be read: {e}"));
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path).map_err(cannot)?;
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(format!("is larger than {FILE_BYTES_MAX} bytes; is it the right file?")).into());
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text; is it the right file?".to_owned()))?;
    let name = path.file_stem().map_or_else(|| "experiment".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let folder = path.canonicalize().map_err(cannot)?;
    let folder = folder.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
    Ok(Text { name, file, text, folder })
}

/// A shipped experiment by its name.
pub(super) fn shipped(name: &str) -> Result<&'static Shipped, LabError> {
    shipped::find(name).ok_or_else(|| LabError::UnknownName {
        name: name.to_owned(),
        known: shipped::SHIPPED.iter().map(|shipped| shipped.name).collect::<Vec<_>>().join(", "),
    })
}

/// `lab-results/NAME-YYYYMMDD-HHMMSS`, UTC.
fn folder_default(name: &str, now: SystemTime) -> PathBuf {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Path::new("lab-results").join(format!("{name}-{}", utc::compact(since.as_secs())))
}

fn duration(text: &str) -> Result<Duration, String> {
    match experiment::duration(text)? {
        Duration::ZERO => Err("must be longer than nothing".to_owned()),
        duration => Ok(duration),
    }
}
