//! Records that the sender of a request does not see.

use std::rc::Rc;

use hotrow_cache::{Lookup, ReadMode, Record};
use hotrow_telemetry::lookups::LookupKind;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::key::Key;

use super::{Handler, Step};
use crate::answer::{Answer, Outcome};
use crate::context::ReadRequest;
use crate::http_error::HttpError;
use crate::read::lead;
use crate::record_answer::AbsentAnswer;
use crate::respond::Provenance;
use crate::scan_detector::ScanSubject;
use crate::sight::absent_position;

impl Handler {
    /// Reads a key past memory: see [`Sight::must_read_again`]. In all other respects the request
    /// counts as one whose key is not in memory.
    #[cold]
    pub(crate) fn item_again(
        self: &Rc<Self>,
        key: Key,
        (mode, subject): (ReadMode, ScanSubject<'_>),
        request: &ReadRequest<'_>,
    ) -> Step {
        let id = key.collection();
        let now = request.times.now;
        let mut deadline = now;
        let mut size = None;
        let admit = || {
            deadline = self.admit_reads(id, mode, 1, request)?;
            size = Some(self.shared.budgets.answer_of_rows(id, 1)?);
            Ok(deadline)
        };
        let lookup = match self.shared.cache.lookup_if(&key, ReadMode::Revalidate, now, admit) {
            Ok(lookup) => lookup,
            Err(problem @ HttpError::BadHeader(_)) => return Step::refused(problem),
            Err(problem) => {
                self.lookups.count(id.0, LookupKind::Refused);
                return self.refused(&key, mode, request, problem);
            }
        };
        self.looked_up(subject, id, mode, &lookup);
        let (waiter, outcome) = match lookup {
            Lookup::Coalesced(waiter) => (waiter, CacheOutcome::Coalesced),
            Lookup::Miss(waiter) => (waiter, CacheOutcome::Miss),
            Lookup::Bypass(waiter) => (waiter, CacheOutcome::Bypass),
            Lookup::Refused(refusal) => {
                return self.refused(&key, mode, request, (&refusal).into());
            }
            // Not in this mode.
            Lookup::Hit(record, quality) | Lookup::Negative(record, quality) => {
                let age = self.shared.cache.age(&record, now);
                let provenance = Provenance::of_hit(quality, age);
                return Step::Now(self.answer(record, provenance, request, None));
            }
        };
        lead(&self.shared.fetcher, id);
        self.item_later(key, mode, (waiter, deadline, size), outcome, request)
    }

    /// Answers as if the record did not exist. `outcome` is for the metrics alone.
    #[cold]
    pub(crate) fn absent(&self, record: &Record, outcome: CacheOutcome) -> Outcome {
        let source = self.shared.cache.source_of(record.collection());
        let answer = AbsentAnswer {
            collection: record.collection(),
            position: absent_position(self.shared.cache.applied(source), record.position()),
            rate_limit: None,
        };
        (Answer::Absent(answer), outcome)
    }
}
