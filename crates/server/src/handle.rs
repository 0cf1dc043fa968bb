//! One request of the data listener, from route to answer. A hit is answered here and now, in one straight line; what
//! needs the database or the feed becomes a future.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hotrow_admit::shed::Kind;
use hotrow_cache::flight::Waiter;
use hotrow_cache::key::{CollectionId, Key};
use hotrow_cache::{Lookup, Quality, Record, Wish};
use hotrow_measure::clock::Nanos;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;

use crate::admit::deadline::Moments;
use crate::batch::{self, Ids};
use crate::body::Body;
use crate::connection::Serve;
use crate::habits;
use crate::lookups::{LookupKind, WorkerLookups};
use crate::metrics::{CacheOutcome, WorkerMetrics};
use crate::position;
use crate::problem::Problem;
use crate::read::{lead, wait};
use crate::respond::{HOTROW_MIN_POSITION, Provenance, respond};
use crate::route::Route;
use crate::shared::{Place, Shared};
use crate::trouble::Trouble;

/// An answer with how it came about, for the metrics.
pub type Outcome = (Response<Body>, CacheOutcome);

/// The data side of one worker.
#[derive(Clone)]
pub struct Handler {
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// This worker's own counts.
    pub metrics: Arc<WorkerMetrics>,
    /// This worker's own counts of lookups, by collection.
    pub lookups: Arc<WorkerLookups>,
}

impl Serve for Handler {
    type Out = Body;
    type Failure = Infallible;
    type Answer = Answer;

    fn serve(&self, request: Request<Incoming>, peer: IpAddr) -> Answer {
        let now = Nanos::now();
        match self.route(request, peer, now) {
            Step::Now(outcome) => Answer::Ready(Some(counted(&self.metrics, outcome, now))),
            Step::Later(future) => {
                let metrics = self.metrics.clone();
                Answer::Pending(Box::pin(async move { counted(&metrics, future.await, now) }))
            }
        }
    }
}

fn counted(metrics: &WorkerMetrics, (response, outcome): Outcome, since: Nanos) -> Response<Body> {
    metrics.answered(response.status().as_u16(), outcome);
    let took_ns = Nanos::now().0.saturating_sub(since.0);
    match outcome {
        CacheOutcome::Hit | CacheOutcome::Stale => metrics.hit_latency_ns.record(took_ns),
        CacheOutcome::Miss | CacheOutcome::Wait | CacheOutcome::Bypass => metrics.miss_latency_ns.record(took_ns),
        CacheOutcome::None => {}
    }
    response
}

/// A response that is there, or on its way.
pub enum Answer {
    /// Taken once.
    Ready(Option<Response<Body>>),
    /// On its way.
    Pending(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

impl Future for Answer {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            // Polled after completion only by mistake; then it never ends, as a fused future would.
            Self::Ready(response) => response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response))),
            Self::Pending(future) => future.as_mut().poll(cx).map(Ok),
        }
    }
}

/// Whether an answer is there at once.
pub enum Step {
    /// It is.
    Now(Outcome),
    /// It needs the database, the feed or the request's body.
    Later(Pin<Box<dyn Future<Output = Outcome> + Send>>),
}

impl Step {
    pub(crate) fn problem(problem: &Problem) -> Self {
        Self::Now((problem.response(), CacheOutcome::None))
    }
}

impl Handler {
    fn route(&self, request: Request<Incoming>, peer: IpAddr, now: Nanos) -> Step {
        let (uri, asker, at) = (request.uri(), (peer, request.headers()), Moments::of_arrival(now));
        match self.shared.router.route(request.method(), uri.path(), uri.query()) {
            Err(problem) => Step::problem(&problem),
            Ok(Route::Item(id, text)) => {
                if let Err(problem) = self.let_in_by_head(id, Kind::Hit, request.headers()) {
                    return Step::problem(&problem);
                }
                let parsed = self.shared.collection(id).schema.parse_url(text);
                self.limited(id, 1, asker, at, |handler, asked, at| match parsed {
                    Ok(key) => handler.item(key, asked, at),
                    Err(error) => Step::problem(&Problem::BadId(error)),
                })
            }
            Ok(Route::BatchGet(id, query)) => {
                let parsed = batch::parse_query(&self.shared, id, query);
                self.limited_batch(id, parsed, asker, at)
            }
            Ok(Route::BatchPost(id)) => {
                // Before its body takes memory.
                if let Err(problem) = self.let_in_by_head(id, Kind::Batch, request.headers()) {
                    return Step::problem(&problem);
                }
                if let Some(refusal) = self.limited_by_head(id, asker, now) {
                    return refusal;
                }
                let handler = self.clone();
                Step::Later(Box::pin(async move { handler.batch_post(id, request, peer, now).await }))
            }
        }
    }

