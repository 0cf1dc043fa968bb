//! The handler as a connection uses it: from a request's head to an answer's head, with the counts
//! of the answer.

use std::rc::Rc;

use hotrow_measure::clock::Nanos;

use super::{Handler, Step};
use crate::answer::{Answer, Outcome};
use crate::body::Body;
use crate::connection::rejection::Rejection;
use crate::connection::request::{Protocol, Request};
use crate::connection::serve::{Serve, Served, Written, write_response};
use crate::context::ConnectionContext;
use crate::cors::RequestOrigin;
use crate::metrics::CacheOutcome;
use crate::observer::{Arrived, Notes};
use crate::server_timing::ServerTiming;

/// An answer, the origin of the page that asked for it, and the parts of its time.
#[derive(Debug)]
pub struct AnswerTo {
    answer: Answer,
    origin: RequestOrigin,
    timing: Option<ServerTiming>,
}

impl Serve for Handler {
    type Answer = AnswerTo;
    type Body = Body;

    fn serve(self: &Rc<Self>, request: Request<'_>) -> Served<AnswerTo> {
        let arrived = Arrived::of(&request);
        let now = arrived.since;
        let mut notes = Notes::default();
        let cors = self.shared.cors.as_deref();
        let origin =
            cors.map_or(RequestOrigin::Other, |cors| cors.origin_of(request.head.fields()));
        let step = match cors.and_then(|cors| cors.preflight(&request.head)) {
            Some(answer) => Step::Now((answer.into(), CacheOutcome::None)),
            None => self.route(request, &mut notes),
        };
        match step {
            Step::Now(outcome) => {
                let cache_outcome = outcome.1;
                let answer = self.counted(outcome, now);
                let note =
                    |observer| self.note(observer, &arrived, notes, (&answer, cache_outcome));
                let timing = self.observer.as_ref().and_then(note);
                Served::Now(AnswerTo { answer, origin, timing })
            }
            Step::Later(future) => {
                let pending = self.observer.as_ref().map(|_| self.pending_note(&arrived, notes));
                let handler = Rc::clone(self);
                Served::Later(Box::pin(async move {
                    let outcome = future.await;
                    let cache_outcome = outcome.1;
                    let answer = handler.counted(outcome, now);
                    let timing = match (&handler.observer, &pending) {
                        (Some(observer), Some(pending)) => {
                            handler.note_pending(observer, pending, (&answer, cache_outcome))
                        }
                        _ => None,
                    };
                    handler.turn_ended();
                    AnswerTo { answer, origin, timing }
                }))
            }
        }
    }

    fn write_head(
        &self,
        AnswerTo { answer, origin, timing }: AnswerTo,
        out: &mut Vec<u8>,
    ) -> Written<Body> {
        let written = match answer {
            Answer::Record(answer) => self.heads.write(answer, out),
            Answer::Absent(answer) => self.heads.write_absent(answer, out),
            Answer::Http(response) => write_response(*response, out),
        };
        if let Some(cors) = &self.shared.cors {
            cors.write(origin, out);
        }
        if let Some(timing) = timing {
            timing.write(out);
        }
        written
    }

    fn rejected(
        &self,
        rejection: Rejection,
        connection: &Rc<ConnectionContext>,
        protocol: Protocol,
    ) {
        if let Some(observer) = &self.observer {
            self.note_rejected(observer, rejection, (connection, protocol));
        }
    }

    /// Hits that arrived together took the same time: one reading of the clock covers them.
    fn turn_ended(&self) {
        let (hits, since) = self.hits_of_turn.replace((0, Nanos(0)));
        if hits > 0 {
            let took_ns = Nanos::now().0.saturating_sub(since.0);
            self.metrics.hit_latency_ns.record_n(took_ns, hits);
        }
    }
}

impl Handler {
    fn counted(&self, (answer, outcome): Outcome, since: Nanos) -> Answer {
        self.metrics.answered(answer.status(), outcome);
        match outcome {
            CacheOutcome::Hit | CacheOutcome::Stale => {
                let (hits, begun) = self.hits_of_turn.get();
                // A hit that waited for its turn of another kind has begun earlier.
                let begun = if hits == 0 { since } else { begun.min(since) };
                self.hits_of_turn.set((hits + 1, begun));
            }
            CacheOutcome::Miss | CacheOutcome::Coalesced | CacheOutcome::Bypass => {
                let took_ns = Nanos::now().0.saturating_sub(since.0);
                self.metrics.miss_latency_ns.record(took_ns);
            }
            CacheOutcome::None => {}
        }
        answer
    }
}
