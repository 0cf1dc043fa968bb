//! The service of a worker: the handler with the settings in force, and the rule for a request that
//! waits while they change.
//!
//! A request is evaluated by one handler. A hit is answered before anything else runs on its
//! worker. A request that waited through a change is evaluated again by the newest handler: its
//! credential, its grants, its limits and the freshness of its record. Its rate limits are not
//! charged again. So from the moment at which every worker has the newest handler
//! ([`InForce::everywhere`]) no answer comes from older settings.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use hotrow_admission::byte_budget::ByteBudget;
use hotrow_answer::body::Body;
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::rejection::Rejection;
use hotrow_answer::request::{Request, RequestBody};
use hotrow_answer::written::Written;
use hotrow_front::connection::commands;
use hotrow_front::connection::serve::{Serve, Served};
use hotrow_front::connection::worker_context::WorkerContext;
use hotrow_http1::head::HeadBuf;
use hotrow_measure::clock::Nanos;
use hotrow_resp::arguments::{Arguments, ArgumentsBuf};
use hotrow_telemetry::request::Protocol;

use crate::handle::{AnswerTo, FirstStep, Handler, PendingAnswer};
use crate::in_force::{InForce, Snapshot};
use crate::redis::{CommandRequest, Replied, Reply, Session};
use crate::step::{CONFIGURATION_CHANGED, Evaluation};
use crate::tracking::WorkerTracking;

/// Evaluations of one request; settings that change more often during it end it with 503.
const EVALUATIONS_MAX: usize = 4;

/// Service of one worker.
pub struct Current {
    in_force: Arc<InForce>,
    /// Number of the worker.
    index: usize,
    handler: RefCell<Rc<Handler>>,
}

/// An answer, and the handler that made it; `None`: the present one, just now.
pub struct AnswerBy {
    answer: AnswerTo,
    handler: Option<Rc<Handler>>,
}

/// A request as another evaluation needs it.
struct KeptRequest {
    head: HeadBuf,
    connection: Rc<ConnectionContext>,
    protocol: Protocol,
    arrived: Nanos,
}

impl Current {
    /// Creates the service of the worker of this number, on its thread. It begins with `handler`,
    /// and takes over the newest settings before it serves.
    pub fn new(in_force: Arc<InForce>, index: usize, handler: &Handler) -> Self {
        let snapshot = in_force.newest();
        let handler = Rc::new(handler.replaced_by(snapshot.shared.clone()));
        handler.take_over();
        in_force.taken(index, &snapshot);
        Self { in_force, index, handler: RefCell::new(handler) }
    }

    fn handler(&self) -> Rc<Handler> {
        Rc::clone(&self.handler.borrow())
    }

    /// Takes over new settings: between two requests, for nothing else runs on this thread.
    fn take_over(&self, snapshot: &Snapshot, worker: &WorkerContext) {
        let next = Rc::new(self.handler.borrow().replaced_by(snapshot.shared.clone()));
        *self.handler.borrow_mut() = Rc::clone(&next);
        next.take_over();
        worker.set_limits(&snapshot.shared.limits);
        self.in_force.taken(self.index, snapshot);
    }

    /// Waits for an answer, and evaluates the request again while the settings change.
    async fn answer_later(
        self: Rc<Self>,
        mut handler: Rc<Handler>,
        mut pending: PendingAnswer,
        request: KeptRequest,
    ) -> AnswerBy {
        for evaluation in 1..=EVALUATIONS_MAX {
            let outcome = (&mut pending.future).await;
            let newest = self.handler();
            if Rc::ptr_eq(&newest, &handler) {
                let (_, ending) = pending.into_parts();
                let answer = handler.complete(outcome, ending, request.arrived);
                return AnswerBy { answer, handler: Some(handler) };
            }
            drop(outcome);
            if evaluation == EVALUATIONS_MAX {
                break;
            }
            let ids = pending.ids.as_ref().and_then(|ids| ids.get().map(Rc::clone));
            let again = Request {
                head: request.head.as_head(),
                body: RequestBody::default(),
                connection: &request.connection,
                now: request.arrived,
                protocol: request.protocol,
            };
            match newest.begin(again, Evaluation::Again(ids)) {
                FirstStep::Now(answer) => {
                    newest.counts.turn_ended();
                    return AnswerBy { answer, handler: Some(newest) };
                }
                FirstStep::Later(later) => pending = later,
            }
            handler = newest;
        }
        let newest = self.handler();
        let (_, ending) = pending.into_parts();
        let answer = newest.refuse(CONFIGURATION_CHANGED, ending, request.arrived);
        AnswerBy { answer, handler: Some(newest) }
    }
}

/// A command as another evaluation needs it.
struct KeptCommand {
    arguments: ArgumentsBuf,
    session: Rc<Session>,
    arrived: Nanos,
}

