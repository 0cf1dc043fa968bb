//! `MULTI` and `EXEC`: commands that are kept and then begun one after the other, as if they had
//! arrived behind `EXEC`. There is nothing to undo and nothing to isolate: no command writes, and
//! each record is read by itself, as without them. Client libraries use them to learn the lifetime
//! of a record with it.

use std::cell::{Cell, RefCell};

use hotrow_admission::byte_budget::Reservation;
use hotrow_resp::arguments::Arguments;
use hotrow_resp::write;

use super::Replied;
use super::commands::{Command, Spec};
use super::dispatch::Asked;
use crate::handle::Handler;

/// Least limit on the bytes of the commands.
const BYTES_MAX_LEAST: usize = 16 << 10;
const NOT_INSIDE: &str = "ERR Command not allowed inside a transaction";
const NO_ROOM: &str = "BUSY the commands of this transaction have more bytes than this server \
    allows (limits.body_bytes, limits.bodies_bytes_total)";

/// Commands between `MULTI` and the last reply of `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    kept: RefCell<Option<Kept>>,
    /// Whether `MULTI` was sent, and neither `EXEC` nor `DISCARD`.
    is_queueing: Cell<bool>,
    /// Whether the replies of `EXEC` are being written: nothing may come between them.
    is_running: Cell<bool>,
}

#[derive(Debug, Default)]
struct Kept {
    /// As they are sent.
    commands: Vec<u8>,
    count: usize,
    is_refused: bool,
    reservation: Option<Reservation>,
}

impl Transaction {
    #[inline]
    pub(super) fn is_queueing(&self) -> bool {
        self.is_queueing.get()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running.get()
    }

    /// Returns whether a transaction is under way.
    pub(super) fn is_open(&self) -> bool {
        self.is_queueing.get() || self.is_running.get()
    }

    /// Ends the replies of `EXEC`.
    pub(crate) fn end(&self) {
        self.is_running.set(false);
    }

    pub(super) fn forget(&self) {
        self.is_queueing.set(false);
        self.kept.take();
    }

    /// A command cannot be kept: `EXEC` will refuse all.
    pub(super) fn refuse(&self) {
        self.kept.borrow_mut().iter_mut().for_each(|kept| kept.is_refused = true);
    }

    /// Notes that a command was refused before it was kept. Returns the text of the error: that of
    /// `EXEC` also ends the transaction.
    pub(super) fn refused(&self, spec: &Spec, text: String) -> String {
        self.refuse();
        if !self.is_queueing() || spec.command != Command::Exec {
            return text;
        }
        self.forget();
        format!("EXECABORT Transaction discarded because of: {text}")
    }

    /// Keeps a command. Returns whether there was room.
    fn keep(&self, arguments: Arguments<'_>, handler: &Handler) -> bool {
        let mut kept = self.kept.borrow_mut();
        let Some(kept) = &mut *kept else { return false };
        write::array(&mut kept.commands, arguments.len());
        arguments.from(0).for_each(|argument| write::bulk(&mut kept.commands, argument));
        kept.count += 1;
        let bytes = kept.commands.len();
        let bodies = &handler.shared.budgets.bodies;
        let reservation = kept.reservation.get_or_insert_with(|| bodies.empty());
        let has_room = bytes <= handler.shared.limits.body_bytes.max(BYTES_MAX_LEAST)
            && reservation.grow_to(bytes as u64).is_ok();
        if !has_room {
            *kept = Kept { is_refused: true, ..Kept::default() };
        }
        has_room
    }
}

impl Handler {
    /// Keeps a command for `EXEC`.
    pub(super) fn queue(&self, asked: &Asked<'_>, out: &mut Vec<u8>) -> Replied {
        let Asked { request, spec, .. } = *asked;
        let transaction = &request.session.transaction;
        let refused = match spec.command {
            Command::Auth | Command::Hello | Command::Subscribe | Command::Unsubscribe => {
                Some(NOT_INSIDE)
            }
            _ if !transaction.keep(request.arguments, self) => Some(NO_ROOM),
            _ => None,
        };
        if let Some(text) = refused {
            transaction.refuse();
            return self.refuse_command(asked, text, out);
        }
        write::status(out, "QUEUED");
        Replied::Done
    }

    /// Serves `MULTI`, `EXEC` and `DISCARD`.
    pub(super) fn transact(&self, asked: &Asked<'_>, out: &mut Vec<u8>) -> Replied {
        let spec = asked.spec;
        let transaction = &asked.request.session.transaction;
        let is_queueing = transaction.is_queueing();
        let refused = match spec.command {
            Command::Multi if is_queueing => "ERR MULTI calls can not be nested",
            Command::Multi => {
                *transaction.kept.borrow_mut() = Some(Kept::default());
                transaction.is_queueing.set(true);
                write::status(out, "OK");
                return self.done(spec);
            }
            Command::Discard if is_queueing => {
                transaction.forget();
                write::status(out, "OK");
                return self.done(spec);
            }
            Command::Discard => "ERR DISCARD without MULTI",
            _ => match transaction.kept.take() {
                None => "ERR EXEC without MULTI",
                Some(kept) => {
                    transaction.forget();
                    if !kept.is_refused {
                        write::array(out, kept.count);
                        let _counted = self.done(spec);
                        if kept.count == 0 {
                            return Replied::Done;
                        }
                        transaction.is_running.set(true);
                        return Replied::Commands(kept.commands);
                    }
                    "EXECABORT Transaction discarded because of previous errors."
                }
            },
        };
        self.refuse_command(asked, refused, out)
    }
}
