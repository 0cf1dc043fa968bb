//! Readiness: whether requests should be sent to this instance now, and if not, why.
//!
//! An instance is ready when all conditions of its rule ([`ReadyWhen`]) hold. The decision is a
//! pure function of [`Conditions`]; [`Readiness`] collects them from the process.

use std::sync::Arc;
use std::time::Duration;

use hotrow_admission::breaker::State;
use hotrow_answer::units::millis;
use hotrow_cache::config::WhenStale;
use hotrow_config::{Config, ReadySources, ReadyWhen};
use hotrow_gate::admission::breaker::badness;
use hotrow_gate::read::SourceReads;
use hotrow_measure::clock::Nanos;
use hotrow_net::listen::inherited::{Holder, SharedHolder};
use hotrow_service::in_force::{InForce, Snapshot};
use hotrow_supervisor::shutdown::{Shutdown, Stage};
use serde_json::{Map, Value, json};

use crate::late_start::LateStarts;
use crate::reload::Reloads;

/// Interval of looking while readiness is awaited.
const WAIT_INTERVAL: Duration = Duration::from_millis(5);

/// State of the change feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FeedState {
    /// None is followed.
    None,
    /// Within `max_staleness`.
    CaughtUp,
    /// Past `max_staleness`: the policy [`WhenStale`] applies.
    Behind,
    /// It has not passed its first probe: nothing is known about the freshness of any entry.
    Starting,
}

impl FeedState {
    fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Starting => "starting",
            Self::CaughtUp => "caught up",
            Self::Behind => "behind",
        }
    }
}

/// Condition of readiness, by its member in the JSON of `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Process,
    Feed,
    Source,
    Breaker,
    TokenKeys,
    WarmStart,
}

impl Condition {
    /// All, in the order of the JSON.
    const ALL: [Self; 6] =
        [Self::Process, Self::Feed, Self::Source, Self::Breaker, Self::TokenKeys, Self::WarmStart];

    fn label(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Feed => "feed",
            Self::Source => "source",
            Self::Breaker => "breaker",
            Self::TokenKeys => "token_keys",
            Self::WarmStart => "warm_start",
        }
    }
}

/// Values of all conditions at one moment, for one source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    pub(crate) is_running: bool,
    pub(crate) feed: FeedState,
    /// Time for which a change may have gone unseen; `None` without a feed and before its first
    /// probe.
    pub(crate) staleness: Option<Duration>,
    pub(crate) is_source_reachable: bool,
    pub(crate) breaker: State,
    pub(crate) has_token_keys: bool,
    /// No warm start is configured, its reads have ended, or readiness does not wait for them.
    pub(crate) is_warm: bool,
}

impl Conditions {
    /// Returns those that may differ between sources.
    fn of_source(&self) -> Value {
        json!({
            "feed": self.feed.label(),
            "staleness_ms": self.staleness.map(millis),
            "source": reachability(self.is_source_reachable),
            "breaker": self.breaker.label(),
        })
    }

    /// Returns the conditions that the rule requires and that do not hold, in the order of the
    /// JSON. None: ready.
    pub(crate) fn unmet(&self, ready_when: ReadyWhen, when_stale: WhenStale) -> Vec<Condition> {
        let is_starting = self.feed == FeedState::Starting;
        let is_behind = self.feed == FeedState::Behind;
        // A half-open breaker has not yet seen that the database answers reads.
        let is_breaker_closed = self.breaker == State::Closed;
        let (needs_feed, needs_database) = match ready_when {
            ReadyWhen::Fresh => (true, true),
            ReadyWhen::Serving => match when_stale {
                WhenStale::Stale => (false, false),
                // While the feed is behind, every answer is a read of the database.
                WhenStale::Bypass => (false, is_behind),
                WhenStale::Refuse => (true, false),
            },
        };
        let holds = [
            (Condition::Process, self.is_running),
            (Condition::Feed, !is_starting && (!is_behind || !needs_feed)),
            (Condition::Source, self.is_source_reachable || !needs_database),
            (Condition::Breaker, is_breaker_closed || !needs_database),
            (Condition::TokenKeys, self.has_token_keys),
            (Condition::WarmStart, self.is_warm),
        ];
        holds.into_iter().filter(|(_, holds)| !holds).map(|(condition, _)| condition).collect()
    }
}

