//! A model in a process of its own, so that its peak memory is measured alone and its failure does
//! not end the experiment.
//!
//! The process writes a line of JSON for each progress step, and one for the result.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::limits::{Evidence, Limit, field};
use super::raw::Usage;
use super::results::{Figures, Latency};
use super::timeline::WINDOW;
use super::work::Scale;
use super::{Model, ThreadRefused, catalogue};
use hotrow_report::plot::Lane;

/// A run of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRun {
    /// Name of the model.
    pub model: String,
    /// Requests.
    pub requests: u64,
    /// Scale of the sleeps.
    pub scale: f64,
    /// CPUs for which the models are configured.
    pub cores: usize,
}

/// A line that the process writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChildMessage {
    /// Requests done so far.
    Done(u64),
    /// The result.
    Ended(Box<ChildResult>),
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChildResult {
    pub(super) done: u64,
    pub(super) figures: Figures,
    pub(super) died: Option<ThreadRefusal>,
}

/// Refusal of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ThreadRefusal {
    pub(super) started: u64,
    pub(super) limit: Limit,
    pub(super) evidence: Evidence,
}

/// Runs a model in this process and reports on standard output.
///
/// # Errors
/// An invalid order, or a closed standard output.
pub fn run(model_run: &str) -> io::Result<()> {
    // Without the parent the result is useless. If the signal cannot be set, the run goes on.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let model_run: ModelRun = serde_json::from_str(model_run).map_err(|e| wrong(e.to_string()))?;
    let scale = Scale::new(model_run.scale)
        .ok_or_else(|| wrong(format!("{} is no scale", model_run.scale)))?;
    let mut models = catalogue(model_run.cores).into_iter();
    let model = models.find(|model| model.name() == model_run.model);
    let model = model.ok_or_else(|| wrong(format!("there is no model {:?}", model_run.model)))?;
    let ended = measure(model.as_ref(), &model_run, scale);
    send(&ChildMessage::Ended(Box::new(ended)))
}

/// Writes one line at once.
fn send(message: &ChildMessage) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn measure(model: &dyn Model, model_run: &ModelRun, scale: Scale) -> ChildResult {
    let refusals_before = Evidence::now("").group_refusals;
    let rss_before_bytes = status("VmRSS:");
    // The reader may be gone; this process will then be killed.
    let progress = Box::new(|done| drop(send(&ChildMessage::Done(done))));
    let job = Arc::new(Job::new(model_run.requests, scale, WINDOW.mul_f64(scale.get()), progress));
    let (before, began) = (Usage::now(), Instant::now());
    let stopped = model.run(&job).err();
    let ended = Instant::now();
    let used = Usage::now().since(&before);
    let wall_s = (ended - began).as_secs_f64();
    let (user_s, system_s) = (used.user.as_secs_f64(), used.system.as_secs_f64());
    let cores_s = wall_s * model_run.cores as f64;
    let tally = job.tally();
    let figures = Figures {
        wall_s,
        user_s,
        system_s,
        utilisation: (user_s + system_s) / cores_s,
        idle_s: (cores_s - user_s - system_s).max(0.0),
        switches_voluntary: used.switches_voluntary,
        switches_involuntary: used.switches_involuntary,
        rss_peak_bytes: status("VmHWM:"),
        rss_before_bytes,
        queue_us: Latency::of(&tally.queue),
        processing_us: Latency::of(&tally.processing),
        checks: job.checks(),
        timeline: timeline(model, &job, ended),
    };
    ChildResult {
        done: job.done(),
        figures,
        died: stopped.map(|stopped| refusal(stopped, refusals_before)),
    }
}

fn timeline(model: &dyn Model, job: &Job, ended: Instant) -> Vec<Lane> {
    // In batches, several threads use a lane in turn.
    let lane = if model.workload() == "W16" { "lane" } else { "thread" };
    job.timeline.rows(lane, ended)
}

fn refusal(stopped: ThreadRefused, refusals_before: u64) -> ThreadRefusal {
    let ThreadRefused { started, limit, evidence } = stopped;
    ThreadRefusal {
        started,
        limit: limit.unwrap_or_else(|| evidence.limit(refusals_before)),
        evidence: *evidence,
    }
}

/// Returns a size from `/proc/self/status`, in bytes; 0 if the kernel does not report it.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&text, name).unwrap_or_default() * 1024
}