    /// A batch that cannot be read costs as much as one id, and one that is shed nothing.
    pub(crate) fn limited_batch(
        &self,
        id: CollectionId,
        parsed: Result<Ids, Problem>,
        asker: (IpAddr, &HeaderMap),
        at: Moments,
    ) -> Step {
        if let Err(problem) = self.let_in_by_head(id, Kind::Batch, asker.1) {
            return Step::problem(&problem);
        }
        let ids = parsed.as_ref().map_or(1, Ids::len);
        self.limited(id, ids, asker, at, move |handler, asked, at| match parsed {
            Ok(ids) => handler.batch(id, ids, asked, at),
            Err(problem) => Step::problem(&problem),
        })
    }

    fn item(&self, key: Key, asked: &HeaderMap, at: Moments) -> Step {
        let (id, now) = (key.collection(), at.now);
        self.requested(&key, now);
        let wish = match self.wish(id, asked) {
            Ok(Special::None) => habits::wish(),
            Ok(Special::New) => Wish::New,
            Ok(Special::AtLeast(wanted)) => return self.item_at_least(key, wanted, asked, at),
            Err(problem) => return Step::problem(&problem),
        };
        let cache = &self.shared.cache;
        // Worked out only where memory does not answer: a hit has no use for it.
        let mut deadline = now;
        let admit = || self.admit_reads(id, wish, 1, asked, at).inspect(|until| deadline = *until);
        let lookup = match cache.lookup_if(&key, wish, now, admit) {
            Ok(lookup) => lookup,
            Err(problem @ Problem::BadHeader(_)) => return Step::problem(&problem),
            Err(problem) => {
                self.lookups.count(id.0, LookupKind::Refused);
                return self.refused(&key, wish, asked, now, &problem);
            }
        };
        self.looked_up(id, wish, &lookup);
        match lookup {
            Lookup::Hit(record, quality) | Lookup::Negative(record, quality) => {
                if self.may_refresh(quality, now) && cache.refresh(&key) {
                    lead(&self.shared, id);
                }
                if quality == Quality::Fresh {
                    self.shared.sampling.offer(&key, &record);
                }
                let provenance = Provenance::of_hit(quality, cache.age(&record, now));
                Step::Now(self.answer(record, provenance, asked))
            }
            Lookup::Wait(waiter) => self.item_later(key, wish, (waiter, deadline), CacheOutcome::Wait, asked),
            Lookup::Fill(waiter) => {
                lead(&self.shared, id);
                self.item_later(key, wish, (waiter, deadline), CacheOutcome::Miss, asked)
            }
            Lookup::Bypass(waiter) => {
                lead(&self.shared, id);
                self.item_later(key, wish, (waiter, deadline), CacheOutcome::Bypass, asked)
            }
            Lookup::Refused(refusal) => self.refused(&key, wish, asked, now, &(&refusal).into()),
        }
    }

    /// The key is not read: what may stand in for it, or why.
    fn refused(&self, key: &Key, wish: Wish, asked: &HeaderMap, now: Nanos, problem: &Problem) -> Step {
        match self.stand_in(key, wish, now) {
            Some(record) => Step::Now(self.answer_stale(record, asked, now)),
            None => Step::problem(problem),
        }
    }

    fn item_later(
        &self,
        key: Key,
        wish: Wish,
        (waiter, deadline): (Waiter<Trouble>, Nanos),
        outcome: CacheOutcome,
        asked: &HeaderMap,
    ) -> Step {
        let outcome = if wish == Wish::New { CacheOutcome::Bypass } else { outcome };
        let arrived = Nanos::now();
        let place = match Place::take(&self.shared, wish == Wish::New) {
            Ok(place) => place,
            Err(problem) => return Step::problem(&problem),
        };
        let (handler, asked) = (self.clone(), asked.clone());
        Step::Later(Box::pin(async move {
            let _place = place;
            let result = handler.wait_for(key.collection(), waiter, deadline).await;
            handler.waited(arrived, &result);
            let now = Nanos::now();
            match result {
                Ok(record) => {
                    let age = handler.shared.cache.age(&record, now);
                    handler.answer(record, Provenance { outcome, age }, &asked)
                }
                Err(problem) => match handler.stand_in(&key, wish, now) {
                    Some(record) => handler.answer_stale(record, &asked, now),
                    None => (problem.response(), CacheOutcome::None),
                },
            }
        }))
    }

