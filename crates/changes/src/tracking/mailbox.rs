//! Invalidations that wait for one connection. Any worker may put them in; the connection takes
//! them when no reply is being written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use hotrow_access::caller::Sender;
use hotrow_access::identity::Identity;
use hotrow_answer::budgets::COUNTED_BYTES_MIN;
use hotrow_push::tracking::{AllCause, Push};
use hotrow_resp::{Version, write};
use hotrow_types::tenant::Tenants;
use parking_lot::Mutex;

use super::{Tracking, TrackingCounts};

/// Bytes of invalidations that wait for one connection. Beyond it its client gives up everything,
/// which takes no room. Not counted in the budget of answers, like the answers below this size.
const WAITING_BYTES_MAX: usize = COUNTED_BYTES_MIN as usize;
/// Bytes of one key besides its text.
const KEY_OVERHEAD_BYTES: usize = 16;
/// Channel on which connections of RESP2 get invalidations.
pub const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Holder of a connection's credential. Only connections of the same one may name each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    identity: Option<Identity>,
    tenants: Tenants,
}

impl From<&Sender> for Owner {
    fn from(sender: &Sender) -> Self {
        Self { identity: sender.caller.identity, tenants: sender.tenants.clone() }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Mailbox {
    /// Number of the connection.
    id: u64,
    tracking: Arc<Tracking>,
    mail: Mutex<Mail>,
    /// Whether there is anything for the connection.
    is_waiting: AtomicBool,
    /// The connection must end when it has taken what waits.
    is_closing: AtomicBool,
}

/// What waits.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// All copies must be given up, before those of the keys.
    all: bool,
    /// Keys, as an array has them.
    keys: Vec<u8>,
    count: usize,
    /// The connection of this number, to which invalidations should go, is closed.
    broken_redirect: Option<u64>,
    waker: Option<Waker>,
    owner: Owner,
    /// Changes of the owner.
    handovers: u64,
}

/// A connection that gets the invalidations of another one. When dropped, because that one tracks
/// no more, its client gives up everything.
#[derive(Debug)]
pub struct Redirect {
    /// Number of the connection that gets them.
    pub id: u64,
    mailbox: Weak<Mailbox>,
    /// Those before it was named; after a further one it belongs to another credential.
    handovers: u64,
    /// Whether a message could not be delivered.
    pub is_broken: bool,
}

impl Redirect {
    /// Names the connection of a mailbox, if it has this owner.
    pub(crate) fn to(mailbox: &Arc<Mailbox>, owner: &Owner) -> Option<Self> {
        let mail = mailbox.mail.lock();
        if mail.owner != *owner {
            return None;
        }
        let (id, handovers) = (mailbox.id, mail.handovers);
        Some(Self { id, mailbox: Arc::downgrade(mailbox), handovers, is_broken: false })
    }

    /// Puts something into the mailbox. Returns `false` if its connection is closed or has another
    /// credential.
    pub fn deliver(&self, push: Push<'_>) -> bool {
        let target = self.mailbox.upgrade();
        target.is_some_and(|target| target.deliver(push, Some(self.handovers)))
    }

    /// Delivers no more; the connection's client gives up everything.
    pub fn sever(&mut self) {
        self.deliver(Push::All(AllCause::Ended));
        self.mailbox = Weak::new();
    }

    /// Returns whether its connection is open, with the credential that it had, and with this
    /// owner.
    pub fn reaches(&self, owner: Option<&Owner>) -> bool {
        self.mailbox.upgrade().is_some_and(|target| {
            let mail = target.mail.lock();
            mail.handovers == self.handovers && owner.is_none_or(|owner| mail.owner == *owner)
        })
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        self.deliver(Push::All(AllCause::Ended));
    }
}

impl Mailbox {
    pub(crate) fn new(id: u64, owner: Owner, tracking: Arc<Tracking>) -> Self {
        let mail = Mutex::new(Mail { owner, ..Mail::default() });
        let (is_waiting, is_closing) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { id, tracking, mail, is_waiting, is_closing }
    }

    /// Notes who holds the credential now. Another holder gets nothing of what waits, and
    /// connections that have named this one do so no more.
    pub fn hand_over(&self, owner: &Owner) {
        let mut mail = self.mail.lock();
        if mail.owner != *owner {
            mail.forget_keys();
            mail.all = false;
            mail.owner = owner.clone();
            mail.handovers += 1;
        }
    }

    /// Returns whether there is anything for the connection.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    /// Changes what waits. Returns `false`, without a change, after a handover since `handovers`.
    fn put(&self, handovers: Option<u64>, change: impl FnOnce(&mut Mail)) -> bool {
        let mut mail = self.mail.lock();
        if handovers.is_some_and(|before| before != mail.handovers) {
            return false;
        }
        change(&mut mail);
        let waker = mail.waker.take();
        self.is_waiting.store(true, Ordering::Release);
        drop(mail);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Adds what the client must give up, unless there was a handover since `handovers`.
    pub fn deliver(&self, push: Push<'_>, handovers: Option<u64>) -> bool {
        let counts = &self.tracking.counts;
        self.put(handovers, |mail| match push {
            Push::Key(key)
                if mail.keys.len() + key.len() + KEY_OVERHEAD_BYTES <= WAITING_BYTES_MAX =>
            {
                write::bulk(&mut mail.keys, key);
                mail.count += 1;
                counts.invalidated();
            }
            Push::Key(_) => mail.give_up_all(AllCause::Behind, counts),
            Push::All(cause) => mail.give_up_all(cause, counts),
        })
    }

    /// Notes that the connection of this number is closed.
    pub fn put_broken_redirect(&self, id: u64) {
        self.put(None, |mail| mail.broken_redirect = Some(id));
    }

    /// Has the connection end when it has taken what waits.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.put(None, |_| {});
    }

    /// Returns whether the connection ends after its messages.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Wakes the connection at the next message.
    pub fn register(&self, waker: &Waker) {
        let mut mail = self.mail.lock();
        if mail.waker.as_ref().is_none_or(|own| !own.will_wake(waker)) {
            mail.waker = Some(waker.clone());
        }
    }

    /// Appends what waits, as the protocol's `version` has it.
    pub fn write(&self, version: Version, out: &mut Vec<u8>) {
        let mut mail = self.mail.lock();
        self.is_waiting.store(false, Ordering::Release);
        if let Some(id) = mail.broken_redirect.take()
            && version == Version::Resp3
        {
            write::push(out, 2);
            write::bulk(out, b"tracking-redir-broken");
            write::integer(out, i64::try_from(id).unwrap_or(i64::MAX));
        }
        if std::mem::take(&mut mail.all) {
            begin(version, out);
            write::null(out, version);
        }
        if mail.count > 0 {
            begin(version, out);
            write::array(out, mail.count);
            out.extend_from_slice(&mail.keys);
            mail.forget_keys();
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.tracking.close_mailbox(self.id);
    }
}

impl Mail {
    fn give_up_all(&mut self, cause: AllCause, counts: &TrackingCounts) {
        self.forget_keys();
        self.all = true;
        counts.gave_up_all(cause);
    }

    fn forget_keys(&mut self) {
        // A connection that waits needs no memory.
        self.keys = Vec::new();
        self.count = 0;
    }
}

/// Appends the beginning of a message, whose keys follow.
fn begin(version: Version, out: &mut Vec<u8>) {
    match version {
        Version::Resp3 => {
            write::push(out, 2);
            write::bulk(out, b"invalidate");
        }
        Version::Resp2 => {
            write::array(out, 3);
            write::bulk(out, b"message");
            write::bulk(out, CHANNEL);
        }
    }
}
