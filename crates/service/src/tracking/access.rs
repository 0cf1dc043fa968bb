//! The credential of a tracking client, judged again: at the expiry of its token, and whenever
//! grants, keys or settings have changed.
//!
//! A client gives up everything whenever anything has changed: columns that it may no longer read
//! are in its copies. Its commands are judged anew each, so that it gets copies only of what it may
//! read. A broadcasting client gets keys without a command, and is closed if it may no longer.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use hotrow_access::caller::Sender;
use hotrow_access::verify::UnixSeconds;
use hotrow_answer::collections::Collections;
use hotrow_answer::context::{ConnectionContext, ReadRequest, RequestTimes};
use hotrow_answer::credential::Credential;
use hotrow_cache::Cache;
use hotrow_changes::follow::Follows;
use hotrow_gate::access::wall_clock;
use hotrow_http1::fields::Fields;
use hotrow_measure::clock::Nanos;
use hotrow_push::tracking::Prefixes;
use hotrow_source::ReadFailure;

use crate::handle::Authorisation;
use crate::shared::Shared;

/// Password of `AUTH`, a token or an API key; `None`: there is none.
pub(crate) type Password = Option<Rc<[u8]>>;

/// Returns the credential that a password is.
#[inline]
pub(crate) fn credential_of(password: &Password) -> Credential<'_> {
    password.as_deref().map_or(Credential::None, Credential::of_password)
}

/// Connection of a client that may track, and the password that it has sent.
#[derive(Debug)]
pub(crate) struct ClientSender {
    pub(crate) connection: Rc<ConnectionContext>,
    pub(crate) password: RefCell<Password>,
}

/// Settings by which tracking clients are judged.
pub(crate) struct TrackingRules {
    pub(crate) collections: Arc<Collections>,
    pub(crate) cache: Arc<Cache<ReadFailure>>,
    follows: Option<Arc<Follows>>,
    authorisation: Rc<Authorisation>,
}

impl fmt::Debug for TrackingRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackingRules").finish_non_exhaustive()
    }
}

impl TrackingRules {
    pub(crate) fn new(shared: &Shared, authorisation: &Rc<Authorisation>) -> Self {
        Self {
            collections: Arc::clone(&shared.collections),
            cache: Arc::clone(&shared.cache),
            follows: shared.follows.clone(),
            authorisation: Rc::clone(authorisation),
        }
    }

    /// Checks that a client may be informed of all changes of the keys with these beginnings.
    ///
    /// # Errors
    /// The text of the error.
    pub(crate) fn check_broadcast(
        &self,
        prefixes: &Prefixes,
        sender: &Sender,
    ) -> Result<(), String> {
        for prefix in prefixes.0.iter().map(|prefix| &**prefix) {
            let mut is_any = false;
            for (id, collection) in self.collections.served() {
                let name = [collection.name.as_bytes(), b":"].concat();
                if !name.starts_with(prefix) && !prefix.starts_with(&name) {
                    continue;
                }
                is_any = true;
                let name = &collection.name;
                if collection.tenancy.is_some() {
                    return Err(format!(
                        "NOPERM BCAST is not possible for keys of '{name}', whose records belong \
                         to tenants; name prefixes of other collections"
                    ));
                }
                if self.authorisation.check_read(id, sender.caller.roles).is_err() {
                    return Err(format!("NOPERM no role of this credential may read '{name}'"));
                }
                let is_followed =
                    self.follows.as_ref().is_some_and(|follows| follows.is_followed(id));
                if !is_followed {
                    return Err(format!(
                        "ERR BCAST needs collections.{name}.changes = true: a client learns the \
                         ids of all changed records"
                    ));
                }
            }
            if !is_any {
                let shown = String::from_utf8_lossy(prefix);
                return Err(format!("ERR no key of this server begins with '{shown}'"));
            }
        }
        Ok(())
    }

    /// Returns the sender of a client's commands, if it may still do what it does. `broadcast`: the
    /// beginnings of the keys whose changes it is informed of.
    fn judge(
        &self,
        client: &ClientSender,
        broadcast: Option<&Prefixes>,
    ) -> Result<Sender, Refused> {
        let password = client.password.borrow().clone();
        let times = RequestTimes::of_arrival(Nanos::now());
        let request = ReadRequest::new(&client.connection, Fields::default(), times);
        let credential = || Ok(credential_of(&password));
        let sender = self.authorisation.authenticate(credential, &request).map_err(|_| Refused)?;
        if let Some(prefixes) = broadcast {
            self.check_broadcast(prefixes, &sender).map_err(|_| Refused)?;
        }
        Ok(sender)
    }
}

/// What a client was judged by.
#[derive(Debug)]
pub(crate) struct Judged {
    rules: Rc<TrackingRules>,
    /// Version of grants and keys.
    generation: Option<u64>,
    /// Expiry of its token; `None`: it has none, or the client was refused since.
    expires: Option<UnixSeconds>,
}

/// The client may no longer be served.
#[derive(Debug)]
pub(crate) struct Refused;

impl Judged {
    /// Notes that the sender of a command was judged by `rules`.
    pub(crate) fn by(rules: &Rc<TrackingRules>, sender: &Sender) -> Self {
        let generation = rules.authorisation.generation();
        Self { rules: Rc::clone(rules), generation, expires: sender.expires }
    }

    /// Returns the same, to be judged again soon.
    pub(crate) fn expired(self) -> Self {
        Self { expires: Some(UnixSeconds(0)), ..self }
    }

    /// Judges a client again. `None`: nothing has changed.
    pub(crate) fn again(
        &mut self,
        rules: &Rc<TrackingRules>,
        client: &ClientSender,
        broadcast: Option<&Prefixes>,
    ) -> Option<Result<(), Refused>> {
        let is_expired = self.expires.is_some_and(|expires| wall_clock() >= expires);
        let generation = rules.authorisation.generation();
        if Rc::ptr_eq(&self.rules, rules) && self.generation == generation && !is_expired {
            return None;
        }
        let verdict = rules.judge(client, broadcast);
        *self = Self {
            rules: Rc::clone(rules),
            generation: rules.authorisation.generation(),
            expires: verdict.as_ref().ok().and_then(|sender| sender.expires),
        };
        Some(verdict.map(|_| ()))
    }
}
