//! What a connection of the Redis protocol needs of a service: the first step of a reply, and the
//! state of a client between its commands.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;

use hotrow_answer::body::Body;
use hotrow_answer::context::ConnectionContext;

/// First step of a reply. `R`: a reply that is waited for.
pub enum Replied<R = Reply> {
    /// The reply is written.
    Done,
    /// Its beginning is written, and this follows.
    Body(Body),
    /// It is written, and the connection ends.
    Last,
    /// The beginning of an array is written, whose elements are the replies to these commands.
    Commands(Vec<u8>),
    /// It needs more than memory.
    Later(Pin<Box<dyn Future<Output = R>>>),
}

impl<R> Replied<R> {
    /// Returns the step of a reply that is written up to this body.
    #[inline]
    #[must_use]
    pub fn of(body: Option<Body>, is_last: bool) -> Self {
        match body {
            Some(body) => Self::Body(body),
            None if is_last => Self::Last,
            None => Self::Done,
        }
    }
}

/// A reply that was waited for.
#[derive(Debug)]
pub struct Reply {
    /// Its beginning, or all of it.
    pub bytes: Vec<u8>,
    /// What follows.
    pub body: Option<Body>,
}

/// State of a client between its commands. One thread uses it.
pub trait ClientSession: 'static {
    /// Begins the session of a connection.
    fn begin(connection: Rc<ConnectionContext>) -> Rc<Self>;

    /// Returns whether the client takes messages that are no replies.
    fn receives(&self) -> bool;

    /// Wakes the connection at the next message. Returns whether one waits.
    fn wake_at_mail(&self, waker: &Waker) -> bool;

    /// Writes the messages that wait and can be written now: between two replies. `None`: there are
    /// none; otherwise returns whether the connection ends.
    fn write_mail(&self, out: &mut Vec<u8>) -> Option<bool>;

    /// Returns whether the commands of a transaction are being served.
    fn is_in_transaction(&self) -> bool;

    /// Ends the replies of a transaction.
    fn end_transaction(&self);

    /// Counts the client as too slow, if that concerns its messages.
    fn was_slow(&self);
}

/// The session of a service without commands.
impl ClientSession for () {
    fn begin(_: Rc<ConnectionContext>) -> Rc<Self> {
        Rc::new(())
    }

    fn receives(&self) -> bool {
        false
    }

    fn wake_at_mail(&self, _: &Waker) -> bool {
        false
    }

    fn write_mail(&self, _: &mut Vec<u8>) -> Option<bool> {
        None
    }

    fn is_in_transaction(&self) -> bool {
        false
    }

    fn end_transaction(&self) {}

    fn was_slow(&self) {}
}
