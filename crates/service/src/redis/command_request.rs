//! A command as its function gets it.

use std::rc::Rc;

use hotrow_access::caller::Sender;
use hotrow_answer::commands::Spec;
use hotrow_answer::context::{ReadRequest, RequestTimes};
use hotrow_http1::fields::Fields;
use hotrow_measure::clock::Nanos;
use hotrow_resp::arguments::Arguments;

use super::Session;

/// A command that has arrived in full.
pub(crate) struct CommandRequest<'a> {
    pub(crate) arguments: Arguments<'a>,
    pub(crate) session: &'a Rc<Session>,
    /// A time after the arrival of its last byte.
    pub(crate) arrived: Nanos,
    /// `true`: the settings changed while it waited, and an earlier evaluation has paid for it.
    pub(crate) is_again: bool,
}

/// A command with its sender.
pub(crate) struct AuthenticatedCommand<'a> {
    pub(crate) request: &'a CommandRequest<'a>,
    pub(super) spec: &'static Spec,
    /// What it asks for, before the collection is known.
    pub(crate) read: ReadRequest<'a>,
    pub(crate) sender: &'a Sender,
}

impl<'a> AuthenticatedCommand<'a> {
    /// Returns the keys that the command names; `None`: it names none.
    pub(crate) fn keys(&self) -> Option<impl Iterator<Item = &'a [u8]>> {
        self.spec.keys_of(self.request.arguments)
    }
}

impl<'a> CommandRequest<'a> {
    /// Returns what it asks for, before its sender is known.
    pub(crate) fn read(&'a self) -> ReadRequest<'a> {
        let arrival = RequestTimes::of_arrival(self.arrived);
        let times = match self.is_again {
            true => RequestTimes { now: Nanos::now(), ..arrival },
            false => arrival,
        };
        let read = ReadRequest::new(self.session.connection(), Fields::default(), times);
        ReadRequest { is_paid: self.is_again, ..read }
    }
}
