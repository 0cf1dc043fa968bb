//! The tracking clients of one worker. One thread uses them.
//!
//! The feed's thread notes a change once, whatever the number of clients, and wakes one task per
//! worker. That task reads the log, and puts what each client must give up into its mailbox.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hotrow_answer::collections::Collections;
use hotrow_changes::tracking::{Mailbox, Owner, Redirect, Tracking};
use hotrow_measure::clock::Nanos;
use hotrow_push::invalidation::Reading;
use hotrow_push::tracking::{
    AllCause, Names, Prefixes, Push, TrackedClient, TrackedKey, TrackedUsage, TrackingTable,
};
use hotrow_types::key::{CollectionId, Key, percent_decode};
use hotrow_types::source::SourceId;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::access::{ClientSender, Judged, TrackingRules};

/// Least time between two looks at the log: changes of one burst reach a client with one write.
const ROUND_INTERVAL: Duration = Duration::from_millis(1);
/// Most changes between two turns of other tasks.
const CHANGES_PER_ROUND: usize = 256;
/// Interval of looking for expired copies, and at the staleness of the feeds.
const TICK: Duration = Duration::from_millis(100);
/// Ticks between two looks at the credentials of clients.
const TICKS_PER_JUDGEMENT: u32 = 10;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct WorkerTracking {
    pub(crate) shared: Arc<Tracking>,
    state: RefCell<State>,
    /// The first client has begun.
    begun: Notify,
    /// The newest settings.
    rules: RefCell<Option<Rc<TrackingRules>>>,
}

#[derive(Debug)]
struct State {
    table: TrackingTable,
    /// By number of the client.
    slots: Vec<Option<Slot>>,
    /// Next invalidation of the log.
    place: u64,
    /// By source: copies of its records may be held. Cleared when they were given up because it is
    /// behind.
    is_vouched_for: Vec<bool>,
    /// What the counts contain of this worker.
    counted: TrackedUsage,
}

/// A client, and where its invalidations go.
#[derive(Debug)]
pub(super) struct Slot {
    id: TrackedClient,
    sender: Rc<ClientSender>,
    /// The beginnings of the keys whose changes it is informed of, if it broadcasts.
    broadcast: Option<Prefixes>,
    own: Arc<Mailbox>,
    redirect: Option<Redirect>,
    pub(crate) judged: Judged,
}

/// What a client that begins to track says of itself.
pub(crate) struct Registered {
    /// The connection that gets the invalidations; `None`: its own.
    pub(crate) redirect: Option<Redirect>,
    pub(crate) broadcast: Option<Prefixes>,
    pub(crate) own: Arc<Mailbox>,
    pub(crate) sender: Rc<ClientSender>,
}

/// A client's place in the table; freed when dropped.
#[derive(Debug)]
pub(crate) struct ClientGuard {
    worker: Rc<WorkerTracking>,
    id: TrackedClient,
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        let mut state = self.worker.state.borrow_mut();
        state.table.remove(self.id);
        let slot = state.slots.get_mut(self.id.index()).and_then(Option::take);
        drop(state);
        drop(slot);
        self.worker.shared.client_ended();
    }
}

/// Names of collections, for broadcasts.
struct NamesOf<'a>(&'a Collections);

impl Names for NamesOf<'_> {
    fn spelling(&self, key: &Key) -> Option<Vec<u8>> {
        spelling(self.0, key)
    }

    fn source_of(&self, collection: CollectionId) -> SourceId {
        self.0.get(collection).source
    }
}

/// Returns the text that names a key over this protocol; where several do, one of them.
pub(crate) fn spelling(collections: &Collections, key: &Key) -> Option<Vec<u8>> {
    let collection = collections.get(key.collection());
    let id = collection.schema.id_of(key.as_bytes())?;
    let id = percent_decode(&id).ok()?;
    Some([collection.name.as_bytes(), b":", id.as_bytes()].concat())
}

