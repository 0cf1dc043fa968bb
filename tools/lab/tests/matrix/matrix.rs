//! Runs plants, counts the verdicts, prints the matrix.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::plants::{PLANTS, Plant};
use super::quiet;

/// Confidence that a reader takes for certainty.
const CONFIDENT: f64 = 0.8;
/// Longest run.
const RUN_MAX: Duration = Duration::from_secs(60);
const GENERATOR: &str = "Generator";

/// Options of `hotrow load` besides those of the plant.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RunOptions {
    pub(crate) measured_ms: u64,
    pub(crate) warmup_ms: u64,
    /// True if the verdict is tested by a change of the load.
    pub(crate) confirm: bool,
}

/// The result of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) plant: &'static str,
    pub(crate) planted: &'static str,
    pub(crate) named: String,
    confidence: f64,
    /// `confirmed`, `refuted`, `inconclusive`, or `None` without a test.
    proof: Option<String>,
    throughput_rps: f64,
    took_s: f64,
    /// True if the machine was otherwise idle shortly before and after, and little CPU time was
    /// stolen.
    pub(crate) undisturbed: bool,
    /// The complete report of `hotrow load --json`.
    pub(crate) diagnosis: Value,
    generator: Value,
}

impl Run {
    pub(crate) fn right(&self) -> bool {
        self.named == self.planted
    }

    /// Returns true for a confident verdict that wrongly names the generator or wrongly names
    /// another class. Disturbed runs are not judged, because other processes may be the limit or
    /// delay the generator.
    pub(crate) fn confidently_wrong_about_the_generator(&self) -> bool {
        let sure = match self.proof.as_deref() {
            Some("confirmed") => true,
            Some("refuted") => false,
            _ => self.confidence >= CONFIDENT,
        };
        self.undisturbed
            && sure
            && !self.right()
            && (self.named == GENERATOR || self.planted == GENERATOR)
    }
}

/// Reason for a run without a result.
#[derive(Debug)]
pub(crate) enum NoResult {
    /// The bottleneck cannot be planted here.
    NotPlanted(String),
    /// `hotrow load` returned no report.
    NoReport(String),
}

