//! A model in a process of its own: so that its peak of memory is its own, and so that it can die without taking the experiment with it.
//!
//! The process writes a line of JSON for each step of progress, and one for the result.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::limits::{Evidence, Limit, field};
use super::raw::Usage;
use super::results::{Figures, Latency};
use super::timeline::{Row, WINDOW};
use super::work::Scale;
use super::{Model, Stopped, catalogue};

/// What to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Name of the model.
    pub model: String,
    /// Requests.
    pub requests: u64,
    /// Length of the sleeps.
    pub scale: f64,
    /// CPUs that the models are made for.
    pub cores: usize,
}

/// A line that the process writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// So many requests are done.
    Done(u64),
    /// It has ended.
    Ended(Box<Ended>),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) done: u64,
    pub(super) figures: Figures,
    pub(super) died: Option<Death>,
}

/// A thread was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Death {
    pub(super) started: u64,
    pub(super) limit: Limit,
    pub(super) evidence: Evidence,
}

/// Runs a model in this process, and tells on standard output.
///
/// # Errors
/// An order that cannot be carried out, and standard output that nobody reads.
pub fn run(order: &str) -> io::Result<()> {
    // Without the experiment nobody wants the result. That it cannot be asked for is no reason not to run.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let order: Order = serde_json::from_str(order).map_err(|e| wrong(e.to_string()))?;
    let scale = Scale::new(order.scale).ok_or_else(|| wrong(format!("{} is no scale", order.scale)))?;
    let mut models = catalogue(order.cores).into_iter();
    let model = models.find(|model| model.name() == order.model);
    let model = model.ok_or_else(|| wrong(format!("there is no model {:?}", order.model)))?;
    let ended = measure(model.as_ref(), &order, scale);
    tell(&Told::Ended(Box::new(ended)))
}

/// One line, written at once.
fn tell(told: &Told) -> io::Result<()> {
    let mut line = serde_json::to_vec(told)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn measure(model: &dyn Model, order: &Order, scale: Scale) -> Ended {
    let refusals_before = Evidence::now("").group_refusals;
    let rss_before_bytes = status("VmRSS:");
    // Who reads may be gone; then this process is about to be ended.
    let progress = Box::new(|done| drop(tell(&Told::Done(done))));
    let job = Arc::new(Job::new(order.requests, scale, WINDOW.mul_f64(scale.get()), progress));
    let (before, began) = (Usage::now(), Instant::now());
    let stopped = model.run(&job).err();
    let ended = Instant::now();
    let used = Usage::now().since(&before);
    let wall_s = (ended - began).as_secs_f64();
    let (user_s, system_s) = (used.user.as_secs_f64(), used.system.as_secs_f64());
    let cores_s = wall_s * order.cores as f64;
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
    Ended { done: job.done(), figures, died: stopped.map(|stopped| death(stopped, refusals_before)) }
}

fn timeline(model: &dyn Model, job: &Job, ended: Instant) -> Vec<Row> {
    // A place in a batch is held by one thread after the other.
    let place = if model.workload() == "W16" { "place" } else { "thread" };
    job.timeline.rows(place, ended)
}

fn death(stopped: Stopped, refusals_before: u64) -> Death {
    let Stopped { started, limit, evidence } = stopped;
    Death { started, limit: limit.unwrap_or_else(|| evidence.limit(refusals_before)), evidence: *evidence }
}

/// A size in `/proc/self/status`, in bytes; 0 when the kernel does not tell.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&text, name).unwrap_or_default() * 1024
}
