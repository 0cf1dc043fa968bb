//! From a record to an answer: what of it the sender sees, in which form, under which conditions.
//!
//! A view is an answer with the columns that the sender may see, cut from the whole record on the
//! way out. One entry serves all. The entity tag of a view is the hash of the view: it reveals
//! nothing of the other columns, and a change of these alone does not change it. A view is never
//! compressed: an entry keeps compressed forms of the whole record only.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::body::Body;
use hotrow_answer::budgets::{Budgets, COUNTED_BYTES_MIN};
use hotrow_answer::collections::Collections;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::record_answer::{AbsentAnswer, OtherBody, RecordAnswer};
use hotrow_answer::respond::{Provenance, position_value, precondition_failed};
use hotrow_answer::tenant_filter::{TenantFilter, absent_position};
use hotrow_cache::{Cache, Presence, ReadMode, Record, hash_of_body};
use hotrow_measure::clock::Nanos;
use hotrow_representation::compression::Compressor;
use hotrow_representation::precondition::{self, Precondition};
use hotrow_representation::record_form::{RecordForm, etag};
use hotrow_source::ReadFailure;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::columns::Columns;
use hotrow_types::key::Key;
use hotrow_types::version::Position;
use http::HeaderValue;

use crate::shared::Shared;

/// Maker of the answers of one worker, under the settings in force.
pub(crate) struct AnswerBuilder {
    pub(crate) cache: Arc<Cache<ReadFailure>>,
    collections: Arc<Collections>,
    compressor: Arc<Compressor>,
    budgets: Arc<Budgets>,
    /// The last position as a header value: most entries were read while the feed stood still.
    last_position: RefCell<Option<(Position, HeaderValue)>>,
}

impl AnswerBuilder {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            cache: Arc::clone(&shared.cache),
            collections: Arc::clone(&shared.collections),
            compressor: Arc::clone(&shared.compressor),
            budgets: Arc::clone(&shared.budgets),
            last_position: RefCell::default(),
        }
    }

    /// Answers with a record. `size`: its reservation from before the read, if it was read.
    pub(crate) fn answer(
        &self,
        record: Record,
        provenance: Provenance,
        request: &ReadRequest<'_>,
        size: Option<AnswerReservation>,
    ) -> Outcome {
        if !request.sight.sees(&record) {
            return self.absent(&record, provenance.outcome);
        }
        request.connection.collect(&record, provenance.outcome);
        let is_found = record.presence() == Presence::Found;
        let collection = self.collections.get(record.collection());
        let (form, view) = match request.columns {
            Some(columns) if is_found => view_of(record, columns),
            _ => {
                let compression = collection.compression.as_ref();
                (self.compressor.form(record, compression, request.headers), None)
            }
        };
        let hash = view.as_ref().map_or_else(|| form.record().body_hash(), |view| view.hash);
        let condition = if precondition::has_any(request.headers) {
            let etag = etag(hash);
            precondition::evaluate(request.headers, is_found.then_some(&etag), form.coding())
        } else {
            Precondition::Holds
        };
        let purges = (request.is_purgeable, &*self.cache);
        let sharing = collection.sharing(form.record(), provenance.outcome, purges);
        let answer = |form, instead, is_known| {
            let answer =
                RecordAnswer { form, provenance, instead, is_known, sharing, rate_limit: None };
            (Answer::Record(answer), provenance.outcome)
        };
        match condition {
            Precondition::Fails => {
                let hash = is_found.then_some(hash);
                let response = precondition_failed(form.record(), hash, provenance);
                (response.into(), provenance.outcome)
            }
            // A view has one form.
            Precondition::NotModified(_) if view.is_some() => answer(form, view, true),
            Precondition::NotModified(named) => answer(form.named(named), None, true),
            Precondition::Holds => {
                let bytes = view.as_ref().map_or(form.bytes().len(), |view| view.body.len());
                if (bytes as u64) < COUNTED_BYTES_MIN {
                    return answer(form, view, false);
                }
                let body = view.map_or_else(|| Body::Record(form.clone()), |view| view.body);
                match self.budgets.hold(body, size, request.connection) {
                    Ok(body) => answer(form, Some(Box::new(OtherBody { body, hash })), false),
                    Err(refused) => Answer::refused(refused),
                }
            }
        }
    }

    /// Answers as if the record did not exist. `outcome` is for the metrics alone.
    #[cold]
    pub(crate) fn absent(&self, record: &Record, outcome: CacheOutcome) -> Outcome {
        let source = self.cache.source_of(record.collection());
        let answer = AbsentAnswer {
            collection: record.collection(),
            position: absent_position(self.cache.applied(source), record.position()),
            rate_limit: None,
        };
        (Answer::Absent(answer), outcome)
    }

    /// Returns a position as a header value.
    pub(crate) fn position(&self, position: Position) -> HeaderValue {
        let mut last = self.last_position.borrow_mut();
        let is_same = |own: &&mut (Position, HeaderValue)| own.0 == position;
        if let Some((_, value)) = last.as_mut().filter(is_same) {
            return value.clone();
        }
        last.insert((position, position_value(position))).1.clone()
    }

    /// Returns a stale answer that the sender sees, unless the request revalidates.
    pub(crate) fn stale_if_error(
        &self,
        key: &Key,
        mode: ReadMode,
        sight: TenantFilter<'_>,
        now: Nanos,
    ) -> Option<(Record, Provenance)> {
        if mode == ReadMode::Revalidate {
            return None;
        }
        let record = self.cache.stale_if_error(key, now).filter(|record| sight.sees(record))?;
        let age = self.cache.age(&record, now);
        Some((record, Provenance { outcome: CacheOutcome::Stale, age }))
    }
}

/// Returns a record as it is, and the view of it that is sent instead.
#[cold]
fn view_of(record: Record, columns: &Columns) -> (RecordForm, Option<Box<OtherBody>>) {
    let view = record.view(columns);
    let hash = hash_of_body(&view);
    (record.into(), Some(Box::new(OtherBody { body: Body::Bytes(Bytes::from(view)), hash })))
}
