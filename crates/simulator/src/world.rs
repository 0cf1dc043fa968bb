//! World: everything that a run consists of, and the scheduler that steps it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_cache::Cache;
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_source::looks::Looks;
use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;
use hotrow_types::version::Position;
use parking_lot::Mutex;

use crate::admission::Admission;
use crate::client::Request;
use crate::counts::Counts;
use crate::database::{COLLECTIONS, Database};
use crate::engine::FeedKind;
use crate::feed::Feed;
use crate::loader::Loader;
use crate::queue::{Event, FeedEvent, InstanceEvent, Queue, RequestEvent};
use crate::random::Random;
use crate::run::{Mix, Rules, Scenario, StrictMistake, Violation};
use crate::settings::Settings;
use crate::sink::{Keys, SimulatedSink};
use crate::slab::{Slab, SlabId};
use crate::snapshot::SnapshotRequest;
use crate::standby::Standby;

/// Virtual time at which a run begins.
const START: Nanos = Nanos(1_000_000_000);
/// Clients that carry session tokens.
const SESSIONS: usize = 4;
/// Steps between two checks of the cache's counters.
const COUNTERS_CHECKED_EVERY: u64 = 64;

/// A run.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) random: Random,
    pub(crate) now: Nanos,
    queue: Queue,
    pub(crate) database: Database,
    pub(crate) keys: Arc<Keys>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) standbys: Vec<Standby>,
    /// Newest token of each client.
    pub(crate) sessions: Vec<Option<Position>>,
    pub(crate) counts: Counts,
    trace: u64,
    pub(crate) violation: Option<Violation>,
    pub(crate) rules: Rules,
    pub(crate) mix: Mix,
    pub(crate) planted: Option<StrictMistake>,
    /// Newest version of each row in a strict answer of any instance.
    pub(crate) strict_floors: Vec<usize>,
    /// Whether queries fail although the database answers the feed.
    pub(crate) is_failing: bool,
    /// Whether anything breaks.
    pub(crate) has_faults: bool,
    /// Whether clients and writers have ended.
    pub(crate) is_quiet: bool,
}

/// One instance of the service.
pub(crate) struct Instance {
    pub(crate) cache: Arc<Cache<ReadFailure>>,
    pub(crate) sink: SimulatedSink,
    pub(crate) feed: Feed,
    pub(crate) loaders: Slab<Loader>,
    pub(crate) requests: Slab<Request>,
    pub(crate) snapshots: Slab<SnapshotRequest>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) woken: Arc<Mutex<Vec<SlabId>>>,
    /// Newest version of each key that was answered, or that clients were informed of.
    pub(crate) floors: Vec<usize>,
    /// Time of the last failure of each key that the cache may remember.
    pub(crate) failed_at: HashMap<usize, Nanos, FixedState>,
    /// Versions of absences, by key and time of the read.
    pub(crate) absent: HashMap<(usize, Nanos), usize, FixedState>,
    pub(crate) admission: Admission,
    /// Requests that wait for the feed.
    pub(crate) position_waiters: Vec<SlabId>,
    /// The process is stopped until then.
    pub(crate) frozen_until: Nanos,
}

