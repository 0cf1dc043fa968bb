//! What a connection has said about itself. One thread uses it.

use std::cell::{Cell, OnceCell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::Waker;

use hotrow_access::caller::Sender;
use hotrow_answer::context::ConnectionContext;
use hotrow_changes::tracking::{Mailbox, Owner, Tracking};
use hotrow_front::connection::commands::ClientSession;
use hotrow_resp::Version;

use super::tracked::Tracked;
use super::transaction::Transaction;
use crate::tracking::{ClientSender, Password};

/// Longest name of a client, and of its library, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 256;

/// Bits of a connection's number: what a client that knows only floating point keeps exactly.
const ID_BITS: u32 = 53;
/// Number of connections before.
static OPENED: AtomicU64 = AtomicU64::new(0);
/// Secret by which they are numbered.
static NUMBERING: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Returns the number of a new connection. It says nothing about others: a client that knows a
/// number can name its connection for invalidations.
fn new_id() -> u64 {
    let hash = NUMBERING.hash_one(OPENED.fetch_add(1, Ordering::Relaxed));
    (hash >> (u64::BITS - ID_BITS)).max(1)
}

/// State of one connection between its commands.
#[derive(Debug)]
pub struct Session {
    /// Its connection, and the password of `AUTH`.
    pub(crate) sender: Rc<ClientSender>,
    /// Number of the connection in this process.
    pub(crate) id: u64,
    pub(crate) version: Cell<Version>,
    pub(crate) name: RefCell<Box<[u8]>>,
    pub(super) library_name: RefCell<Box<[u8]>>,
    pub(super) library_version: RefCell<Box<[u8]>>,
    /// See [`Session::mailbox`].
    mailbox: OnceCell<Arc<Mailbox>>,
    /// Whether the connection takes what its mailbox has: it tracks, or has subscribed.
    receives: Cell<bool>,
    is_tracking: Cell<bool>,
    pub(super) is_subscribed: Cell<bool>,
    pub(super) tracked: RefCell<Option<Tracked>>,
    /// Commands since `MULTI`, and what is left of them since `EXEC`.
    pub(crate) transaction: Transaction,
}

impl Session {
    /// Begins the session of a connection.
    #[must_use]
    pub(crate) fn new(connection: Rc<ConnectionContext>) -> Rc<Self> {
        Rc::new(Self {
            sender: Rc::new(ClientSender { connection, password: RefCell::default() }),
            id: new_id(),
            version: Cell::default(),
            name: RefCell::default(),
            library_name: RefCell::default(),
            library_version: RefCell::default(),
            mailbox: OnceCell::new(),
            receives: Cell::new(false),
            is_tracking: Cell::new(false),
            is_subscribed: Cell::new(false),
            tracked: RefCell::default(),
            transaction: Transaction::default(),
        })
    }

    pub(crate) fn connection(&self) -> &Rc<ConnectionContext> {
        &self.sender.connection
    }

    /// Returns the password.
    pub(crate) fn password(&self) -> Password {
        self.sender.password.borrow().clone()
    }

    /// Replaces the password.
    pub(super) fn set_password(&self, password: Password) {
        *self.sender.password.borrow_mut() = password;
    }

    /// Forgets what the connection has said, except for its library.
    pub(super) fn reset(&self) {
        self.version.set(Version::default());
        self.sender.password.take();
        self.name.take();
        self.is_subscribed.set(false);
        self.track(None);
        self.hand_over(&Owner::default());
        self.transaction.forget();
    }
}

/// Client-side caching.
impl Session {
    /// Returns what waits for the connection. Other connections may name it by its number from now
    /// on.
    pub(super) fn mailbox(&self, tracking: &Arc<Tracking>, sender: &Sender) -> &Arc<Mailbox> {
        self.mailbox.get_or_init(|| tracking.open_mailbox(self.id, Owner::from(sender)))
    }

    /// Notes who holds the credential now.
    pub(super) fn hand_over(&self, owner: &Owner) {
        self.mailbox.get().iter().for_each(|mailbox| mailbox.hand_over(owner));
    }

    /// Begins or ends to track. Returns what it was before.
    pub(super) fn track(&self, tracked: Option<Tracked>) -> Option<Tracked> {
        let before = self.tracked.replace(tracked);
        self.is_tracking.set(self.tracked.borrow().is_some());
        self.update_receives();
        before
    }

    pub(super) fn update_receives(&self) {
        self.receives.set(self.is_subscribed.get() || self.tracked.borrow().is_some());
    }

    /// Returns whether the replies of its commands are kept fresh at its client.
    #[inline]
    pub(super) fn is_tracking(&self) -> bool {
        self.is_tracking.get()
    }

    /// Returns whether its client gets invalidations as pushes of RESP3.
    pub(super) fn needs_pushes(&self) -> bool {
        let tracked = self.tracked.borrow();
        tracked.as_ref().is_some_and(|tracked| !tracked.options.is_redirected())
    }

    /// Returns the version of the protocol that it has chosen.
    pub(crate) fn version(&self) -> Version {
        self.version.get()
    }
}

impl ClientSession for Session {
    fn begin(connection: Rc<ConnectionContext>) -> Rc<Self> {
        Self::new(connection)
    }

    #[inline]
    fn receives(&self) -> bool {
        self.receives.get()
    }

    fn wake_at_mail(&self, waker: &Waker) -> bool {
        let Some(mailbox) = self.mailbox.get() else { return false };
        mailbox.register(waker);
        mailbox.is_waiting()
    }

    /// Only as a push of RESP3 or to a connection that has subscribed.
    fn write_mail(&self, out: &mut Vec<u8>) -> Option<bool> {
        let can_take = self.is_subscribed.get() || self.version.get() == Version::Resp3;
        if !self.receives.get() || !can_take || self.transaction.is_running() {
            return None;
        }
        let mailbox = self.mailbox.get().filter(|mailbox| mailbox.is_waiting())?;
        mailbox.write(self.version(), out);
        Some(mailbox.is_closing())
    }

    fn is_in_transaction(&self) -> bool {
        self.transaction.is_running()
    }

    /// Ends what `CLIENT CACHING` has said of its commands too.
    fn end_transaction(&self) {
        self.transaction.end();
        self.tracked.borrow_mut().iter_mut().for_each(|tracked| tracked.caching = None);
    }

    fn was_slow(&self) {
        self.tracked.borrow().iter().for_each(|tracked| tracked.guard.was_slow());
    }
}

/// Returns whether the text can be the name of a client: printable characters without spaces.
pub(super) fn is_name(text: &[u8]) -> bool {
    text.len() <= NAME_BYTES_MAX && text.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::connection;
    use crate::tracking::credential_of;
    use hotrow_answer::credential::Credential;

    #[test]
    fn sessions_have_numbers_without_pattern_and_forget_on_request() {
        let (one, two) = (Session::new(connection()), Session::new(connection()));
        let mut ids: Vec<u64> = (0..1_000).map(|_| new_id()).chain([one.id, two.id]).collect();
        assert!(ids.iter().all(|id| (1..1 << ID_BITS).contains(id)));
        ids.sort_unstable();
        let gaps = ids.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.min() > Some(1_000), "about 2^53 / 1,000^2 without a pattern");
        one.set_password(Some(b"hrk_x"[..].into()));
        one.version.set(Version::Resp3);
        *one.name.borrow_mut() = Box::from(&b"worker"[..]);
        assert_eq!(credential_of(&one.password()), Credential::Key(b"hrk_x"));
        one.reset();
        assert_eq!(credential_of(&one.password()), Credential::None);
        assert_eq!((one.version.get(), one.name.borrow().len()), (Version::Resp2, 0));
    }

    #[test]
    fn a_name_is_printable() {
        for (text, is_printable) in
            [(&b""[..], true), (b"a-1", true), (b"a b", false), (b"a\n", false), (b"\xff", false)]
        {
            assert_eq!(is_name(text), is_printable, "{text:?}");
        }
        assert!(!is_name(&[b'a'; NAME_BYTES_MAX + 1]));
    }
}
