//! The climb over numbers of connections, carried out.

use std::time::Duration;

use hotrow_lab::capacity::closed::{Climb, End, Level, Limits, Measured as Heard, Step, Verdict};
use hotrow_lab::watch::{self, Watch};
use hotrow_load::outcome::{self, Second};
use hotrow_load::plan::{Extent, Pace, Plan};
use hotrow_load::record::Record;
use hotrow_load::run::{self, Config, RunError};
use hotrow_measure::clock::Nanos;

use super::live;
use super::measured::{self, Measured};
use super::open::Task;

/// What a climb came to.
pub(super) struct Climbed {
    pub(super) levels: Vec<Level>,
    pub(super) end: End,
    /// Why the target is gone, if it is.
    pub(super) gone: Option<String>,
}

/// Climbs; every step is handed to `tell` as soon as it is judged.
pub(super) fn climb(
    task: &Task<'_>,
    watch: &mut Watch,
    steps: &mut Vec<Measured>,
    tell: &mut dyn FnMut(&Measured),
) -> Result<Climbed, RunError> {
    let args = task.args;
    let mut climb = Climb::new(Limits {
        connections_max: args.connections_max().get(),
        rounds: args.rounds(),
        step: args.step,
        time: args.time,
    });
    let mut last = None;
    let (end, gone) = loop {
        let (load_of, pause) = match climb.next(last) {
            Step::Done(end) => break (end, None),
            Step::Run { connections, warmup, length, pause } => ((connections, warmup, length), pause),
        };
        task.shown.step(|| live::level(load_of.0, climb.levels(), args.rounds()), || live::best(climb.levels()));
        let begun = Nanos::now();
        match load(task, watch, load_of, steps.len() as u64) {
            Ok((measured, verdict)) => {
                let rate_rps = measured.answered_rps;
                tell(&measured);
                steps.push(measured);
                watch::sleep(pause, task.stop);
                last = Some(Heard { rate_rps, verdict, took: Nanos::now().since(begun) });
            }
            Err(RunError::InterruptedBefore) => break (End::Interrupted, None),
            Err(RunError::NoConnection { why, .. }) if !steps.is_empty() => break (End::Harmed, Some(why)),
            Err(error) => return Err(error),
        }
    };
    Ok(Climbed { levels: climb.levels().to_vec(), end, gone })
}

/// One load; an interruption is an error, for nothing is known of the step then.
fn load(
    task: &Task<'_>,
    watch: &mut Watch,
    (connections, warmup, length): (usize, Duration, Duration),
    number: u64,
) -> Result<(Measured, Verdict), RunError> {
    let seed = task.config.seed.wrapping_add(number);
    let extent = Extent { duration: Some(length), requests: None };
    let plan = Plan { pace: Pace::Closed, warmup, extent, seed };
    let threads = task.config.threads.min(connections);
    let config = Config { plan, seed, connections, threads, ..task.config.clone() };
    task.shown.begins(&config);
    let mut told = |second: &Second, record: &Record| task.shown.second(second, record);
    let (outcome, samples) = watch
        .during(warmup, Some(length), |begin| run::run_telling(&config, task.stop, &mut |at| begin.at(at), &mut told));
    let outcome = outcome?;
    if outcome.end == outcome::End::Interrupted {
        return Err(RunError::InterruptedBefore);
    }
    // A closed loop asks again only when it is answered: without an answer, all that it asked may lie in the warm-up.
    let mute = outcome.total.counts.ok == 0;
    let verdict = if mute || measured::harmed(&outcome, task.args.abort_errors) {
        Verdict::Harmed
    } else if outcome.limit().is_generator() {
        Verdict::GeneratorLimited
    } else {
        Verdict::Fine
    };
    let mut step = Measured::new(&outcome, samples.as_ref());
    step.connections = connections;
    step.purpose = "closed";
    step.verdict = words(verdict);
    step.diagnose(watch, &config, &outcome, samples);
    Ok((step, verdict))
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "fine",
        Verdict::GeneratorLimited => "generator",
        Verdict::Harmed => "harm",
    }
}
