//! What each message does to a server's cache.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hotrow_hub::codec::{self, DecodeError};
use hotrow_hub::follower::{Follower, Lost, Obstacle, Step};
use hotrow_hub::message::{Event, FlushReason, Mark, Nonce, Watermark};
use hotrow_hub::rules::{Rule, Rules};
use hotrow_hub::tag::Tag;
use hotrow_measure::clock::Nanos;
use hotrow_source::catalog_watermark::CatalogWatermark;
use hotrow_source::looks::Looks;
use hotrow_source::origin::{Origin, Origins};
use hotrow_source::{Change, FlushCause, LossCause, Sink};
use hotrow_types::key::{CollectionId, KeySchema};
use hotrow_types::version::{ChangeId, Position};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::connection::{HubError, failed};

/// Most questions whose time is remembered. An answer to an older one is not used.
const QUESTIONS_MAX: usize = 256;
/// Most looks that wait until their commits are applied.
const LOOKS_MAX: usize = 64;

/// Settings that bound what a message proves.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bound on staleness.
    pub max_staleness: Duration,
    /// Bound on the age of the tables' confirmed shapes.
    pub schema_poll: Duration,
}

/// State of a server that follows the hub.
pub(crate) struct ServerState {
    sink: Arc<dyn Sink>,
    rules: Rules,
    follower: Follower,
    schemas: Vec<KeySchema>,
    names: Vec<String>,
    /// Collections by tag: several may serve one table.
    by_tag: HashMap<Tag, Vec<usize>>,
    origins: Arc<Origins>,
    origin: Option<Origin>,
    bounds: Bounds,
    instance: u64,
    random: SystemRandom,
    questions: VecDeque<(u128, Nanos)>,
    /// Time at which the newest answered question was sent.
    answered: Option<Nanos>,
    applied: u64,
    /// Looks at the log's end for requests that are not passed, with the time of each. At most
    /// [`LOOKS_MAX`].
    looks: VecDeque<(Nanos, Position)>,
    gaps: HashSet<CollectionId>,
    last_obstacle: String,
}

/// Collections of a feed, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct HubCollections {
    /// Names, for the log.
    pub names: Vec<String>,
    /// Tables with their keys, as the hub identifies them.
    pub tags: Vec<Tag>,
    /// Keys.
    pub schemas: Vec<KeySchema>,
}

impl ServerState {
    pub(crate) fn new(
        sink: Arc<dyn Sink>,
        collections: HubCollections,
        origins: Arc<Origins>,
        bounds: Bounds,
        rules: Rules,
        instance: u64,
    ) -> Self {
        let HubCollections { names, tags, schemas } = collections;
        let mut by_tag: HashMap<Tag, Vec<usize>> = HashMap::new();
        for (index, tag) in tags.iter().enumerate() {
            by_tag.entry(*tag).or_default().push(index);
        }
        Self {
            sink,
            rules,
            follower: Follower::new(tags, rules),
            schemas,
            names,
            by_tag,
            origins,
            origin: None,
            bounds,
            instance,
            random: SystemRandom::new(),
            questions: VecDeque::new(),
            answered: None,
            applied: 0,
            looks: VecDeque::new(),
            gaps: HashSet::new(),
            last_obstacle: String::new(),
        }
    }

    /// Returns a new question, asked now: random, so that no participant of the hub can have asked
    /// it before.
    pub(crate) fn ask(&mut self) -> Result<Nonce, HubError> {
        let mut question = [0; 16];
        self.random.fill(&mut question).map_err(failed("choosing a random question"))?;
        let question = u128::from_be_bytes(question);
        if self.questions.len() >= QUESTIONS_MAX {
            self.questions.pop_front();
        }
        self.questions.push_back((question, Nanos::now()));
        Ok(Nonce { instance: self.instance, question })
    }

    /// Records that the readers lead to a database.
    pub(crate) fn readers_found(&mut self) {
        self.set_origin(self.origins.current());
    }

    /// Records that the session of the readers' database ended.
    pub(crate) fn readers_lost(&mut self, cause: LossCause, detail: &str) {
        if self.follower.set_origin(None) || matches!(cause, LossCause::OtherDatabase) {
            self.sink.loss(cause, detail);
        }
        self.origin = None;
    }

    fn set_origin(&mut self, origin: Option<Origin>) {
        let name = origin.as_ref().map(|origin| origin.name.clone());
        if self.follower.set_origin(name) {
            self.sink.loss(LossCause::OtherDatabase, "the readers lead to another database");
        }
        self.origin = origin;
    }

