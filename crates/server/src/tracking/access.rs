//! The credential of a tracking client, judged again: at the expiry of its token, and whenever
//! grants, keys or settings have changed.
//!
//! A client gives up everything whenever anything has changed: columns that it may no longer read
//! are in its copies. Its commands are judged anew each, so that it gets copies only of what it may
//! read. A broadcasting client gets keys without a command, and is closed if it may no longer.

use std::rc::{Rc, Weak};

use hotrow_access::caller::Sender;
use hotrow_access::verify::UnixSeconds;
use hotrow_http1::fields::Fields;
use hotrow_measure::clock::Nanos;

use crate::access::wall_clock;
use crate::context::{ReadRequest, RequestTimes};
use crate::handle::Handler;
use crate::http_error::HttpError;
use crate::redis::{Session, credential_of};

/// What a client was judged by.
#[derive(Debug)]
pub(crate) struct Judged {
    handler: Weak<Handler>,
    /// Version of grants and keys.
    generation: Option<u64>,
    /// Expiry of its token; `None`: it has none, or the client was refused since.
    expires: Option<UnixSeconds>,
}

/// The client may no longer be served.
#[derive(Debug)]
pub(super) struct Refused;

impl Judged {
    /// Notes that `handler` has judged the sender of a command.
    pub(crate) fn by(handler: &Rc<Handler>, sender: &Sender) -> Self {
        let (generation, expires) = (generation(handler), sender.expires);
        Self { handler: Rc::downgrade(handler), generation, expires }
    }

    /// Returns the same, to be judged again soon.
    pub(crate) fn expired(self) -> Self {
        Self { expires: Some(UnixSeconds(0)), ..self }
    }

    /// Judges a client again. `None`: nothing has changed.
    pub(super) fn again(
        &mut self,
        handler: &Rc<Handler>,
        session: &Session,
    ) -> Option<Result<(), Refused>> {
        let is_expired = self.expires.is_some_and(|expires| wall_clock() >= expires);
        let is_same = std::ptr::eq(self.handler.as_ptr(), Rc::as_ptr(handler))
            && self.generation == generation(handler);
        if is_same && !is_expired {
            return None;
        }
        let verdict = judge(handler, session);
        *self = Self {
            handler: Rc::downgrade(handler),
            generation: generation(handler),
            expires: verdict.as_ref().ok().and_then(|sender| sender.expires),
        };
        Some(verdict.map(|_| ()).map_err(|_| Refused))
    }
}

/// Returns the sender of a session's commands, if it may still do what it does.
fn judge(handler: &Rc<Handler>, session: &Session) -> Result<Sender, HttpError> {
    let password = session.password();
    let times = RequestTimes::of_arrival(Nanos::now());
    let request = ReadRequest::new(&session.connection, Fields::default(), times);
    let sender = handler.authenticate(|| Ok(credential_of(&password)), &request)?;
    if session.is_broadcasting() {
        let prefixes = session.prefixes();
        handler
            .check_broadcast(prefixes.iter().map(|prefix| &**prefix), &sender)
            .map_err(|_| HttpError::NotGranted("no grant for a prefix"))?;
    }
    Ok(sender)
}

fn generation(handler: &Handler) -> Option<u64> {
    handler.authenticator.as_ref().map(|authenticator| authenticator.generation())
}