/// Plants a bottleneck, loads it, and returns the verdict.
///
/// # Errors
/// Returns the reason for a missing verdict.
pub(crate) fn run(plant: &Plant, options: RunOptions) -> Result<Run, NoResult> {
    let begun = Instant::now();
    let planted = (plant.plant)().map_err(NoResult::NotPlanted)?;
    let duration = format!("{}ms", options.measured_ms);
    let warmup = format!("{}ms", options.warmup_ms);
    let mut words =
        vec!["--duration", &duration, "--warmup", &warmup, "--timeout=2s", "--json", "-q"];
    words.extend(options.confirm.then_some("--confirm"));
    let output = output(planted.load(&words), RUN_MAX).map_err(NoResult::NoReport)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let no_report =
        |e| NoResult::NoReport(format!("{e}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    let report: Value = serde_json::from_str(&text).map_err(no_report)?;
    let verdict = &report["diagnosis"]["verdict"];
    let first = if verdict.is_object() { verdict } else { &report["diagnosis"]["findings"][0] };
    let proof = first["conclusion"].as_str().map(str::to_owned);
    // A class that its own trials refuted does not count as named, even if it was planted.
    let class = if proof.as_deref() == Some("refuted") { None } else { first["class"].as_str() };
    Ok(Run {
        plant: plant.name,
        planted: plant.class,
        named: class.unwrap_or("nothing").to_owned(),
        confidence: first["confidence"].as_f64().unwrap_or(0.0),
        proof,
        throughput_rps: report["throughput_rps"].as_f64().unwrap_or(0.0),
        took_s: begun.elapsed().as_secs_f64(),
        undisturbed: true,
        diagnosis: report["diagnosis"].clone(),
        generator: report["generator"].clone(),
    })
}

fn output(
    mut command: std::process::Command,
    longest: Duration,
) -> Result<std::process::Output, String> {
    use std::process::Stdio;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|e| format!("hotrow load does not start: {e}"))?;
    let pid = rustix::process::Pid::from_child(&child);
    let (over, ended) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if ended.recv_timeout(longest) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let output = child.wait_with_output().map_err(|e| e.to_string());
    drop(over);
    let _ = guard.join();
    output
}

/// The results of all runs.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Matrix {
    pub(crate) runs: Vec<Run>,
    /// Disturbed runs, which were repeated and are not counted.
    pub(crate) repeated: Vec<Run>,
    /// Plants that could not be planted here, with the reason.
    pub(crate) not_run: BTreeMap<&'static str, String>,
    /// Runs without a report: plant and reason.
    pub(crate) failed: Vec<(&'static str, String)>,
}

impl Matrix {
    /// Runs a plant once, after the machine is idle or the wait is used up.
    pub(crate) fn add(&mut self, plant: &Plant, options: RunOptions, wait_left: &mut Duration) {
        let quiet_before = quiet::wait(wait_left);
        let stolen = quiet::Stolen::since_now();
        match run(plant, options) {
            Ok(mut run) => {
                run.undisturbed = quiet_before && !stolen.is_disturbing() && quiet::now();
                println!("{}", line(&run));
                self.runs.push(run);
            }
            Err(NoResult::NotPlanted(why)) => {
                println!("{:<22} not run: {why}", plant.name);
                self.not_run.insert(plant.name, why);
            }
            Err(NoResult::NoReport(why)) => {
                println!("{:<22} FAILED: {why}", plant.name);
                self.failed.push((plant.name, why));
            }
        }
    }

    /// Runs a plant once, and repeats it while the run is disturbed, at most `repeats` times.
    pub(crate) fn add_undisturbed(
        &mut self,
        plant: &Plant,
        options: RunOptions,
        wait_left: &mut Duration,
        repeats: u32,
    ) {
        for _ in 0..repeats {
            let before = self.runs.len();
            self.add(plant, options, wait_left);
            if self.runs.len() == before {
                return;
            }
            match self.runs.pop_if(|run| !run.undisturbed && run.plant == plant.name) {
                Some(disturbed) => self.repeated.push(disturbed),
                None => return,
            }
        }
        self.add(plant, options, wait_left);
    }

    /// Returns the number of runs that named the planted bottleneck.
    pub(crate) fn right(&self) -> usize {
        self.runs.iter().filter(|run| run.right()).count()
    }

    pub(crate) fn confidently_wrong_about_the_generator(&self) -> Vec<&Run> {
        self.runs.iter().filter(|run| run.confidently_wrong_about_the_generator()).collect()
    }

    /// Returns a Markdown table: rows are planted, columns are named.
    pub(crate) fn table(&self) -> String {
        let columns: Vec<&str> = PLANTS.iter().map(|plant| plant.class).collect();
        let named: BTreeMap<&str, ()> =
            self.runs.iter().map(|run| (run.named.as_str(), ())).collect();
        let more = named.keys().copied().filter(|name| !columns.contains(name));
        let columns: Vec<&str> = columns.iter().copied().chain(more).collect();
        let mut text = format!(
            "| planted | {} |\n|---|{}\n",
            columns.join(" | "),
            "---|".repeat(columns.len())
        );
        for plant in &PLANTS {
            let cells = columns.iter().map(|column| {
                let count = self
                    .runs
                    .iter()
                    .filter(|run| run.plant == plant.name && run.named == *column)
                    .count();
                match (count, *column == plant.class) {
                    (0, _) => String::new(),
                    (count, true) => format!("**{count}**"),
                    (count, false) => count.to_string(),
                }
            });
            let cells: Vec<String> = cells.collect();
            let _ = writeln!(text, "| {} | {} |", plant.name, cells.join(" | "));
        }
        text
    }

    /// Returns a one-line summary.
    pub(crate) fn sum(&self) -> String {
        let right = self.right();
        let all = self.runs.len();
        let wrong = self.confidently_wrong_about_the_generator().len();
        let disturbed = self.runs.iter().filter(|run| !run.undisturbed).count();
        let plants = PLANTS.len() - self.not_run.len();
        let judged = PLANTS
            .iter()
            .filter(|plant| self.runs.iter().any(|run| run.undisturbed && run.plant == plant.name));
        format!(
            "{right} of {all} runs of {plants} planted bottlenecks named what was planted \
             ({:.1} %); {wrong} were confidently wrong about the generator; {disturbed} were \
             disturbed by other processes, and {} more disturbed runs were repeated and not \
             counted; {} had no report; judged undisturbed: {} of {}",
            100.0 * right as f64 / all.max(1) as f64,
            self.repeated.len(),
            self.failed.len(),
            judged.count(),
            PLANTS.len()
        )
    }
}

fn line(run: &Run) -> String {
    let mark = if run.right() { "right" } else { "WRONG" };
    let first = &run.diagnosis["findings"];
    let all: Vec<String> = first
        .as_array()
        .into_iter()
        .flatten()
        .map(|f| format!("{} {}", f["class"], f["confidence"]))
        .collect();
    format!(
        "{:<22} {mark}{}: {} ({:.2}{}) at {:.0}/s in {:.1} s; found {}",
        run.plant,
        if run.undisturbed { "" } else { " (disturbed)" },
        run.named,
        run.confidence,
        run.proof.as_ref().map(|proof| format!(", {proof}")).unwrap_or_default(),
        run.throughput_rps,
        run.took_s,
        all.join(", ").replace('"', "")
    )
}

fn run_that_named(named: &str, undisturbed: bool) -> Run {
    Run {
        plant: PLANTS[0].name,
        planted: PLANTS[0].class,
        named: named.to_owned(),
        confidence: 0.95,
        proof: None,
        throughput_rps: 100.0,
        took_s: 1.0,
        undisturbed,
        diagnosis: Value::Null,
        generator: Value::Null,
    }
}

#[test]
fn only_undisturbed_runs_are_judged() {
    let runs = vec![
        run_that_named(GENERATOR, false),
        run_that_named(GENERATOR, true),
        run_that_named(PLANTS[0].class, true),
    ];
    let matrix =
        Matrix { runs, failed: vec![(PLANTS[1].name, "no JSON".to_owned())], ..Matrix::default() };
    assert_eq!(matrix.confidently_wrong_about_the_generator().len(), 1);
    let sum = matrix.sum();
    assert!(
        sum.ends_with(&format!("1 had no report; judged undisturbed: 1 of {}", PLANTS.len())),
        "{sum}"
    );
}