/// Returns the conditions that do not hold and that make the instance not ready. `all`: by source.
///
/// With [`ReadySources::Any`], one source whose conditions hold suffices, once every feed has
/// started: the contract holds for each collection on its own, and an instance that left the
/// balancer for one database would take the collections of all others with it.
fn unmet_of_all(
    all: &[Conditions],
    (ready_when, when_stale): (ReadyWhen, WhenStale),
    ready_sources: ReadySources,
) -> Vec<Condition> {
    let unmet: Vec<_> = all.iter().map(|own| own.unmet(ready_when, when_stale)).collect();
    let have_started = all.iter().all(|own| own.feed != FeedState::Starting);
    let one_suffices = ready_sources == ReadySources::Any && have_started;
    if one_suffices && unmet.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    let is_unmet = |condition: &Condition| unmet.iter().any(|own| own.contains(condition));
    Condition::ALL.into_iter().filter(is_unmet).collect()
}

/// Source of the conditions of one process. A clone has the same.
#[derive(Clone)]
pub(crate) struct Readiness {
    in_force: Arc<InForce>,
    reloads: Option<Arc<Reloads>>,
    shutdown: Shutdown,
    /// Holder of the admin listener. After a handover this address answers for the next process,
    /// which is ready: a request that this one still receives must not say otherwise.
    admin_holder: SharedHolder,
}

impl Readiness {
    pub(crate) fn new(
        in_force: Arc<InForce>,
        reloads: Option<Arc<Reloads>>,
        shutdown: Shutdown,
        admin_holder: SharedHolder,
    ) -> Self {
        Self { in_force, reloads, shutdown, admin_holder }
    }

    fn is_handed_over(&self) -> bool {
        self.admin_holder.get() == Holder::Successor
    }

    /// Returns the conditions of each source at `now`.
    fn conditions(&self, snapshot: &Snapshot, now: Nanos) -> Vec<Conditions> {
        let sources = snapshot.shared.fetcher.sources.iter();
        sources.map(|reads| self.conditions_of(snapshot, reads, now)).collect()
    }

    fn conditions_of(&self, snapshot: &Snapshot, reads: &SourceReads, now: Nanos) -> Conditions {
        let shared = &snapshot.shared;
        let cache = &shared.cache;
        let is_followed = cache.is_followed(reads.id);
        let has_started = is_followed && cache.has_watermark(reads.id);
        let feed = match (is_followed, has_started) {
            (false, _) => FeedState::None,
            (true, false) => FeedState::Starting,
            (true, true) if cache.is_current(reads.id, now) => FeedState::CaughtUp,
            (true, true) => FeedState::Behind,
        };
        Conditions {
            is_running: self.shutdown.stage() == Stage::Running || self.is_handed_over(),
            feed,
            staleness: has_started.then(|| cache.staleness(reads.id, now)),
            is_source_reachable: reads.source.health().is_ok(),
            breaker: reads.breaker.state(now),
            has_token_keys: shared.access.as_ref().is_none_or(|access| access.is_ready(now)),
            is_warm: shared.warm_start.as_ref().is_none_or(|warm| warm.allows_readiness()),
        }
    }

    /// Reports the sources whose feed has been starting for long.
    pub(crate) fn report_late(&self, late_starts: &mut LateStarts, now: Nanos) {
        let snapshot = self.in_force.newest();
        let conditions = self.conditions(&snapshot, now).into_iter();
        let are_starting = conditions.map(|own| own.feed == FeedState::Starting);
        for source in late_starts.late(are_starting, now) {
            let source = &*snapshot.shared.fetcher.sources[source].name;
            tracing::warn!(
                source,
                "the change feed has been starting for 30 s: no answer of this source comes from \
                 memory; see `/readyz`, and what the database's sessions wait for"
            );
        }
    }

