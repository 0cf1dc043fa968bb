//! Runs plants, counts what was said of each, prints the matrix.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::plants::{PLANTS, Plant};
use super::quiet;

/// A confidence that a reader takes for a certainty.
const CONFIDENT: f64 = 0.8;
/// A run that takes longer is ended.
const RUN_MAX: Duration = Duration::from_secs(60);
const GENERATOR: &str = "Generator";

/// What is asked of `hotrow load` beside the plant.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Manner {
    pub(crate) measured_ms: u64,
    pub(crate) warmup_ms: u64,
    /// Whether the verdict is tested by a change.
    pub(crate) prove: bool,
}

/// What one run said.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) plant: &'static str,
    pub(crate) planted: &'static str,
    pub(crate) named: String,
    confidence: f64,
    /// `confirmed`, `refuted`, `not testable`, or none where it was not tried.
    proof: Option<String>,
    throughput_rps: f64,
    took_s: f64,
    /// Whether nobody else used the machine shortly before and after, and the hypervisor took little of it meanwhile.
    pub(crate) undisturbed: bool,
    /// All that was said, as `hotrow load --json` has it.
    pub(crate) diagnosis: Value,
    generator: Value,
}

impl Run {
    pub(crate) fn right(&self) -> bool {
        self.named == self.planted
    }

    /// Named without being planted, or planted and something else named as a certainty. Who else uses the machine may well be named, and
    /// may well hold the generator up: of a disturbed run nothing is said.
    pub(crate) fn confidently_wrong_about_the_generator(&self) -> bool {
        let sure = match self.proof.as_deref() {
            Some("confirmed") => true,
            Some("refuted") => false,
            _ => self.confidence >= CONFIDENT,
        };
        self.undisturbed && sure && !self.right() && (self.named == GENERATOR || self.planted == GENERATOR)
    }
}

/// Why a run said nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It cannot be planted here.
    NotPlanted(String),
    /// It was planted, and `hotrow load` gave no report.
    NoReport(String),
}

/// Plants, loads, and hears the verdict.
///
/// # Errors
/// Why there is none.
pub(crate) fn run(plant: &Plant, manner: Manner) -> Result<Run, Trouble> {
    let begun = Instant::now();
    let planted = (plant.plant)().map_err(Trouble::NotPlanted)?;
    let (duration, warmup) = (format!("{}ms", manner.measured_ms), format!("{}ms", manner.warmup_ms));
    let mut words = vec!["--duration", &duration, "--warmup", &warmup, "--timeout=2s", "--json", "-q"];
    words.extend(manner.prove.then_some("--prove"));
    let output = output(planted.load(&words), RUN_MAX).map_err(Trouble::NoReport)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let no_report = |e| Trouble::NoReport(format!("{e}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    let report: Value = serde_json::from_str(&text).map_err(no_report)?;
    let verdict = &report["diagnosis"]["verdict"];
    let first = if verdict.is_object() { verdict } else { &report["diagnosis"]["findings"][0] };
    let proof = first["proof"].as_str().map(str::to_owned);
    // What its own trials refute is not named, though it were the truth.
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

fn output(mut command: std::process::Command, longest: Duration) -> Result<std::process::Output, String> {
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

/// What all runs said.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Matrix {
    pub(crate) runs: Vec<Run>,
    /// Runs that were disturbed by others or the hypervisor, and repeated; not counted.
    pub(crate) repeated: Vec<Run>,
    /// Plants that could not be planted here, and why.
    pub(crate) not_run: BTreeMap<&'static str, String>,
    /// Runs that gave no report: the plant, and why.
    pub(crate) failed: Vec<(&'static str, String)>,
}

impl Matrix {
    /// Runs a plant once, when the machine is left alone or the patience is at its end.
    pub(crate) fn add(&mut self, plant: &Plant, manner: Manner, patience: &mut Duration) {
        let quiet_before = quiet::wait(patience);
        let stolen = quiet::Stolen::since_now();
        match run(plant, manner) {
            Ok(mut run) => {
                run.undisturbed = quiet_before && !stolen.much() && quiet::now();
                println!("{}", line(&run));
                self.runs.push(run);
            }
            Err(Trouble::NotPlanted(why)) => {
                println!("{:<22} not run: {why}", plant.name);
                self.not_run.insert(plant.name, why);
            }
            Err(Trouble::NoReport(why)) => {
                println!("{:<22} FAILED: {why}", plant.name);
                self.failed.push((plant.name, why));
            }
        }
    }

    /// Runs a plant once, and again while it is disturbed, so many times.
    pub(crate) fn add_undisturbed(&mut self, plant: &Plant, manner: Manner, patience: &mut Duration, repeats: u32) {
        for _ in 0..repeats {
            let before = self.runs.len();
            self.add(plant, manner, patience);
            if self.runs.len() == before {
                return;
            }
            match self.runs.pop_if(|run| !run.undisturbed && run.plant == plant.name) {
                Some(disturbed) => self.repeated.push(disturbed),
                None => return,
            }
        }
        self.add(plant, manner, patience);
    }

    /// Runs that named what was planted.
    pub(crate) fn right(&self) -> usize {
        self.runs.iter().filter(|run| run.right()).count()
    }

    pub(crate) fn confidently_wrong_about_the_generator(&self) -> Vec<&Run> {
        self.runs.iter().filter(|run| run.confidently_wrong_about_the_generator()).collect()
    }

    /// Rows are what was planted, columns what was named.
    pub(crate) fn table(&self) -> String {
        let columns: Vec<&str> = PLANTS.iter().map(|plant| plant.class).collect();
        let named: BTreeMap<&str, ()> = self.runs.iter().map(|run| (run.named.as_str(), ())).collect();
        let more = named.keys().copied().filter(|name| !columns.contains(name));
        let columns: Vec<&str> = columns.iter().copied().chain(more).collect();
        let mut text = format!("| planted | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
        for plant in &PLANTS {
            let cells = columns.iter().map(|column| {
                let count = self.runs.iter().filter(|run| run.plant == plant.name && run.named == *column).count();
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

    /// One line that sums up.
    pub(crate) fn sum(&self) -> String {
        let (right, all) = (self.right(), self.runs.len());
        let wrong = self.confidently_wrong_about_the_generator().len();
        let disturbed = self.runs.iter().filter(|run| !run.undisturbed).count();
        let plants = PLANTS.len() - self.not_run.len();
        let judged =
            PLANTS.iter().filter(|plant| self.runs.iter().any(|run| run.undisturbed && run.plant == plant.name));
        format!(
            "{right} of {all} runs of {plants} planted bottlenecks named what was planted ({:.1} %); {wrong} were \
             confidently wrong about the generator; {disturbed} were \
             disturbed by others, and {} more that were are repeated and not counted; {} gave no report; judged undisturbed: {} of {}",
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
    let all: Vec<String> =
        first.as_array().into_iter().flatten().map(|f| format!("{} {}", f["class"], f["confidence"])).collect();
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

fn said(named: &str, undisturbed: bool) -> Run {
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
    let runs = vec![said(GENERATOR, false), said(GENERATOR, true), said(PLANTS[0].class, true)];
    let matrix = Matrix { runs, failed: vec![(PLANTS[1].name, "no JSON".to_owned())], ..Matrix::default() };
    assert_eq!(matrix.confidently_wrong_about_the_generator().len(), 1);
    let sum = matrix.sum();
    assert!(sum.ends_with(&format!("1 gave no report; judged undisturbed: 1 of {}", PLANTS.len())), "{sum}");
}
