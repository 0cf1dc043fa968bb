//! Circuit breaker and load shedding on the admin side.

use hotrow_admission::breaker::State;
use hotrow_admission::shed::{Kind, Level, Priority, Source};
use hotrow_measure::clock::Nanos;
use serde_json::{Map, Value, json};

use super::View;
use crate::metrics::{Exposition, Labels};

impl View {
    pub(super) fn expose_overload(&self, now: Nanos, out: &mut Exposition) {
        self.expose_breaker(now, out);
        let labels = Source::ALL.map(|source| [("source", source.label())]);
        let levels = self.shared.admission.load_shedder.levels();
        let samples: Vec<(Labels<'_>, u64)> =
            labels.iter().zip(levels).map(|(l, level)| (&l[..], level as u64)).collect();
        out.gauge("hotrow_pressure", "0 normal, 1 elevated, 2 critical, by source.", &samples);
        let changes = self.shared.admission.load_shedder.changes_total();
        out.counter(
            "hotrow_pressure_changes_total",
            "Changes of the worst of these levels.",
            &[(&[], changes)],
        );
        let shed = self.shed();
        let labels: Vec<_> = shed
            .iter()
            .map(|(level, kind, priority, _)| {
                [("level", level.label()), ("kind", kind.label()), ("priority", priority.label())]
            })
            .collect();
        let samples: Vec<(Labels<'_>, u64)> =
            labels.iter().zip(&shed).map(|(l, (.., n))| (&l[..], *n)).collect();
        out.counter(
            "hotrow_shed_total",
            "Requests refused because the process was overloaded.",
            &samples,
        );
    }

    fn expose_breaker(&self, now: Nanos, out: &mut Exposition) {
        let breaker = &self.shared.fetcher.breaker;
        let labels = State::ALL.map(|state| [("state", state.label())]);
        let is = State::ALL.map(|state| u64::from(state == breaker.state(now)));
        let samples: Vec<(Labels<'_>, u64)> =
            labels.iter().zip(is).map(|(l, is)| (&l[..], is)).collect();
        out.gauge(
            "hotrow_breaker_state",
            "1 for the present state of the circuit breaker.",
            &samples,
        );
        let entered = breaker.transitions_total();
        let samples: Vec<(Labels<'_>, u64)> =
            labels.iter().zip(entered).map(|(l, n)| (&l[..], n)).collect();
        out.counter(
            "hotrow_breaker_transitions_total",
            "Times that the circuit breaker entered a state.",
            &samples,
        );
        out.counter(
            "hotrow_breaker_refused_keys_total",
            "Keys not read because the circuit breaker was open.",
            &[(&[], breaker.refused_total())],
        );
    }

    /// Returns all combinations that can be refused, with their counts.
    fn shed(&self) -> Vec<(Level, Kind, Priority, u64)> {
        let kinds = || {
            Kind::ALL.into_iter().flat_map(|kind| Priority::ALL.map(|priority| (kind, priority)))
        };
        let counted = |(level, (kind, priority))| {
            let count =
                self.workers.iter().map(|worker| worker.shed.get(level, kind, priority)).sum();
            (level, kind, priority, count)
        };
        [Level::Elevated, Level::Critical]
            .into_iter()
            .flat_map(|level| kinds().map(move |k| (level, k)))
            .map(counted)
            .collect()
    }

    /// Returns the section `overload` of `/status`.
    pub(super) fn overload_status(&self, now: Nanos) -> Value {
        let breaker = &self.shared.fetcher.breaker;
        let shedding = &self.shared.admission.load_shedder;
        let levels = shedding.levels();
        let pressure: Map<String, Value> = Source::ALL
            .into_iter()
            .zip(levels)
            .map(|(source, level)| (source.label().to_owned(), level.label().into()))
            .collect();
        json!({
            "breaker": breaker.state(now).label(),
            "breaker_refused_keys": breaker.refused_total(),
            "shedding": self.is_shedding,
            "level": levels.into_iter().max().unwrap_or_default().label(),
            "pressure": pressure,
            "shed": self.shed().iter().map(|(.., n)| n).sum::<u64>(),
        })
    }
}
