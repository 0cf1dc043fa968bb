//! Spans of the feed, each a trace of its own: its start, the time from a loss to the new
//! beginning, gaps of one collection, and times in which staleness was above its bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_otel::span::{Attribute, Span, SpanKind};
use hotrow_source::LossCause;
use hotrow_types::key::CollectionId;
use parking_lot::Mutex;

use super::{Tracer, WallClock};

/// Spans of the feed of one source. The feed calls it in the order of its events.
#[derive(Debug)]
pub struct FeedTrace {
    tracer: Arc<Tracer>,
    /// Name of the source.
    source: Arc<str>,
    max_staleness: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Since when the feed is not known to follow, with the cause; at first, the start.
    not_following: Option<(Nanos, Option<LossCause>)>,
    /// Gaps of collections. Bounded by their number.
    gaps: HashMap<CollectionId, Nanos>,
    /// Time before which everything is delivered.
    delivered_at: Option<Nanos>,
}

impl FeedTrace {
    /// Begins at the start of the feed of this source.
    pub fn new(tracer: Arc<Tracer>, source: String, max_staleness: Duration) -> Self {
        let not_following = Some((Nanos::now(), None));
        let state = State { not_following, gaps: HashMap::new(), delivered_at: None };
        Self { tracer, source: source.into(), max_staleness, state: Mutex::new(state) }
    }

    /// Notes that changes may have been missed.
    pub fn lost(&self, cause: LossCause) {
        let mut state = self.state.lock();
        state.delivered_at = None;
        // Of several losses in a row the first is the cause.
        if !matches!(state.not_following, Some((_, Some(_)))) {
            state.not_following = Some((Nanos::now(), Some(cause)));
        }
    }

    /// Notes that the feed follows the database.
    pub fn started(&self) {
        let now = Nanos::now();
        let mut state = self.state.lock();
        state.delivered_at = None;
        let Some((since, cause)) = state.not_following.take() else { return };
        drop(state);
        match cause {
            None => self.record("feed start", since, now, Vec::new()),
            Some(cause) => {
                let cause = Attribute::new("hotrow.feed.loss_cause", cause.label());
                self.record("feed gap", since, now, vec![cause]);
            }
        }
    }

    /// Notes that changes of one collection may be missed.
    pub fn gap_opened(&self, collection: CollectionId) {
        self.state.lock().gaps.entry(collection).or_insert_with(Nanos::now);
    }

    /// Notes that changes of one collection are delivered again.
    pub fn gap_closed(&self, collection: CollectionId) {
        let Some(since) = self.state.lock().gaps.remove(&collection) else { return };
        let name = self.tracer.collections.name(collection).to_owned();
        let attributes = vec![Attribute::new("hotrow.collection", name)];
        self.record("feed gap", since, Nanos::now(), attributes);
    }

    /// Notes that everything before `probe_sent_at` is delivered.
    pub fn advanced(&self, probe_sent_at: Nanos) {
        let now = Nanos::now();
        let before = self.state.lock().delivered_at.replace(probe_sent_at);
        let Some(before) = before else { return };
        let stale_since = before.after(self.max_staleness);
        if now > stale_since {
            self.record("feed stale", stale_since, now, Vec::new());
        }
    }

    fn record(&self, name: &'static str, since: Nanos, now: Nanos, mut attributes: Vec<Attribute>) {
        // A feed that fails in a circle must not displace the requests.
        if !self.tracer.may_record(now) {
            return;
        }
        let clock = WallClock::read();
        attributes.push(Attribute::new("hotrow.source", &self.source));
        self.tracer.record(Span {
            context: self.tracer.ids.root(),
            parent: None,
            has_remote_parent: false,
            name: name.into(),
            kind: SpanKind::Internal,
            start_unix_ns: clock.unix_ns(since),
            end_unix_ns: clock.unix_ns(now),
            attributes,
            links: Vec::new(),
            links_dropped: 0,
            is_error: name != "feed start",
        });
    }
}
