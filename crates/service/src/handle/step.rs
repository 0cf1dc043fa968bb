//! First step of a request, and what another evaluation of it begins with.

use std::cell::OnceCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::traces::TraceSlot;

/// Refusal of a request whose body was read under settings that are no longer in force.
pub const CONFIGURATION_CHANGED: HttpError = HttpError::Unavailable(
    "the configuration changed while the request was received; send it again",
);

/// Ids of a batch, once its body has been read: another evaluation has no body.
pub type ReceivedIds = Rc<OnceCell<Rc<Ids>>>;

/// What an evaluation of a request begins with.
pub enum Evaluation {
    /// The request has just arrived.
    First,
    /// The settings changed while it waited. The ids of its body, if it has one that was read.
    Again(Option<Rc<Ids>>),
}

/// First step of a request.
pub enum Step {
    /// The answer is ready.
    Now(Outcome),
    /// The answer needs the database, the feed or the request's body.
    Later(Pending),
}

/// A request that waits.
pub struct Pending {
    pub(crate) future: Pin<Box<dyn Future<Output = Outcome>>>,
    /// Where the ids of its body will be, if it has one.
    pub(crate) ids: Option<ReceivedIds>,
    /// Where its trace is, or will be when its body has arrived; `None`: it is not traced.
    pub(crate) trace: Option<TraceSlot>,
}

impl Step {
    pub(crate) fn ready(response: impl Into<Answer>) -> Self {
        Self::Now((response.into(), CacheOutcome::None))
    }

    pub(crate) fn refused(error: HttpError) -> Self {
        Self::Now(Answer::refused(error))
    }

    /// Returns the step of a request that waits. `trace`: where its trace is or will be, if it may
    /// be traced.
    pub(crate) fn later(
        trace: Option<TraceSlot>,
        future: impl Future<Output = Outcome> + 'static,
    ) -> Self {
        Self::Later(Pending { future: Box::pin(future), ids: None, trace })
    }

    /// Continues a request that has waited for something else. `trace`: where the end of the
    /// request looks for its trace.
    pub(crate) async fn rest(self, trace: Option<&TraceSlot>) -> Outcome {
        let Pending { future, trace: own, .. } = match self {
            Self::Now(outcome) => return outcome,
            Self::Later(pending) => pending,
        };
        let outcome = future.await;
        if let (Some(slot), Some(begun)) = (trace, own.as_ref().and_then(|own| own.get())) {
            // A request begins to wait for keys once, so the place is empty.
            _ = slot.set(Arc::clone(begun));
        }
        outcome
    }
}
