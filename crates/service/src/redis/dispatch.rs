//! From a command to the function that serves it.

use std::rc::Rc;

use super::answered::{Answered, Received};
use super::command_request::{AuthenticatedCommand, CommandRequest};
use super::read_many::Gathered;
use super::read_one::Wanted;
use super::refusal::{self, NOT_SERVED, unknown_command, wrong_arity};
use super::{Commands, Replied, subscribe};
use crate::tracking::credential_of;
use hotrow_answer::commands::{Command, find};

impl Commands {
    /// Begins to answer a command, and writes the reply to `out` as far as it is ready.
    pub(crate) fn command(
        self: &Rc<Self>,
        request: &CommandRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Replied {
        let arguments = request.arguments;
        let name = arguments.name();
        let Some(spec) = find(name) else {
            // A page of a browser that was made to send a form here: it must not send commands.
            if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
                let received = Received::unknown_sender(request, None);
                self.recorder.answered_with_error(&received, Answered::error(NOT_SERVED, ""));
                return Replied::Last;
            }
            request.session.transaction.refuse();
            let text = unknown_command(name, arguments.from(1));
            let received = Received::unknown_sender(request, None);
            return self.recorder.refuse_command(received, &text, out);
        };
        if !spec.takes(arguments.len()) {
            request.session.transaction.refuse();
            let received = Received::unknown_sender(request, spec);
            return self.recorder.refuse_command(received, &wrong_arity(spec.name), out);
        }
        if subscribe::is_refused(request.session, spec) {
            request.session.transaction.refuse();
            let received = Received::unknown_sender(request, spec);
            return self.recorder.refuse_command(received, &subscribe::refusal(spec.name), out);
        }
        let password = request.session.password();
        let read = request.read();
        if spec.is_open() {
            return self.set_up(spec, request, out);
        }
        let sender =
            match self.reads.authorisation.authenticate(|| Ok(credential_of(&password)), &read) {
                Ok(sender) => sender,
                Err(problem) => {
                    let text = request.session.transaction.refused(spec, refusal::text(&problem));
                    let received = Received::unknown_sender(request, spec);
                    return self.recorder.refuse_command(received, &text, out);
                }
            };
        let asked = AuthenticatedCommand { request, spec, read, sender: &sender };
        if request.session.transaction.is_queueing() && !spec.ends_queue() {
            return self.queue(&asked, out);
        }
        // What `CLIENT CACHING` has said holds for the next other command.
        if request.session.is_tracking() && !spec.precedes_cached() {
            return self.tracked_command(&asked, out);
        }
        self.serve_command(&asked, out)
    }

    /// Serves a command of a sender who may send commands.
    #[inline]
    pub(super) fn serve_command(
        self: &Rc<Self>,
        asked: &AuthenticatedCommand<'_>,
        out: &mut Vec<u8>,
    ) -> Replied {
        let AuthenticatedCommand { request, spec, .. } = *asked;
        match (spec.command, request.arguments.len()) {
            (Command::Get, _) => self.reply_one(Wanted::Value, None, asked, out),
            (Command::Exists, 2) => self.reply_one(Wanted::Presence, None, asked, out),
            (Command::Exists, _) => self.reply_many(Gathered::Count, asked, out),
            (Command::Mget, _) => self.reply_many(Gathered::Values, asked, out),
            (Command::HotrowMget, _) => self.reply_many(Gathered::Snapshot, asked, out),
            (Command::HotrowGet, _) => self.one_at_least(asked, out),
            (Command::Pttl, _) => self.reply_one(Wanted::TtlMs, None, asked, out),
            (Command::Ttl, _) => self.reply_one(Wanted::TtlS, None, asked, out),
            (Command::Multi | Command::Exec | Command::Discard, _) => self.transact(asked, out),
            (Command::Subscribe | Command::Unsubscribe, _) => self.subscribe(asked, out),
            _ => self.describe_or_name(asked, out),
        }
    }
}
