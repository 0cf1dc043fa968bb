//! `MULTI`, `EXEC` and `DISCARD`: see [`Transaction`](super::transaction::Transaction).

use hotrow_answer::commands::Command;
use hotrow_resp::write;

use super::command_request::AuthenticatedCommand;
use super::transaction::Kept;
use super::{Commands, Replied};

const NOT_INSIDE: &str = "ERR Command not allowed inside a transaction";
const NO_ROOM: &str = "BUSY the commands of this transaction have more bytes than this server \
    allows (limits.body_bytes, limits.bodies_bytes_total)";

impl Commands {
    fn keep(&self, asked: &AuthenticatedCommand<'_>) -> bool {
        let (request, bodies) = (asked.request, &self.reads.budgets.bodies);
        let bytes_max = self.reads.limits.body_bytes;
        request.session.transaction.keep(request.arguments, bodies, bytes_max)
    }

    /// Keeps a command for `EXEC`.
    pub(crate) fn queue(&self, asked: &AuthenticatedCommand<'_>, out: &mut Vec<u8>) -> Replied {
        let AuthenticatedCommand { request, spec, .. } = *asked;
        let transaction = &request.session.transaction;
        let refused = match spec.command {
            Command::Auth | Command::Hello | Command::Subscribe | Command::Unsubscribe => {
                Some(NOT_INSIDE)
            }
            _ if !self.keep(asked) => Some(NO_ROOM),
            _ => None,
        };
        if let Some(text) = refused {
            transaction.refuse();
            return self.recorder.refuse_command(asked, text, out);
        }
        write::status(out, "QUEUED");
        Replied::Done
    }

    /// Serves `MULTI`, `EXEC` and `DISCARD`.
    pub(super) fn transact(&self, asked: &AuthenticatedCommand<'_>, out: &mut Vec<u8>) -> Replied {
        let spec = asked.spec;
        let transaction = &asked.request.session.transaction;
        let is_queueing = transaction.is_queueing();
        let refused = match spec.command {
            Command::Multi if is_queueing => "ERR MULTI calls can not be nested",
            Command::Multi => {
                *transaction.kept.borrow_mut() = Some(Kept::default());
                transaction.is_queueing.set(true);
                write::status(out, "OK");
                return self.recorder.done(spec);
            }
            Command::Discard if is_queueing => {
                transaction.forget();
                write::status(out, "OK");
                return self.recorder.done(spec);
            }
            Command::Discard => "ERR DISCARD without MULTI",
            _ => match transaction.kept.take() {
                None => "ERR EXEC without MULTI",
                Some(kept) => {
                    transaction.forget();
                    if !kept.is_refused {
                        write::array(out, kept.count);
                        let _counted = self.recorder.done(spec);
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
        self.recorder.refuse_command(asked, refused, out)
    }
}