impl Current {
    /// Waits for a reply, and evaluates the command again while the settings change.
    async fn reply_later(
        self: Rc<Self>,
        mut handler: Rc<Handler>,
        mut pending: Pin<Box<dyn Future<Output = Reply>>>,
        command: KeptCommand,
    ) -> commands::Reply {
        let mut evaluations = 1;
        loop {
            let reply = (&mut pending).await;
            let newest = self.handler();
            if Rc::ptr_eq(&newest, &handler) {
                return reply.counted_by(&handler.commands.recorder);
            }
            if evaluations == EVALUATIONS_MAX {
                return reply.refused(&CONFIGURATION_CHANGED).counted_by(&newest.commands.recorder);
            }
            evaluations += 1;
            let again = CommandRequest {
                arguments: command.arguments.as_arguments(),
                session: &command.session,
                arrived: command.arrived,
                is_again: true,
            };
            let mut bytes = Vec::new();
            // What is ready has been counted.
            match newest.commands.command(&again, &mut bytes) {
                Replied::Done | Replied::Last | Replied::Commands(_) => {
                    return commands::Reply { bytes, body: None };
                }
                Replied::Body(body) => return commands::Reply { bytes, body: Some(body) },
                Replied::Later(later) => pending = later,
            }
            handler = newest;
        }
    }
}

/// Informs the clients of a worker that keep copies, if there can be any. Without end.
async fn attend(tracking: Option<Rc<WorkerTracking>>) -> Infallible {
    match tracking {
        Some(tracking) => tracking.attend().await,
        None => std::future::pending().await,
    }
}

impl Serve for Current {
    type Answer = AnswerBy;
    type Body = Body;
    type Session = Session;

    fn serve(self: &Rc<Self>, request: Request<'_>) -> Served<AnswerBy> {
        let handler = self.handler.borrow();
        let Request { head, connection, now, protocol, .. } = request;
        match handler.begin(request, Evaluation::First) {
            FirstStep::Now(answer) => Served::Now(AnswerBy { answer, handler: None }),
            FirstStep::Later(pending) => {
                let connection = Rc::clone(connection);
                let head = head.to_buf();
                let kept = KeptRequest { head, connection, protocol, arrived: now };
                let current = Rc::clone(self);
                Served::Later(Box::pin(current.answer_later(Rc::clone(&handler), pending, kept)))
            }
        }
    }

    fn write_head(&self, answer: AnswerBy, out: &mut Vec<u8>) -> Written<Body> {
        let AnswerBy { answer, handler } = answer;
        match handler {
            Some(handler) => handler.write_head(answer, out),
            None => self.handler.borrow().write_head(answer, out),
        }
    }

    fn write_fields(
        &self,
        answer: AnswerBy,
        text: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Written<Body> {
        let AnswerBy { answer, handler } = answer;
        match handler {
            Some(handler) => handler.write_fields(answer, text, out),
            None => self.handler.borrow().write_fields(answer, text, out),
        }
    }

    fn rejected(
        &self,
        rejection: Rejection,
        connection: &Rc<ConnectionContext>,
        protocol: Protocol,
    ) {
        self.handler.borrow().note_refused(rejection, connection, protocol);
    }

    fn note_stuck(body: &mut Body) {
        if let Body::Endless(endless) = body {
            endless.note_stuck();
        }
    }

    fn whole(body: &Body) -> Option<&[u8]> {
        body.whole()
    }

    fn turn_ended(&self) {
        self.handler.borrow().counts.turn_ended();
    }

    fn command(
        self: &Rc<Self>,
        arguments: Arguments<'_>,
        session: &Rc<Session>,
        now: Nanos,
        out: &mut Vec<u8>,
    ) -> commands::Replied {
        let handler = self.handler.borrow();
        let request = CommandRequest { arguments, session, arrived: now, is_again: false };
        match handler.commands.command(&request, out) {
            Replied::Later(pending) => {
                let session = Rc::clone(session);
                let kept = KeptCommand { arguments: arguments.to_buf(), session, arrived: now };
                let current = Rc::clone(self);
                let reply = current.reply_later(Rc::clone(&handler), pending, kept);
                commands::Replied::Later(Box::pin(reply))
            }
            Replied::Done => commands::Replied::Done,
            Replied::Body(body) => commands::Replied::Body(body),
            Replied::Last => commands::Replied::Last,
            Replied::Commands(queued) => commands::Replied::Commands(queued),
        }
    }

    fn input_refused(&self, session: &Session, status: u16) {
        self.handler.borrow().commands.recorder.note_refused_input(session, status);
    }

    fn input_budget(&self) -> Option<Arc<ByteBudget>> {
        Some(Arc::clone(&self.handler.borrow().shared.budgets.bodies))
    }

    fn attend(
        self: Rc<Self>,
        worker: Rc<WorkerContext>,
    ) -> Pin<Box<dyn Future<Output = Infallible>>> {
        Box::pin(async move {
            let followers = Rc::clone(&self.handler().following.followers);
            let follows = self.handler().shared.follows.clone();
            let tracking = self.handler().commands.tracking.clone();
            let mut published = self.in_force.subscribe();
            let taking_over = async {
                loop {
                    self.take_over(&self.in_force.newest(), &worker);
                    if published.changed().await.is_err() {
                        // Nothing can be published any more.
                        return std::future::pending().await;
                    }
                }
            };
            tokio::select! {
                never = taking_over => never,
                never = followers.attend(follows) => never,
                never = attend(tracking) => never,
            }
        })
    }
}
