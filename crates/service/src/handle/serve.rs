//! From a request's head to an answer's head, with the counts of the answer, under the settings of
//! one handler.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::body::Body;
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::cors::RequestOrigin;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::rejection::Rejection;
use hotrow_answer::request::Request;
use hotrow_answer::written::Written;
use hotrow_front::connection::serve::write_response;
use hotrow_http2::hpack::encoder;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::request::{Notes, Protocol};
use hotrow_telemetry::server_timing::ServerTiming;
use http::Response;

use super::{Evaluation, Handler, Pending, ReceivedIds, Step};
use crate::observer::{Arrived, PendingNote};

/// An answer, the origin of the page that asked for it, and the parts of its time.
#[derive(Debug)]
pub(crate) struct AnswerTo {
    answer: Answer,
    origin: RequestOrigin,
    timing: Option<ServerTiming>,
}

/// First step of an answer.
pub(crate) enum Begun {
    /// The answer is ready.
    Now(AnswerTo),
    /// It needs more than memory.
    Later(PendingAnswer),
}

/// An answer that needs more than memory.
pub(crate) struct PendingAnswer {
    pub(crate) future: Pin<Box<dyn Future<Output = Outcome>>>,
    pub(crate) ids: Option<ReceivedIds>,
    note: Option<PendingNote>,
    origin: RequestOrigin,
}

/// What the end of a request needs that was waited for.
pub(crate) struct Ending {
    note: Option<PendingNote>,
    origin: RequestOrigin,
}

impl PendingAnswer {
    pub(crate) fn into_parts(self) -> (Option<ReceivedIds>, Ending) {
        (self.ids, Ending { note: self.note, origin: self.origin })
    }
}

impl Handler {
    pub(crate) fn begin(self: &Rc<Self>, request: Request<'_>, evaluation: Evaluation) -> Begun {
        let arrived = Arrived::of(&request);
        let now = arrived.since;
        let mut notes = Notes::default();
        let cors = self.shared.cors.as_deref();
        let origin =
            cors.map_or(RequestOrigin::Other, |cors| cors.origin_of(request.head.fields()));
        let step = match cors.and_then(|cors| cors.preflight(&request.head)) {
            Some(answer) => Step::Now((answer.into(), CacheOutcome::None)),
            None => self.route(request, evaluation, &mut notes),
        };
        match step {
            Step::Now(outcome) => {
                let cache_outcome = outcome.1;
                let mut answer = self.counted(outcome, now);
                if let Some(body) = answer.endless_body() {
                    // Its note is made at its end.
                    if self.notes.observer.is_some() {
                        body.at_end(
                            self.notes.stream_note(self.notes.pending_note(&arrived, notes, None)),
                        );
                    }
                    return Begun::Now(AnswerTo { answer, origin, timing: None });
                }
                let note = |observer: &_| {
                    self.notes.note(observer, &arrived, notes, (&answer, cache_outcome))
                };
                let timing = self.notes.observer.as_deref().and_then(note);
                Begun::Now(AnswerTo { answer, origin, timing })
            }
            Step::Later(Pending { future, ids, trace }) => {
                let note = |_: &Rc<_>| self.notes.pending_note(&arrived, notes, trace);
                let note = self.notes.observer.as_ref().map(note);
                Begun::Later(PendingAnswer { future, ids, note, origin })
            }
        }
    }

    /// Completes an answer that was waited for since `since`.
    pub(crate) fn complete(
        self: &Rc<Self>,
        outcome: Outcome,
        ending: Ending,
        since: Nanos,
    ) -> AnswerTo {
        let Ending { note, origin } = ending;
        let cache_outcome = outcome.1;
        let mut answer = self.counted(outcome, since);
        if let Some(body) = answer.endless_body() {
            if let Some(note) = note {
                body.at_end(self.notes.stream_note(note));
            }
            self.counts.turn_ended();
            return AnswerTo { answer, origin, timing: None };
        }
        let timing = match (&self.notes.observer, &note) {
            (Some(observer), Some(note)) => {
                self.notes.note_pending(observer, note, (&answer, cache_outcome))
            }
            _ => None,
        };
        self.counts.turn_ended();
        AnswerTo { answer, origin, timing }
    }

    /// Refuses a request that was waited for. No page of another origin may read why.
    pub(crate) fn refuse(
        self: &Rc<Self>,
        problem: HttpError,
        ending: Ending,
        since: Nanos,
    ) -> AnswerTo {
        let outcome = Answer::refused(problem);
        self.complete(outcome, Ending { origin: RequestOrigin::Other, ..ending }, since)
    }

    pub(crate) fn write_head(
        &self,
        AnswerTo { answer, origin, timing }: AnswerTo,
        out: &mut Vec<u8>,
    ) -> Written<Body> {
        let written = match answer {
            Answer::Record(answer) => self.heads.write(answer, out),
            Answer::Absent(answer) => self.heads.write_absent(answer, out),
            other => write_response(response_of(other), out),
        };
        if let Some(cors) = &self.shared.cors {
            cors.write(origin, out);
        }
        if let Some(timing) = timing {
            timing.write(out);
        }
        written
    }

    /// Writes the same as fields of HTTP/2. `text` is memory that is used again.
    pub(crate) fn write_fields(
        &self,
        AnswerTo { answer, origin, timing }: AnswerTo,
        text: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Written<Body> {
        text.clear();
        let written = match answer {
            Answer::Record(answer) => self.heads.write_fields(answer, text, out),
            Answer::Absent(answer) => self.heads.write_absent_fields(answer, text, out),
            other => {
                let written = write_response(response_of(other), text);
                encoder::head(out, written.status, text);
                written
            }
        };
        text.clear();
        if let Some(cors) = &self.shared.cors {
            cors.write(origin, text);
        }
        if let Some(timing) = timing {
            timing.write(text);
        }
        encoder::fields(out, text);
        written
    }

    pub(crate) fn note_refused(
        &self,
        rejection: Rejection,
        connection: &Rc<ConnectionContext>,
        protocol: Protocol,
    ) {
        if let Some(observer) = &self.notes.observer {
            self.notes.note_rejected(observer, rejection, (connection, protocol));
        }
    }

    fn counted(&self, (answer, outcome): Outcome, since: Nanos) -> Answer {
        self.counts.answered(answer.status(), outcome, since);
        answer
    }
}

/// Returns an answer that has no head of its own.
fn response_of(answer: Answer) -> Response<Body> {
    match answer {
        Answer::Http(response) => *response,
        Answer::Refused(refusal) => refusal.response(),
        // Heads of records are written without a response, and connections over HTTP get no parts.
        Answer::Record(_) | Answer::Absent(_) | Answer::Items(_) => {
            HttpError::Unreadable.response()
        }
    }
}
