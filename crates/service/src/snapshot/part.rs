//! The part of a snapshot batch that is of one collection.

use std::borrow::Borrow;

use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_answer::read_requirement::ReadRequirement;
use hotrow_answer::respond::Provenance;
use hotrow_cache::Record;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Position;

use crate::batch::answers::View;

/// A record of a snapshot, and where it came from.
pub(super) type Taken = (Record, Provenance);

/// The keys of one collection, and what their sender may see of it.
pub(crate) struct Part {
    pub(super) id: CollectionId,
    ids: Box<dyn Borrow<Ids>>,
    pub(super) view: View,
    pub(super) required: Result<ReadRequirement, &'static HttpError>,
}

impl Part {
    /// Takes the ids of a batch of the request's collection.
    pub(crate) fn new(
        id: CollectionId,
        ids: impl Borrow<Ids> + 'static,
        request: &ReadRequest<'_>,
    ) -> Self {
        Self { id, ids: Box::new(ids), view: View::of(request), required: request.required }
    }

    pub(super) fn ids(&self) -> &Ids {
        (*self.ids).borrow()
    }

    pub(super) fn keys(&self) -> &[Key] {
        &self.ids().keys
    }
}

/// Refusal of a snapshot batch by an alias.
pub(crate) const OF_ALIAS: &str = "a snapshot batch names records by their keys, not by an alias";

/// The records of all parts at one point of the log.
pub(super) struct Found {
    /// By part, in the order of its keys.
    pub(super) records: Vec<Vec<Taken>>,
    pub(super) point: Position,
    /// Reservation of the answer.
    pub(super) size: AnswerReservation,
}
