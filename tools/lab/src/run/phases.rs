//! What a measurement with events shows: its phases, failed requests, and the keys that were read
//! again. Pure.

use std::time::Duration;

use hotrow_load::ids::Distribution;
use hotrow_load::outcome::Outcome;

use super::events::EventRun;
use super::figures;
use super::instance::Backend;
use super::snapshot::{Interval, Snapshot};
use crate::experiment::{EVENT_FIGURES, Load, Service};
use hotrow_results::Phase;

/// Times that every key must be asked for after an event: once while the proxy may not have noticed
/// it yet, and once afterwards.
const PASSES_MIN: u64 = 2;

/// Figures: name, value and unit.
type Figures = Vec<(String, f64, String)>;

/// A measurement with its events, after its end.
pub(super) struct Phases<'a> {
    pub(super) load: &'a Load,
    pub(super) service: &'a Service,
    pub(super) backends: &'a [Backend],
    /// Which instances ran before the first event.
    pub(super) running: &'a [bool],
    pub(super) begin: &'a Snapshot,
    pub(super) run: &'a EventRun,
    pub(super) end: &'a Snapshot,
    pub(super) length: Duration,
}

impl<'a> Phases<'a> {
    /// Returns the counts of each phase, one more than events.
    pub(super) fn intervals(&self) -> Vec<Interval<'a>> {
        let moments = &self.run.moments;
        let begins = std::iter::once(self.begin).chain(moments.iter().map(|of| &of.after));
        let ends = moments.iter().map(|of| &of.before).chain([self.end]);
        begins.zip(ends).map(|(begin, end)| Interval { begin, end }).collect()
    }

    /// Returns the phases for the report.
    pub(super) fn all(&self) -> Vec<Phase> {
        let moments = &self.run.moments;
        let mut phases = Vec::new();
        let (mut name, mut begin) = ("before".to_owned(), Duration::ZERO);
        let mut running = self.running;
        for (at, interval) in self.intervals().into_iter().enumerate() {
            let next = moments.get(at);
            let end = next.map_or(self.length, |moment| moment.at);
            let mut backends = figures::backends(self.backends, interval.served().as_deref());
            let mut runs = running.iter();
            backends.retain(|_| runs.next() == Some(&true));
            phases.push(Phase {
                name,
                seconds: end.saturating_sub(begin).as_secs_f64(),
                instances: running.iter().filter(|runs| **runs).count() as u32,
                backends,
                figures: figures::of_phase(&self.service.figures, interval),
            });
            let (Some(moment), Some(event)) = (next, self.load.events.get(at)) else { break };
            (name, begin, running) = (event.words(), end, &moment.running);
        }
        phases
    }

    /// Returns the figures of the whole measurement: failed requests, the outage, and the keys read
    /// again after each event.
    ///
    /// # Errors
    /// A phase was too short to ask for every key.
    pub(super) fn figures(&self, outcome: &Outcome) -> Result<Figures, String> {
        let counts = &outcome.total.counts;
        let failed = counts.errors.total() + counts.timeouts + counts.connect_errors;
        let [failed_requests, failed_share, outage] = EVENT_FIGURES.map(str::to_owned);
        let mut figures = vec![(failed_requests, failed as f64, String::new())];
        let all = counts.ok + failed;
        if all > 0 {
            figures.push((failed_share, 100.0 * failed as f64 / all as f64, "%".to_owned()));
        }
        figures.extend(self.run.outage.map(|time| (outage, time.as_secs_f64(), "s".to_owned())));
        figures.extend(self.read_again()?);
        Ok(figures)
    }

    /// Returns the keys read after each event, in units of the share of one instance: with N
    /// instances, 1/N of the keys. Only known where a load asks for all ids in turn.
    fn read_again(&self) -> Result<Figures, String> {
        let Some((series, keys)) = self.service.reads_metric.as_ref().zip(self.keys()) else {
            return Ok(Vec::new());
        };
        let series = std::slice::from_ref(series);
        let (mut figures, mut running) = (Vec::new(), self.running);
        let intervals = self.intervals();
        let events = self.load.events.iter().zip(&self.run.moments);
        for ((event, moment), interval) in events.zip(&intervals[1..]) {
            let served = interval.served().unwrap_or_default();
            let requests: u64 = served.iter().sum();
            if requests < PASSES_MIN * keys {
                return Err(format!(
                    "after \"{}\" the load had {requests} requests until the next event or the \
                     end, and needs {PASSES_MIN} for each of its {keys} ids; measure for longer, \
                     or with fewer ids",
                    event.words()
                ));
            }
            let instance = event.instance.saturating_sub(1) as usize;
            if moment.running.get(instance) == Some(&true) && served.get(instance) == Some(&0) {
                return Err(format!(
                    "the proxy sent no request to instance {} after its start",
                    event.instance
                ));
            }
            let count = |running: &[bool]| running.iter().filter(|runs| **runs).count();
            let instances = count(running).max(count(&moment.running));
            let share = interval.increase(series) / keys as f64 * instances as f64;
            figures.push((event.read_again(), share, "of 1/N".to_owned()));
            running = &moment.running;
        }
        Ok(figures)
    }

    /// Returns the number of ids that are asked for in turn.
    fn keys(&self) -> Option<u64> {
        let (ids, distribution) = self.load.ids.as_ref()?;
        matches!(distribution, Distribution::Sequential).then(|| ids.count())
    }
}
