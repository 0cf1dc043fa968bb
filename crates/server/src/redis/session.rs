//! What a connection has said about itself. One thread uses it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_http1::fields::FieldsBuf;
use hotrow_resp::Version;

use crate::context::ConnectionContext;

/// Longest name of a client, and of its library, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 256;

/// Number of the connection before.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// State of one connection between its commands.
#[derive(Debug)]
pub struct Session {
    pub(crate) connection: Rc<ConnectionContext>,
    /// Number of the connection in this process, from 1.
    pub(super) id: u64,
    pub(super) version: Cell<Version>,
    /// The credential of `AUTH`, as HTTP has it; empty without one.
    credential: RefCell<Rc<FieldsBuf>>,
    pub(super) name: RefCell<Box<[u8]>>,
    pub(super) library_name: RefCell<Box<[u8]>>,
    pub(super) library_version: RefCell<Box<[u8]>>,
}

impl Session {
    /// Begins the session of a connection.
    #[must_use]
    pub fn new(connection: Rc<ConnectionContext>) -> Rc<Self> {
        Rc::new(Self {
            connection,
            id: LAST_ID.fetch_add(1, Ordering::Relaxed) + 1,
            version: Cell::default(),
            credential: RefCell::default(),
            name: RefCell::default(),
            library_name: RefCell::default(),
            library_version: RefCell::default(),
        })
    }

    /// Returns the credential, as header fields.
    pub(super) fn credential(&self) -> Rc<FieldsBuf> {
        Rc::clone(&self.credential.borrow())
    }

    /// Replaces the credential.
    pub(super) fn set_credential(&self, credential: Rc<FieldsBuf>) {
        *self.credential.borrow_mut() = credential;
    }

    /// Forgets what the connection has said, except for its library.
    pub(super) fn reset(&self) {
        self.version.set(Version::default());
        self.credential.take();
        self.name.take();
    }
}

/// Returns a password as the header field that has the same credential.
pub(super) fn credential_of(password: &[u8]) -> Rc<FieldsBuf> {
    let value = [b"Bearer ", password].concat();
    Rc::new(FieldsBuf::from_iter([("authorization", value)]))
}

/// Returns whether the text can be the name of a client: printable characters without spaces.
pub(super) fn is_name(text: &[u8]) -> bool {
    text.len() <= NAME_BYTES_MAX && text.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tests::connection;

    #[test]
    fn sessions_are_numbered_and_forget_on_request() {
        let (one, two) = (Session::new(connection()), Session::new(connection()));
        assert!(two.id > one.id);
        one.set_credential(credential_of(b"hrk_x"));
        one.version.set(Version::Resp3);
        *one.name.borrow_mut() = Box::from(&b"worker"[..]);
        let credential = one.credential();
        assert_eq!(credential.as_fields().get("Authorization"), Some(&b"Bearer hrk_x"[..]));
        one.reset();
        assert!(one.credential().as_fields().iter().next().is_none());
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
