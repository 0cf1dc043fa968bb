//! `MULTI` and `EXEC`: commands that are kept and then begun one after the other, as if they had
//! arrived behind `EXEC`. There is nothing to undo and nothing to isolate: no command writes, and
//! each record is read by itself, as without them. Client libraries use them to learn the lifetime
//! of a record with it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use hotrow_admission::byte_budget::{ByteBudget, Reservation};
use hotrow_answer::commands::{Command, Spec};
use hotrow_resp::arguments::Arguments;
use hotrow_resp::write;

/// Least limit on the bytes of the commands.
const BYTES_MAX_LEAST: usize = 16 << 10;

/// Commands between `MULTI` and the last reply of `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) kept: RefCell<Option<Kept>>,
    /// Whether `MULTI` was sent, and neither `EXEC` nor `DISCARD`.
    pub(super) is_queueing: Cell<bool>,
    /// Whether the replies of `EXEC` are being written: nothing may come between them.
    pub(crate) is_running: Cell<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// As they are sent.
    pub(crate) commands: Vec<u8>,
    pub(crate) count: usize,
    pub(super) is_refused: bool,
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
    pub(crate) fn is_open(&self) -> bool {
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
    pub(crate) fn refused(&self, spec: &Spec, text: String) -> String {
        self.refuse();
        if !self.is_queueing() || spec.command != Command::Exec {
            return text;
        }
        self.forget();
        format!("EXECABORT Transaction discarded because of: {text}")
    }

    /// Keeps a command, in the budget of `bodies`. Returns whether there was room.
    pub(crate) fn keep(
        &self,
        arguments: Arguments<'_>,
        bodies: &Arc<ByteBudget>,
        bytes_max: usize,
    ) -> bool {
        let mut kept = self.kept.borrow_mut();
        let Some(kept) = &mut *kept else { return false };
        write::array(&mut kept.commands, arguments.len());
        arguments.from(0).for_each(|argument| write::bulk(&mut kept.commands, argument));
        kept.count += 1;
        let bytes = kept.commands.len();
        let reservation = kept.reservation.get_or_insert_with(|| bodies.empty());
        let has_room =
            bytes <= bytes_max.max(BYTES_MAX_LEAST) && reservation.grow_to(bytes as u64).is_ok();
        if !has_room {
            *kept = Kept { is_refused: true, ..Kept::default() };
        }
        has_room
    }
}
