//! `SUBSCRIBE` to the one channel there is: invalidations of connections that have named this one
//! with `CLIENT TRACKING ON REDIRECT`. Clients of RESP2 get them so.

use hotrow_answer::commands::{Command, Spec};
use hotrow_changes::tracking::CHANNEL;
use hotrow_resp::{Version, write};

use super::Session;
use super::command_request::AuthenticatedCommand;
use super::{Commands, Replied};

const ONE_CHANNEL: &str = "ERR the only channel is __redis__:invalidate: this server publishes \
    nothing but invalidations of CLIENT TRACKING";

impl Commands {
    /// Serves `SUBSCRIBE` and `UNSUBSCRIBE`.
    pub(super) fn subscribe(&self, asked: &AuthenticatedCommand<'_>, out: &mut Vec<u8>) -> Replied {
        let AuthenticatedCommand { request, spec, .. } = *asked;
        let (session, channels) = (request.session, request.arguments.from(1));
        let Some(tracking) = &self.tracking else {
            return self.recorder.refuse_command(asked, ONE_CHANNEL, out);
        };
        let is_begun = spec.command == Command::Subscribe;
        if is_begun && channels.clone().any(|channel| channel != CHANNEL) {
            return self.recorder.refuse_command(asked, ONE_CHANNEL, out);
        }
        let none = [CHANNEL];
        let is_any = channels.len() > 0;
        if is_begun {
            session.mailbox(tracking.shared(), asked.sender);
            session.is_subscribed.set(true);
        } else if !is_any || channels.clone().any(|channel| channel == CHANNEL) {
            session.is_subscribed.set(false);
        }
        session.update_receives();
        let version = session.version.get();
        let count = i64::from(session.is_subscribed.get());
        let all = none.into_iter().filter(|_| !is_any).chain(channels);
        for channel in all {
            match version {
                Version::Resp3 => write::push(out, 3),
                Version::Resp2 => write::array(out, 3),
            }
            write::bulk(out, spec.name.as_bytes());
            write::bulk(out, channel);
            write::integer(out, count);
        }
        self.recorder.done(spec)
    }
}

/// Returns whether a connection must not send this command, because clients of RESP2 that have
/// subscribed cannot distinguish its reply from a message.
#[inline]
pub(super) fn is_refused(session: &Session, spec: &Spec) -> bool {
    session.is_subscribed.get()
        && session.version.get() == Version::Resp2
        && !matches!(
            spec.command,
            Command::Subscribe
                | Command::Unsubscribe
                | Command::Ping
                | Command::Quit
                | Command::Reset
        )
}

/// Returns the text for it.
#[cold]
pub(super) fn refusal(name: &str) -> String {
    format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
         are allowed in this context"
    )
}