impl World {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let mut random = Random::new(scenario.seed);
        let settings = Settings::of(scenario.engine, &mut random);
        Self::with(settings, random, scenario)
    }

    pub(crate) fn with(settings: Settings, random: Random, scenario: &Scenario) -> Self {
        let keys = Arc::new(Keys::new(settings.ids, settings.has_aliases));
        let instance = |_| {
            let instance = Instance::new(&settings, &keys);
            #[cfg(feature = "failpoints")]
            scenario.without.into_iter().for_each(|safeguard| instance.cache.disable(safeguard));
            instance
        };
        let mut world = Self {
            random,
            now: START,
            queue: Queue::default(),
            database: Database::new(settings.engine, settings.ids, START, |row| {
                (!row.is_multiple_of(4)).then_some(0)
            }),
            instances: (0..settings.instances).map(instance).collect(),
            standbys: vec![Standby::new(1); settings.engine.standbys],
            keys,
            sessions: vec![None; SESSIONS],
            counts: Counts::default(),
            trace: 0,
            violation: None,
            rules: scenario.rules,
            mix: scenario.mix,
            planted: scenario.planted,
            strict_floors: vec![0; settings.ids * usize::from(COLLECTIONS)],
            is_failing: false,
            has_faults: true,
            is_quiet: false,
            settings,
        };
        for i in 0..world.instances.len() {
            if world.settings.engine.feed != FeedKind::Off {
                world.push_feed(i, Duration::ZERO, FeedEvent::Connect);
            }
        }
        world.queue.push(START, Duration::ZERO, Event::Requests);
        world.queue.push(START, Duration::ZERO, Event::Begin);
        let first_fault = world.settings.typical.faults;
        world.queue.push(START, first_fault, Event::Fault);
        world
    }

    /// Queues an event of an instance.
    pub(crate) fn push(&mut self, i: usize, after: Duration, event: InstanceEvent) {
        self.queue.push(self.now, after, Event::Instance(i, event));
    }

    /// Queues an event of the environment.
    pub(crate) fn schedule(&mut self, after: Duration, event: Event) {
        self.queue.push(self.now, after, event);
    }

    /// Moves the clock on by the least step, so that no two things happen at one time.
    pub(crate) fn tick(&mut self) {
        self.now = self.now.after(Duration::from_nanos(1));
        let now = self.now;
        self.instances.iter().for_each(|instance| instance.sink.with(|calls| calls.now = now));
    }

    /// Carries out the next event. `false`: none is pending, or the contract was violated.
    pub(crate) fn step(&mut self) -> bool {
        if self.violation.is_some() {
            return false;
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        if let Event::Instance(i, inner) = &event
            && !inner.is_at_database()
            && self.instances[*i].frozen_until > at
        {
            // The process is stopped. When it continues, its events are handled in no order.
            let thawed = self.instances[*i].frozen_until.since(at);
            let after = thawed + self.random.latency(self.settings.typical.task);
            self.queue.push(at, after, event);
            return true;
        }
        self.now = self.now.max(at);
        self.tick();
        self.counts.steps += 1;
        self.record(event.number() ^ self.now.0 << 20);
        self.carry_out(event);
        self.wake();
        if self.counts.steps.is_multiple_of(COUNTERS_CHECKED_EVERY) {
            self.check_counters();
        }
        self.violation.is_none()
    }

    fn carry_out(&mut self, event: Event) {
        match event {
            Event::Requests => self.requests(),
            Event::Begin => self.begin(),
            Event::Commit(id) => self.commit(id),
            Event::Visible(id) => self.visible(id),
            Event::Returned(id) => self.returned(id),
            Event::Fault => self.fault(),
            Event::OutageEnds => self.outage_ends(),
            Event::Publish(collection) => {
                self.database.is_published[usize::from(collection.0)] = true;
            }
            Event::Replay(n) => self.replay(n),
            Event::Rejoin(n) => self.rejoin(n),
            Event::Instance(i, event) => self.carry_out_at(i, event),
        }
    }

    fn carry_out_at(&mut self, i: usize, event: InstanceEvent) {
        match event {
            InstanceEvent::Lead(collection) => self.lead(i, collection),
            InstanceEvent::Loader(id, event) => self.loader_event(i, id, event),
            InstanceEvent::Request(id, event) => self.request_event(i, id, event),
            InstanceEvent::Snapshot(id, event) => self.snapshot_event(i, id, event),
            InstanceEvent::Feed(session, event) => self.feed_event(i, session, event),
        }
    }

    /// Queues what the last event has woken: tasks of requests, and refreshes of hot records.
    fn wake(&mut self) {
        for i in 0..self.instances.len() {
            let instance = &mut self.instances[i];
            let woken = std::mem::take(&mut *instance.woken.lock());
            let (leads, has_moved) = instance.sink.with(|calls| {
                (std::mem::take(&mut calls.leads), std::mem::take(&mut calls.has_moved))
            });
            for id in woken {
                let after = self.random.latency(self.settings.typical.task);
                self.push(i, after, InstanceEvent::Request(id, RequestEvent::Poll));
            }
            for collection in leads {
                self.counts.prefetches += 1;
                let after = self.random.latency(self.settings.typical.task);
                self.push(i, after, InstanceEvent::Lead(collection));
            }
            if has_moved {
                self.feed_moved(i);
            }
        }
    }

    /// Adds a number to the trace.
    pub(crate) fn record(&mut self, number: u64) {
        self.trace = (self.trace.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Returns a hash of all events and answers.
    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    pub(crate) fn violated(&mut self, rule: &'static str, detail: &str) {
        self.violation.get_or_insert(Violation {
            rule,
            detail: format!("step {}, {} ns: {detail}", self.counts.steps, self.now.0),
        });
    }

    /// Checks that the entries stay within the capacity, and that the counters equal them.
    fn check_counters(&mut self) {
        for i in 0..self.instances.len() {
            #[cfg(feature = "failpoints")]
            if let Err(difference) = self.instances[i].cache.check_accounting() {
                self.violated("counters differ from the store", &difference);
            }
            let cache = &self.instances[i].cache;
            let collections = (0..COLLECTIONS).map(CollectionId);
            let bytes: u64 = collections.map(|collection| cache.stats(collection).bytes).sum();
            if bytes > cache.config().capacity_bytes {
                let detail = format!("{bytes} bytes, capacity {}", cache.config().capacity_bytes);
                self.violated("entries exceed the capacity", &detail);
            }
        }
    }
}

impl Instance {
    fn new(settings: &Settings, keys: &Arc<Keys>) -> Self {
        let policies = vec![settings.policy.clone(); usize::from(COLLECTIONS)];
        let cache = Cache::new(settings.cache.clone(), policies);
        if settings.has_aliases {
            cache.expect_aliases(CollectionId(COLLECTIONS - 1));
        }
        if settings.engine.standbys > 0 {
            cache.expect_standbys(SourceId::FIRST);
        }
        Self {
            sink: SimulatedSink::new(cache.clone(), keys.clone()),
            cache,
            feed: Feed::default(),
            loaders: Slab::default(),
            requests: Slab::default(),
            snapshots: Slab::default(),
            looks: Arc::new(Looks::new(1)),
            woken: Arc::default(),
            floors: vec![0; keys.len()],
            failed_at: HashMap::with_hasher(FixedState::with_seed(3)),
            absent: HashMap::with_hasher(FixedState::with_seed(2)),
            admission: Admission::new(settings, usize::from(COLLECTIONS), START),
            position_waiters: Vec::new(),
            frozen_until: Nanos::ZERO,
        }
    }
}