    fn item_at_least(&self, key: Key, wanted: hotrow_cache::version::Position, asked: &HeaderMap, at: Moments) -> Step {
        let (id, now) = (key.collection(), at.now);
        if let Some((record, provenance)) = position::at_once(&self.shared, &key, wanted, now) {
            return Step::Now(self.answer(record, provenance, asked));
        }
        if let Err(problem) = self.let_in(id, Kind::Bypass, asked) {
            return Step::problem(&problem);
        }
        let admitted = self.shared.deadline(asked, at).and_then(|until| Ok((until, Place::take(&self.shared, true)?)));
        let (deadline, place) = match admitted {
            Ok(admitted) => admitted,
            Err(problem) => return Step::problem(&problem),
        };
        let (handler, asked) = (self.clone(), asked.clone());
        Step::Later(Box::pin(async move {
            let _place = place;
            let keys = [key];
            match position::read_at_least(&handler.shared, &keys, wanted, deadline).await {
                Ok(mut answers) => match answers.pop() {
                    Some((record, provenance)) => handler.answer(record, provenance, &asked),
                    None => (Problem::Unreadable.response(), CacheOutcome::None),
                },
                Err(problem) => (problem.response(), CacheOutcome::None),
            }
        }))
    }

    /// Waits for a read until the request's deadline.
    pub(crate) async fn wait_for(
        &self,
        collection: CollectionId,
        waiter: Waiter<Trouble>,
        deadline: Nanos,
    ) -> Result<Record, Problem> {
        match tokio::time::timeout(deadline.since(Nanos::now()), wait(&self.shared, collection, waiter)).await {
            Ok(result) => result.map_err(|failure| Problem::from(&failure)),
            Err(_) => Err(Problem::Timeout("the database did not answer in time")),
        }
    }

    fn answer(&self, record: Record, provenance: Provenance, asked: &HeaderMap) -> Outcome {
        let cache_control = &self.shared.collection(record.collection()).cache_control;
        (respond(record, provenance, asked, cache_control), provenance.outcome)
    }

    /// `stale_if_error`: only where any answer was wished for.
    fn stand_in(&self, key: &Key, wish: Wish, now: Nanos) -> Option<Record> {
        (wish != Wish::New).then(|| self.shared.cache.stand_in(key, now)).flatten()
    }

    fn answer_stale(&self, record: Record, asked: &HeaderMap, now: Nanos) -> Outcome {
        let age = self.shared.cache.age(&record, now);
        self.answer(record, Provenance { outcome: CacheOutcome::Stale, age }, asked)
    }

    /// Notes that the id was asked for, in the sketch of the day.
    pub(crate) fn requested(&self, key: &Key, now: Nanos) {
        self.metrics.ids.note(self.shared.calendar.day(now), self.shared.cache.hash(key));
    }

    /// Counts what a lookup came to.
    pub(crate) fn looked_up(&self, CollectionId(id): CollectionId, wish: Wish, lookup: &Lookup<Trouble>) {
        let kind = match lookup {
            Lookup::Hit(_, Quality::Fresh) => LookupKind::Hit,
            Lookup::Negative(_, Quality::Fresh) => LookupKind::Negative,
            Lookup::Hit(..) | Lookup::Negative(..) => LookupKind::Stale,
            Lookup::Wait(_) | Lookup::Fill(_) if wish == Wish::New => LookupKind::Bypass,
            Lookup::Wait(_) => LookupKind::Wait,
            Lookup::Fill(_) => LookupKind::Miss,
            Lookup::Bypass(_) => LookupKind::Bypass,
            Lookup::Refused(_) => LookupKind::Refused,
        };
        habits::note(kind, &self.shared.usual);
        self.lookups.count(id, kind);
    }

    /// What the request's headers ask beyond the record.
    pub(crate) fn wish(&self, id: CollectionId, asked: &HeaderMap) -> Result<Special, Problem> {
        let collection = self.shared.collection(id);
        if let Some(wanted) = asked.get(HOTROW_MIN_POSITION) {
            return position::wanted(collection, wanted).map(Special::AtLeast);
        }
        let new = collection.allow_no_cache && asked.get_all(CACHE_CONTROL).iter().any(says_no_cache);
        Ok(if new { Special::New } else { Special::None })
    }
}

/// What a request asks beyond any answer of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    None,
    New,
    AtLeast(hotrow_cache::version::Position),
}

/// Whether the directives hold `no-cache` (RFC 9111, section 5.2.1.4).
fn says_no_cache(value: &http::HeaderValue) -> bool {
    let Ok(directives) = value.to_str() else { return false };
    directives.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("no-cache"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cache_is_a_directive_of_its_own() {
        for yes in ["no-cache", "max-age=0, No-Cache", " no-cache "] {
            assert!(says_no_cache(&http::HeaderValue::from_static(yes)), "{yes}");
        }
        for no in ["", "no-cache-at-all", "max-age=0", "no-store"] {
            assert!(!says_no_cache(&http::HeaderValue::from_static(no)), "{no}");
        }
    }
}