    fn unmet_of(snapshot: &Snapshot, all: &[Conditions]) -> Vec<Condition> {
        let Config { ready_when, ready_sources, .. } = &snapshot.config;
        let when_stale = snapshot.shared.cache.config().when_stale;
        unmet_of_all(all, (*ready_when, when_stale), *ready_sources)
    }

    /// Returns the names of the conditions that do not hold at `now`.
    pub(crate) fn unmet(&self, now: Nanos) -> Vec<&'static str> {
        let snapshot = self.in_force.newest();
        let unmet = Self::unmet_of(&snapshot, &self.conditions(&snapshot, now));
        unmet.into_iter().map(Condition::label).collect()
    }

    /// Waits until the instance is ready, for at most `limit`, or until a stop is requested.
    ///
    /// # Errors
    /// The names of the conditions that do not hold when the time is over.
    pub(crate) fn wait(&self, limit: Duration) -> Result<(), Vec<&'static str>> {
        let until = Nanos::now().after(limit);
        loop {
            let now = Nanos::now();
            let unmet = self.unmet(now);
            if unmet.is_empty() || self.shutdown.stage() > Stage::Running {
                return Ok(());
            }
            if now >= until {
                return Err(unmet);
            }
            if !self.shutdown.pause(WAIT_INTERVAL) {
                return Ok(());
            }
        }
    }

    /// Returns whether the instance is ready at `now`, and the document of `/readyz`.
    pub(crate) fn report(&self, now: Nanos) -> (bool, Value) {
        let snapshot = self.in_force.newest();
        let all = self.conditions(&snapshot, now);
        let unmet = Self::unmet_of(&snapshot, &all);
        let conditions = worst(&all);
        let named = snapshot.config.sources.iter().map(|source| source.name.clone());
        let sources: Map<String, Value> =
            named.zip(all.iter().map(Conditions::of_source)).collect();
        let is_ready = unmet.is_empty();
        let document = json!({
            "ready": is_ready,
            "ready_when": snapshot.config.ready_when.label(),
            "ready_sources": snapshot.config.ready_sources.label(),
            "sources": sources,
            "unmet": unmet.iter().map(|condition| condition.label()).collect::<Vec<_>>(),
            "process": match conditions.is_running {
                true if self.is_handed_over() => "handed over",
                true => "running",
                false => "draining",
            },
            "feed": conditions.feed.label(),
            "staleness_ms": conditions.staleness.map(millis),
            "source": reachability(conditions.is_source_reachable),
            "breaker": conditions.breaker.label(),
            "token_keys": if conditions.has_token_keys { "usable" } else { "missing or too old" },
            "reload": self.reloads.as_ref().map_or("none", |reloads| reloads.label()),
            "warm_start": if conditions.is_warm { "not awaited" } else { "awaited" },
        });
        (is_ready, document)
    }
}

/// Returns the worst value of each condition. There is one source at least.
fn worst(all: &[Conditions]) -> Conditions {
    let worse = |one: Conditions, other: Conditions| Conditions {
        feed: one.feed.max(other.feed),
        staleness: one.staleness.max(other.staleness),
        is_source_reachable: one.is_source_reachable && other.is_source_reachable,
        breaker: if badness(other.breaker) > badness(one.breaker) {
            other.breaker
        } else {
            one.breaker
        },
        ..one
    };
    let none = Conditions {
        is_running: false,
        feed: FeedState::None,
        staleness: None,
        is_source_reachable: false,
        breaker: State::Closed,
        has_token_keys: false,
        is_warm: false,
    };
    all.iter().copied().reduce(worse).unwrap_or(none)
}

fn reachability(is_reachable: bool) -> &'static str {
    if is_reachable { "reachable" } else { "unreachable" }
}

#[cfg(test)]
mod tests;
