//! Several records by the values of an alias.

use std::borrow::Borrow;
use std::rc::Rc;

use super::rendered::render;
use hotrow_answer::answer::Answer;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::ids::Ids;
use hotrow_cache::ReadMode;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::traces::{ReadKind, WaitingRequest};
use hotrow_types::key::{CollectionId, Key};

use super::answers::{Answers, View};
use crate::alias::{
    AliasDemand, admit_by_alias, alias_requirement, held_by_alias, read_by_alias, stale_by_alias,
};
use crate::reads::Reads;
use crate::step::Step;

/// Answers a batch whose ids are values of an alias of the collection.
pub(super) fn batch_by_alias(
    reads: &Rc<Reads>,
    id: CollectionId,
    ids_kept: impl Borrow<Ids> + 'static,
    request: &ReadRequest<'_>,
) -> Step {
    let ids = ids_kept.borrow();
    let now = request.times.now;
    let subject = reads.lookups.scan_subject(request);
    let (mode, wanted) = match alias_requirement(subject, request) {
        Ok(requirement) => requirement,
        Err(problem) => return Step::refused(problem),
    };
    let from_memory = wanted.is_none() && mode != ReadMode::Revalidate;
    if from_memory {
        reads.lookups.requested_by_alias(&ids.keys, mode, now);
    }
    let budgets = &reads.budgets;
    let mut answers = Answers::new(&reads.cache, ids, budgets.answer(), View::of(request));
    let mut cold = Vec::new();
    for (place, alias) in ids.keys.iter().enumerate() {
        let held = from_memory.then(|| held_by_alias(reads, alias, subject, now)).flatten();
        match held {
            Some((record, how)) => _ = answers.put(place, record, how),
            None => cold.push(place),
        }
    }
    if let Err(refused) = answers.reserve_found(budgets.row_bytes(id)) {
        return Step::refused(budgets.refused(&refused, ids.keys.len()));
    }
    if cold.is_empty() {
        return Step::Now(render(reads, request.connection, id, ids, answers));
    }
    let admitted = admit_by_alias(reads, id, (mode, wanted), cold.len(), request);
    let (deadline, in_flight) = match admitted {
        Ok(admitted) => admitted,
        Err(problem) => {
            for place in cold.into_iter().filter(|_| from_memory) {
                if let Some((record, how)) =
                    stale_by_alias(reads, &ids.keys[place], request.sight, now)
                {
                    _ = answers.put(place, record, how);
                }
            }
            return match answers.unanswered {
                0 => Step::Now(render(reads, request.connection, id, ids, answers)),
                _ => Step::refused(problem),
            };
        }
    };
    let fetcher = &reads.fetcher;
    let keys: Vec<Key> = cold.iter().map(|place| ids.keys[*place].clone()).collect();
    let logged = keys.first().and_then(|key| fetcher.query_log.enter(key, request.headers));
    let kind = wanted.map_or(mode.into(), |_| ReadKind::MinPosition);
    let waiting = fetcher.trace(request, &keys.iter().collect::<Vec<_>>(), kind);
    let reads = Rc::clone(reads);
    let arrived = Nanos::now();
    let request = request.to_pending();
    Step::later(waiting.as_ref().map(WaitingRequest::slot), async move {
        let _kept = (in_flight, logged);
        let request = request.context();
        let demand = AliasDemand { mode, wanted, deadline, traced: waiting.as_ref() };
        let read = read_by_alias(&reads, &keys, demand, &request, &mut answers.size).await;
        let read = match read {
            Ok(read) => read,
            Err(problem) => {
                let stale = |key| stale_by_alias(&reads, key, request.sight, Nanos::now());
                let stale = || keys.iter().map(stale).collect::<Option<Vec<_>>>();
                match from_memory.then(stale).flatten() {
                    Some(stale) => stale,
                    None => return Answer::refused(problem),
                }
            }
        };
        for (place, (record, how)) in cold.into_iter().zip(read) {
            reads.admission.waited(arrived, &Ok(record.clone()));
            _ = answers.put(place, record, how);
        }
        render(&reads, request.connection, id, ids_kept.borrow(), answers)
    })
}
