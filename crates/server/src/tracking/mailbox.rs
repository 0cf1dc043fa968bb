//! Invalidations that wait for one connection. Any worker may put them in; the connection takes
//! them when no reply is being written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use hotrow_push::tracking::AllCause;
use hotrow_resp::{Version, write};
use parking_lot::Mutex;

use super::Tracking;
use crate::budgets::COUNTED_BYTES_MIN;

/// Bytes of invalidations that wait for one connection. Beyond it its client gives up everything,
/// which takes no room. Not counted in the budget of answers, like the answers below this size.
const WAITING_BYTES_MAX: usize = COUNTED_BYTES_MIN as usize;
/// Bytes of one key besides its text.
const KEY_OVERHEAD_BYTES: usize = 16;
/// Channel on which connections of RESP2 get invalidations.
pub(crate) const CHANNEL: &[u8] = b"__redis__:invalidate";

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Mailbox {
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
}

impl Mailbox {
    pub(super) fn new(id: u64, tracking: Arc<Tracking>) -> Self {
        let (is_waiting, is_closing) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { id, tracking, mail: Mutex::default(), is_waiting, is_closing }
    }

    /// Returns whether there is anything for the connection.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    fn put(&self, change: impl FnOnce(&mut Mail)) {
        let mut mail = self.mail.lock();
        change(&mut mail);
        let waker = mail.waker.take();
        self.is_waiting.store(true, Ordering::Release);
        drop(mail);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Adds a key whose copies are outdated.
    pub(super) fn put_key(&self, key: &[u8]) {
        self.put(|mail| {
            if mail.keys.len() + key.len() + KEY_OVERHEAD_BYTES > WAITING_BYTES_MAX {
                mail.forget_keys();
                mail.all = true;
                self.tracking.counts.gave_up_all(AllCause::Behind);
                return;
            }
            write::bulk(&mut mail.keys, key);
            mail.count += 1;
            self.tracking.counts.invalidated();
        });
    }

    /// Has the client give up all copies.
    pub(super) fn put_all(&self, cause: AllCause) {
        self.put(|mail| {
            mail.forget_keys();
            mail.all = true;
            self.tracking.counts.gave_up_all(cause);
        });
    }

    /// Notes that the connection of this number is closed.
    pub(super) fn put_broken_redirect(&self, id: u64) {
        self.put(|mail| mail.broken_redirect = Some(id));
    }

    /// Has the connection end when it has taken what waits.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.put(|_| {});
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Wakes the connection at the next message.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut mail = self.mail.lock();
        if mail.waker.as_ref().is_none_or(|own| !own.will_wake(waker)) {
            mail.waker = Some(waker.clone());
        }
    }

    /// Appends what waits, as the protocol's `version` has it.
    pub(crate) fn write(&self, version: Version, out: &mut Vec<u8>) {
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
