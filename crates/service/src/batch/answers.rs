//! Answers of a batch as they come in: what its sender sees of them, the worst provenance, and the
//! largest position.

use std::rc::Rc;
use std::sync::Arc;

use hotrow_admission::byte_budget::{AnswerRefused, AnswerReservation};
use hotrow_answer::budgets::COUNTED_BYTES_MIN;
use hotrow_answer::context::{ConnectionContext, ReadRequest};
use hotrow_answer::ids::Ids;
use hotrow_answer::render::Item;
use hotrow_answer::respond::Provenance;
use hotrow_answer::tenant_filter::{TenantFilterBuf, absent_position};
use hotrow_cache::{Cache, Presence, Record};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::columns::Columns;
use hotrow_types::key::Key;
use hotrow_types::version::Position;

/// What the sender of a batch sees of its records.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) sight: TenantFilterBuf,
    pub(crate) columns: Option<Arc<Columns>>,
    /// The sender's connection, if its client may keep copies.
    collector: Option<Rc<ConnectionContext>>,
}

impl View {
    pub(crate) fn of(request: &ReadRequest<'_>) -> Self {
        let collector = request.connection.is_redis.then(|| Rc::clone(request.connection));
        Self { sight: request.sight.to_buf(), columns: request.columns.cloned(), collector }
    }
}

/// Answers found so far, with the worst provenance and the largest position.
pub(crate) struct Answers {
    /// `None`: absent, or unanswered so far.
    pub(crate) items: Vec<Option<Item>>,
    /// Number of keys without an answer so far.
    pub(crate) unanswered: usize,
    pub(crate) view: View,
    /// Point that the feed had passed, where the sender does not see all records.
    pub(crate) applied: Option<Position>,
    pub(crate) worst: Provenance,
    /// Whether `worst` is part of the answer: where the sender does not see all records, it is that
    /// of the visible ones.
    pub(crate) is_described: bool,
    pub(crate) token: Token,
    /// Time of the last read of a visible record.
    pub(super) read_at: Option<Nanos>,
    /// Bytes of the records.
    pub(crate) bytes: u64,
    /// Reservation of the answer in the budget.
    pub(crate) size: AnswerReservation,
}

/// Token of several records: the largest of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    None,
    Largest(Position),
    /// Two logs, because one has just been replaced. No point of either covers the other's records.
    Mixed,
}

impl Token {
    fn take_in(&mut self, position: Option<Position>) {
        let Some(position) = position else { return };
        *self = match *self {
            Self::None => Self::Largest(position),
            Self::Largest(largest) if largest.incarnation != position.incarnation => Self::Mixed,
            Self::Largest(largest) if position.reaches(&largest) => Self::Largest(position),
            unchanged => unchanged,
        };
    }

    pub(crate) fn position(self) -> Option<Position> {
        match self {
            Self::Largest(position) => Some(position),
            Self::None | Self::Mixed => None,
        }
    }
}

impl Answers {
    /// Returns room for the answers of a batch.
    pub(crate) fn new(
        cache: &Cache<ReadFailure>,
        ids: &Ids,
        size: AnswerReservation,
        view: View,
    ) -> Self {
        let is_limited = view.sight.is_limited();
        let id = ids.keys.first().filter(|_| is_limited).map(Key::collection);
        Self {
            items: vec![None; ids.keys.len()],
            unanswered: ids.keys.len(),
            applied: id.and_then(|id| cache.applied(cache.source_of(id))),
            worst: Provenance { outcome: CacheOutcome::Hit, age: std::time::Duration::ZERO },
            is_described: !is_limited,
            token: Token::None,
            read_at: None,
            bytes: 0,
            view,
            size,
        }
    }

    /// Takes an answer. Returns the bytes of what the sender sees of it.
    pub(crate) fn put(&mut self, place: usize, record: Record, how: Provenance) -> u64 {
        self.unanswered = self.unanswered.saturating_sub(1);
        if !self.view.sight.as_sight().sees(&record) {
            self.token.take_in(absent_position(self.applied, record.position()));
            return 0;
        }
        self.view.collector.iter().for_each(|own| own.collect(&record, how.outcome));
        self.is_described = true;
        self.read_at = self.read_at.max(Some(record.read_at()));
        if how.outcome.badness() > self.worst.outcome.badness() {
            self.worst.outcome = how.outcome;
        }
        self.worst.age = self.worst.age.max(how.age);
        self.token.take_in(record.position());
        if record.presence() == Presence::Missing {
            return 0;
        }
        let bytes = match &self.view.columns {
            None => {
                let bytes = record.body().len();
                self.items[place] = Some(Item::Whole(record));
                bytes
            }
            Some(columns) => {
                let view = record.view(columns);
                let bytes = view.len();
                self.items[place] = Some(Item::View(view.into()));
                bytes
            }
        } as u64;
        self.bytes += bytes;
        bytes
    }

    /// Reserves the size of the hits. The cache may drop these records while the answer still holds
    /// them.
    pub(super) fn reserve_found(&mut self, row_bytes: u64) -> Result<(), AnswerRefused> {
        if self.bytes < COUNTED_BYTES_MIN {
            Ok(())
        } else {
            self.size.add_known(self.bytes, row_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_covers_every_record_or_is_none() {
        let p = |incarnation, at| Some(Position { incarnation, at });
        let of = |all: &[Option<Position>]| {
            let mut token = Token::None;
            all.iter().for_each(|position| token.take_in(*position));
            token.position()
        };
        assert_eq!(of(&[None]), None);
        assert_eq!(of(&[p(1, 3), p(1, 5), None, p(1, 4)]), p(1, 5));
        assert_eq!(
            of(&[p(1, 112), p(2, 9), p(1, 33)]),
            None,
            "a point of one log says nothing about the other"
        );
    }
}
