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
    /// Whether nobody else used the machine, shortly before and after.
    pub(crate) undisturbed: bool,
    /// All that was said, as `hotrow load --json` has it.
    pub(crate) diagnosis: Value,
    generator: Value,
}

impl Run {
    pub(crate) fn right(&self) -> bool {
        self.named == self.planted
    }

    /// Named without being planted, or planted and something else named as a certainty.
    pub(crate) fn confidently_wrong_about_the_generator(&self) -> bool {
        let sure = match self.proof.as_deref() {
            Some("confirmed") => true,
            Some("refuted") => false,
            _ => self.confidence >= CONFIDENT,
        };
        // Who else uses the machine may well be named instead of a generator that was planted.
        let missed = self.planted == GENERATOR && self.undisturbed;
        sure && !self.right() && (self.named == GENERATOR || missed)
    }
}

/// Plants, loads, and hears the verdict.
///
/// # Errors
/// Why it could not be planted here.
pub(crate) fn run(plant: &Plant, manner: Manner) -> Result<Run, String> {
    let begun = Instant::now();
    let planted = (plant.plant)()?;
    let (duration, warmup) = (format!("{}ms", manner.measured_ms), format!("{}ms", manner.warmup_ms));
    let mut words = vec!["--duration", &duration, "--warmup", &warmup, "--timeout=2s", "--json", "-q"];
    words.extend(manner.prove.then_some("--prove"));
    let output = output(planted.load(&words), RUN_MAX)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| {
        panic!("{}: {e}: {text} {}", plant.name, String::from_utf8_lossy(&output.stderr));
    });
    let verdict = &report["diagnosis"]["verdict"];
    let first = if verdict.is_object() { verdict } else { &report["diagnosis"]["findings"][0] };
    Ok(Run {
        plant: plant.name,
        planted: plant.class,
        named: first["class"].as_str().unwrap_or("nothing").to_owned(),
        confidence: first["confidence"].as_f64().unwrap_or(0.0),
        proof: first["proof"].as_str().map(str::to_owned),
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
    /// Plants that could not be planted here, and why.
    pub(crate) not_run: BTreeMap<&'static str, String>,
}

impl Matrix {
    /// Runs a plant once, when the machine is left alone or the patience is at its end.
    pub(crate) fn add(&mut self, plant: &Plant, manner: Manner, patience: &mut Duration) {
        let quiet_before = quiet::wait(patience);
        match run(plant, manner) {
            Ok(mut run) => {
                run.undisturbed = quiet_before && quiet::now();
                println!("{}", line(&run));
                self.runs.push(run);
            }
            Err(why) => {
                println!("{:<22} not run: {why}", plant.name);
                self.not_run.insert(plant.name, why);
            }
        }
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
        format!(
            "{right} of {all} runs of {plants} planted bottlenecks named what was planted ({:.1} %); {wrong} were \
             confidently wrong about the generator; others used the machine in {disturbed}",
            100.0 * right as f64 / all.max(1) as f64
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