    /// Reports that the table of a collection changed its shape.
    pub(crate) fn flush(
        &self,
        collection: CollectionId,
        cause: FlushCause,
        mark: Option<ChangeId>,
    ) {
        self.sink.flush(collection, cause, mark);
    }

    /// Forgets the chain: the next subscription begins at the end of the stream.
    pub(crate) fn reset(&mut self, why: &str) {
        if self.follower.reset() {
            self.sink.loss(LossCause::Hub, why);
        }
    }

    /// Processes a message of the stream.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let message = match codec::decode(bytes) {
            Ok(message) => message,
            Err(error) => return self.refuse(&error),
        };
        match self.follower.receive(&message) {
            Step::Ignored | Step::Continued => {}
            Step::Apply { events, complete } => {
                self.apply(events);
                self.applied = self.applied.max(complete);
                if let Some(answered) = self.answered {
                    self.advance(answered, None);
                }
            }
            Step::Advance(watermark) => self.answered(watermark, message.complete),
            Step::Join(watermark) => self.join(watermark, message.complete),
            Step::Lost(lost) => self.lose(&lost),
            Step::CannotJoin(obstacle) => self.report(&obstacle),
        }
    }

    fn refuse(&mut self, error: &DecodeError) {
        self.explain(&error.to_string());
        self.reset(&error.to_string());
    }

    fn lose(&mut self, lost: &Lost) {
        let cause = match lost {
            Lost::AtRelay(cause, _) => {
                LossCause::ALL.get(usize::from(*cause)).copied().unwrap_or(LossCause::Hub)
            }
            Lost::OtherOrigin { relay, .. } => {
                self.origins.expect(relay);
                LossCause::OtherDatabase
            }
            Lost::Began { .. } | Lost::Gap { .. } | Lost::NoBeginning(_) | Lost::Lower(_) => {
                LossCause::Hub
            }
        };
        self.sink.loss(cause, &lost.to_string());
    }

    fn report(&mut self, obstacle: &Obstacle) {
        match obstacle {
            Obstacle::OtherOrigin { relay, .. } => {
                self.origins.expect(relay);
                self.explain(&obstacle.to_string());
            }
            Obstacle::Collection(index) => {
                let name = self.names.get(*index).map_or("?", String::as_str);
                self.explain(&format!(
                    "the relay does not publish collection `{name}`: give the relay a collection \
                     with the same table and key"
                ));
            }
            Obstacle::Hidden => self.explain(&obstacle.to_string()),
        }
    }

    /// Logs why the server does not follow, once per reason.
    pub(crate) fn explain(&mut self, why: &str) {
        if self.last_obstacle != why {
            tracing::error!(error = %why, "the change hub cannot be followed; trying again");
            why.clone_into(&mut self.last_obstacle);
        }
    }

    fn join(&mut self, watermark: &Watermark, complete: u64) {
        self.last_obstacle.clear();
        self.origins.expect(&watermark.origin);
        let open: HashSet<CollectionId> =
            watermark.gaps.iter().flat_map(|tag| self.collections(*tag)).collect();
        for collection in std::mem::take(&mut self.gaps).difference(&open) {
            self.sink.close_gap(*collection);
        }
        self.applied = watermark.end.max(complete);
        self.answered = None;
        self.sink.started(Some(self.position()));
        self.sink.looks().into_iter().for_each(Looks::open);
        // Reads of this server may not see them yet: marks of every key.
        let hidden = watermark.hidden.iter().flatten();
        for mark in hidden.filter(|_| self.rules.has(Rule::Hidden)) {
            for schema in &self.schemas {
                let mark = Some(self.change(*mark));
                self.sink.flush(schema.collection(), FlushCause::Unlisted, mark);
            }
        }
        for collection in open {
            self.open_gap(collection, "the relay may miss its changes");
        }
        self.answered(watermark, complete);
    }

    fn answered(&mut self, watermark: &Watermark, complete: u64) {
        self.applied = self.applied.max(watermark.end).max(complete);
        let is_answered = |(question, _): &(u128, Nanos)| watermark.answers.contains(question);
        if let Some(newest) = self.questions.iter().rposition(is_answered) {
            let (_, asked_at) = self.questions.drain(..=newest).next_back().unzip();
            self.answered = self.answered.max(asked_at);
        }
        if let Some(answered) = self.answered {
            self.advance(answered, Some(watermark));
        }
    }

    fn advance(&mut self, answered: Nanos, watermark: Option<&Watermark>) {
        let Bounds { max_staleness, schema_poll } = self.bounds;
        let confirmed_at = self.origins.shapes_confirmed_at();
        let shapes = CatalogWatermark::new(schema_poll, max_staleness, confirmed_at);
        let incarnation = self.incarnation();
        let visible = watermark.and_then(|watermark| watermark.visible.as_ref());
        let visible = visible.map(|visible| visible.version(incarnation));
        self.sink.advance(shapes.effective(answered), Some(self.position()), visible.as_ref());
        self.pass_looks();
    }

    /// Takes where the readers' database ended its log at a look for requests.
    pub(crate) fn looked(&mut self, sent_at: Nanos, end: Position) {
        if self.looks.len() >= LOOKS_MAX {
            // The oldest is passed next.
            self.looks.pop_back();
        }
        self.looks.push_back((sent_at, end));
        self.pass_looks();
    }

    /// Passes the looks before which every commit is applied.
    fn pass_looks(&mut self) {
        // None of another log is passed.
        let applied = self.answered.map(|_| self.position());
        let is_passed = |look: &(Nanos, Position)| {
            applied.is_some_and(|applied| {
                applied.incarnation != look.1.incarnation || applied.reaches(&look.1)
            })
        };
        while let Some((sent_at, end)) = self.looks.pop_front_if(|look| is_passed(look)) {
            if applied.is_some_and(|applied| applied.reaches(&end)) {
                self.sink.looks().into_iter().for_each(|looks| looks.passed(sent_at));
            }
        }
    }

    fn incarnation(&self) -> u64 {
        self.origin.as_ref().map_or(0, |origin| origin.incarnation)
    }

    fn position(&self) -> Position {
        Position { incarnation: self.incarnation(), at: self.applied }
    }

    fn change(&self, mark: Mark) -> ChangeId {
        match mark {
            // Unknown: no standby has replayed it.
            Mark::Transaction(xid) => ChangeId::Transaction { xid, commit: u64::MAX },
            Mark::Commit(at) => ChangeId::Commit(Position { incarnation: self.incarnation(), at }),
            Mark::Gtid(gtid) => ChangeId::Gtid(gtid),
        }
    }

    fn collections(&self, tag: Tag) -> Vec<CollectionId> {
        let indices = self.by_tag.get(&tag).into_iter().flatten();
        indices.filter_map(|index| self.schemas.get(*index)).map(KeySchema::collection).collect()
    }

    fn apply(&mut self, events: &[Event]) {
        let mut changes = Vec::new();
        for event in events {
            if let Event::Change { collection, key, mark } = event {
                let mark = self.change(*mark);
                for index in self.by_tag.get(collection).into_iter().flatten() {
                    let Some(schema) = self.schemas.get(*index) else { continue };
                    match schema.key_of_columns(key) {
                        Ok(key) => changes.push(Change { key, mark }),
                        // Which record it is cannot be known: it may be any.
                        Err(_) => {
                            self.sink.flush(schema.collection(), FlushCause::Bulk, Some(mark));
                        }
                    }
                }
                continue;
            }
            // In the order of the log.
            self.deliver(&mut changes);
            self.apply_whole(event);
        }
        self.deliver(&mut changes);
    }

    fn deliver(&self, changes: &mut Vec<Change>) {
        if !changes.is_empty() {
            self.sink.changes(changes);
            changes.clear();
        }
    }

    /// Applies an event of a whole collection.
    fn apply_whole(&mut self, event: &Event) {
        for collection in self.collections(event.collection()) {
            match event {
                Event::Change { .. } => {}
                Event::Flush { cause, mark, .. } => {
                    let cause = match cause {
                        FlushReason::Bulk => FlushCause::Bulk,
                        FlushReason::Schema => FlushCause::Schema,
                        FlushReason::Unlisted => FlushCause::Unlisted,
                    };
                    self.sink.flush(collection, cause, mark.map(|mark| self.change(mark)));
                }
                Event::OpenGap { detail, .. } => self.open_gap(collection, detail),
                Event::CloseGap { .. } => {
                    if self.gaps.remove(&collection) {
                        self.sink.close_gap(collection);
                    }
                }
            }
        }
    }

    fn open_gap(&mut self, collection: CollectionId, detail: &str) {
        self.gaps.insert(collection);
        self.sink.open_gap(collection, detail);
    }
}

#[cfg(test)]
mod tests;