impl WorkerTracking {
    pub(crate) fn new(shared: &Arc<Tracking>) -> Rc<Self> {
        let state = State {
            table: shared.new_table(),
            slots: Vec::new(),
            place: 0,
            is_vouched_for: vec![true; shared.source_count()],
            counted: TrackedUsage::default(),
        };
        Rc::new(Self {
            shared: Arc::clone(shared),
            state: RefCell::new(state),
            begun: Notify::new(),
            rules: RefCell::default(),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Tracking> {
        &self.shared
    }

    /// Notes the newest settings, by which all clients are judged at once.
    pub(crate) fn set_rules(&self, rules: &Rc<TrackingRules>) {
        *self.rules.borrow_mut() = Some(Rc::clone(rules));
        self.judge_all();
    }

    /// Begins to track for a connection.
    pub(crate) fn register(self: &Rc<Self>, asked: Registered, judged: Judged) -> ClientGuard {
        // Before its place is taken and before its first lookup.
        self.shared.client_began();
        let mut state = self.state.borrow_mut();
        if state.table.usage().clients == 0 {
            state.place = self.shared.log_end();
            state.is_vouched_for.fill(true);
            self.begun.notify_one();
        }
        let Registered { redirect, broadcast, own, sender } = asked;
        let id = state.table.add(broadcast.clone());
        if state.slots.len() <= id.index() {
            state.slots.resize_with(id.index() + 1, || None);
        }
        let slot = Slot { id, sender, broadcast, own, redirect, judged };
        state.slots[id.index()] = Some(slot);
        ClientGuard { worker: Rc::clone(self), id }
    }

    /// Wakes up for changes, without end.
    pub(crate) async fn attend(&self) -> Infallible {
        let mut version = self.shared.subscribe();
        let mut next_tick = Instant::now();
        let mut ticks = 0_u32;
        loop {
            if self.state.borrow().table.usage().clients == 0 {
                self.count();
                self.begun.notified().await;
            }
            tokio::select! {
                biased;
                changed = version.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                () = tokio::time::sleep_until(next_tick) => {}
            }
            while self.round() {
                tokio::task::yield_now().await;
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                ticks = ticks.wrapping_add(1);
                self.tick(Nanos::now());
                if ticks.is_multiple_of(TICKS_PER_JUDGEMENT) {
                    self.judge_all();
                }
            }
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }

    /// Applies what waits in the log. Returns whether more waits.
    fn round(&self) -> bool {
        let Some(rules) = self.rules.borrow().clone() else { return false };
        let mut state = self.state.borrow_mut();
        let State { table, slots, place, .. } = &mut *state;
        if table.usage().clients == 0 {
            return false;
        }
        let mut changes = Vec::new();
        let reading = self.shared.read_log(place, CHANGES_PER_ROUND, &mut changes);
        let mut emit = |id, push: Push<'_>| deliver(slots, id, push);
        if reading == Reading::Overrun {
            table.all_give_up(AllCause::Behind, &mut emit);
        }
        let names = NamesOf(&rules.collections);
        changes.iter().for_each(|change| table.invalidate(change, &names, &mut emit));
        reading == Reading::More
    }

    /// Looks for what time alone brings about.
    fn tick(&self, now: Nanos) {
        let Some(rules) = self.rules.borrow().clone() else { return };
        let mut state = self.state.borrow_mut();
        let State { table, slots, is_vouched_for, .. } = &mut *state;
        let mut emit = |id, push: Push<'_>| deliver(slots, id, push);
        let names = NamesOf(&rules.collections);
        for (source, is_vouched_for) in (0..).map(SourceId).zip(is_vouched_for) {
            if *is_vouched_for && !rules.cache.is_current(source, now) {
                *is_vouched_for = false;
                table.source_gives_up(source, AllCause::Stale, &names, &mut emit);
            }
        }
        table.expire(now, &mut emit);
        drop(state);
        self.count();
    }

    fn count(&self) {
        let mut state = self.state.borrow_mut();
        let usage = state.table.usage();
        let before = std::mem::replace(&mut state.counted, usage);
        self.shared.counts.uses(before, usage);
    }

    /// Judges the credentials of all clients, if anything that they depend on has changed.
    fn judge_all(&self) {
        let Some(rules) = self.rules.borrow().clone() else { return };
        let mut state = self.state.borrow_mut();
        let State { table, slots, .. } = &mut *state;
        for index in 0..slots.len() {
            let Some(slot) = &mut slots[index] else { continue };
            let broadcast = slot.broadcast.as_ref();
            let Some(verdict) = slot.judged.again(&rules, &slot.sender, broadcast) else {
                continue;
            };
            let closed = (verdict.is_err() && broadcast.is_some()).then(|| Arc::clone(&slot.own));
            let id = slot.id;
            let mut emit = |id, push: Push<'_>| deliver(slots, id, push);
            table.give_up_all(id, AllCause::Access, &mut emit);
            closed.iter().for_each(|own| own.close());
        }
    }
}

/// Puts what a client must give up into its mailbox, or that of the connection which it has named.
fn deliver(slots: &mut [Option<Slot>], id: TrackedClient, push: Push<'_>) {
    let Some(Some(slot)) = slots.get_mut(id.index()) else { return };
    match &mut slot.redirect {
        None => _ = slot.own.deliver(push, None),
        Some(redirect) => {
            if !redirect.deliver(push) && !std::mem::replace(&mut redirect.is_broken, true) {
                slot.own.put_broken_redirect(redirect.id);
            }
        }
    }
}

/// What a connection does with its place.
impl ClientGuard {
    /// Returns the mistake that a test has planted.
    #[cfg(feature = "failpoints")]
    pub(crate) fn plant(&self) -> hotrow_push::tracking::TrackingPlant {
        self.worker.shared.plant
    }

    /// Counts the client, which did not take its output fast enough.
    pub(crate) fn was_slow(&self) {
        self.worker.shared.counts.slow();
    }

    /// Returns whether the connection that should get the invalidations is closed.
    pub(crate) fn has_broken_redirect(&self) -> bool {
        let state = self.worker.state.borrow();
        let slot = state.slots.get(self.id.index()).and_then(Option::as_ref);
        let redirect = slot.and_then(|slot| slot.redirect.as_ref());
        redirect.is_some_and(|redirect| !redirect.reaches(None))
    }

    /// Names another connection for the invalidations; `None`: the client's own. The one that was
    /// named before gives up everything.
    pub(crate) fn redirect(&self, to: Option<Redirect>) {
        let mut state = self.worker.state.borrow_mut();
        if let Some(Some(slot)) = state.slots.get_mut(self.id.index()) {
            slot.redirect = to;
        }
    }

    pub(crate) fn add_prefixes(&self, more: Prefixes) {
        let mut state = self.worker.state.borrow_mut();
        if let Some(Some(Slot { broadcast: Some(own), .. })) = state.slots.get_mut(self.id.index())
        {
            own.0.extend(more.0.iter().cloned());
        }
        state.table.add_prefixes(self.id, more);
    }

    /// Registers the keys of a command, before its lookup.
    pub(crate) fn begin(&self, keys: impl Iterator<Item = TrackedKey>) {
        self.worker.state.borrow_mut().table.begin(self.id, keys);
    }

    /// Ends the command, whose reply is written before what this puts into the mailbox. `keeps`:
    /// the source of a record, and until when its reply may be kept.
    pub(crate) fn replied(
        &self,
        is_error: bool,
        keeps: impl Fn(&Key) -> Option<(SourceId, Nanos)>,
    ) {
        let mut state = self.worker.state.borrow_mut();
        let State { table, slots, is_vouched_for, .. } = &mut *state;
        let mut keeps = |key: &Key| {
            let (source, until) = keeps(key)?;
            if let Some(own) = is_vouched_for.get_mut(source.index()) {
                *own = true;
            }
            Some(until)
        };
        let mut emit = |id, push: Push<'_>| deliver(slots, id, push);
        table.replied(self.id, is_error, &mut keeps, &mut emit);
    }

    /// Has the client give up everything, because it has another credential, with this judgement.
    /// A connection of another owner gets its invalidations no more.
    pub(crate) fn changed_credential(&self, judged: Judged, owner: &Owner) {
        let mut state = self.worker.state.borrow_mut();
        let State { table, slots, .. } = &mut *state;
        if let Some(Some(slot)) = slots.get_mut(self.id.index()) {
            slot.judged = judged;
            if let Some(redirect) = &mut slot.redirect
                && !redirect.reaches(Some(owner))
            {
                redirect.sever();
            }
        }
        let mut emit = |id, push: Push<'_>| deliver(slots, id, push);
        table.give_up_all(self.id, AllCause::Access, &mut emit);
    }
}
