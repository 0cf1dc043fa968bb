//! Views of records: answers with the columns that the sender may see, cut from the whole record on
//! the way out. One entry serves all. The entity tag of a view is the hash of the view: it
//! reveals nothing of the other columns, and a change of these alone does not change it. A view is
//! never compressed: an entry keeps compressed forms of the whole record only.

use std::sync::Arc;

use bytes::Bytes;
use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_answer::answer::Outcome;
use hotrow_answer::body::Body;
use hotrow_answer::context::RequestContext;
use hotrow_answer::respond::{Provenance, precondition_failed, view_of_record};
use hotrow_cache::{Record, hash_of_body};
use hotrow_representation::header_writer;
use hotrow_representation::precondition::{self, Precondition};
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::columns::Columns;
use http::StatusCode;

use crate::handle::Handler;

impl Handler {
    /// Answers with a view of a record that exists.
    #[cold]
    pub(crate) fn narrow(
        &self,
        record: &Record,
        columns: &Arc<Columns>,
        provenance: Provenance,
        (request, size): (&RequestContext<'_>, Option<AnswerReservation>),
    ) -> Outcome {
        let view = record.view(columns);
        let hash = hash_of_body(&view);
        let collection = self.shared.collections.get(record.collection());
        let etag = header_writer::etag(hash);
        let body = match precondition::evaluate(request.headers, Some(&etag), None) {
            Precondition::Fails => {
                let response =
                    precondition_failed(record, Some(hash), provenance, &self.header_writer);
                return (response.into(), provenance.outcome);
            }
            Precondition::NotModified(_) => Body::Empty,
            Precondition::Holds => Body::Bytes(Bytes::from(view)),
        };
        let purges = (request.is_purgeable, &*self.shared.cache);
        let shared = (provenance, collection.sharing(record, provenance.outcome, purges));
        let mut response =
            view_of_record(record, (body, hash), shared, collection, &self.header_writer);
        self.note_read(&mut response, Some(record.read_at()));
        let response = self.shared.budgets.hold(response, size, request.connection);
        let is_refused = response.status().is_server_error()
            || response.status() == StatusCode::PAYLOAD_TOO_LARGE;
        let outcome = if is_refused { CacheOutcome::None } else { provenance.outcome };
        (response.into(), outcome)
    }
}
