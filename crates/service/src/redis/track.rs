//! `CLIENT TRACKING` and what belongs to it. The texts of errors are those of Redis where it has
//! the same rule.

use std::collections::HashMap;
use std::rc::Rc;

use hotrow_access::caller::Sender;
use hotrow_cache::Record;
use hotrow_changes::tracking::Owner;
use hotrow_measure::clock::Nanos;
use hotrow_push::tracking::TrackedKey;
#[cfg(feature = "failpoints")]
use hotrow_push::tracking::TrackingPlant;
use hotrow_resp::{Version, write};
use hotrow_types::key::Key;

use super::command_request::AuthenticatedCommand;
use super::tracked::{Options, SYNTAX, Tracked};
use super::{Commands, Replied, Session};
use crate::tracking::{Judged, Registered, WorkerTracking, spelling};

const NOT_HERE: &str = "ERR CLIENT TRACKING is not available";
const NEEDS_RESP3: &str = "ERR CLIENT TRACKING ON needs HELLO 3, or REDIRECT to a connection that \
    has subscribed to __redis__:invalidate";
const NO_TARGET: &str = "ERR The client ID you want redirect to does not exist";
const CACHING_WITHOUT: &str = "ERR CLIENT CACHING can be called only when the client is in \
    tracking mode with OPTIN or OPTOUT mode enabled";
const YES_WITHOUT: &str =
    "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
const NO_WITHOUT: &str =
    "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";

/// Returns whether a planted mistake keeps a reply that memory does not keep: alone, the comparison
/// with memory makes up for the other two.
#[cfg(feature = "failpoints")]
fn trusts_every_reply(plant: TrackingPlant) -> bool {
    matches!(
        plant,
        TrackingPlant::RegisteredLate
            | TrackingPlant::PushedBeforeReply
            | TrackingPlant::HiddenReplyKept
    )
}

impl Commands {
    /// Serves `CLIENT TRACKING`.
    pub(super) fn track(
        self: &Rc<Self>,
        asked: &AuthenticatedCommand<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let (arguments, session) = (asked.request.arguments, asked.request.session);
        let options = Options::parse(arguments.from(3))?;
        match &*arguments.get(2).unwrap_or_default().to_ascii_lowercase() {
            b"off" => drop(session.track(None)),
            b"on" => self.track_on(options, session, asked.sender)?,
            _ => return Err(SYNTAX.to_owned()),
        }
        write::status(out, "OK");
        Ok(())
    }

    fn track_on(
        self: &Rc<Self>,
        mut options: Options,
        session: &Rc<Session>,
        sender: &Sender,
    ) -> Result<(), String> {
        let worker = self.tracking.as_ref().ok_or(NOT_HERE)?;
        let shared = worker.shared();
        let owner = Owner::from(sender);
        let redirect = match u64::try_from(options.redirect) {
            Ok(own) if own == 0 || own == session.id => {
                options.redirect = 0;
                None
            }
            other => {
                let found = other.ok().and_then(|id| shared.redirect(id, &owner));
                Some(found.ok_or(NO_TARGET)?)
            }
        };
        let before = session.tracked.borrow().as_ref().map(|tracked| tracked.options.clone());
        options.check(before.as_ref())?;
        if redirect.is_none() && session.version.get() == Version::Resp2 {
            return Err(NEEDS_RESP3.to_owned());
        }
        if options.is_broadcast {
            if options.prefixes.0.is_empty() && before.is_none() {
                options.prefixes.0.push(Box::default());
            }
            self.rules.check_broadcast(&options.prefixes, sender)?;
        }
        if let Some(tracked) = &mut *session.tracked.borrow_mut() {
            // What the client knows so far stays as it is.
            tracked.guard.redirect(redirect);
            let known = &tracked.options.prefixes.0;
            options.prefixes.0.retain(|prefix| !known.contains(prefix));
            tracked.guard.add_prefixes(options.prefixes.clone());
            options.prefixes.0.splice(0..0, known.iter().cloned());
            tracked.options = options;
            return Ok(());
        }
        let own = session.mailbox(shared, sender).clone();
        let broadcast = options.is_broadcast.then(|| options.prefixes.clone());
        let judged = Judged::by(&self.rules, sender);
        let asked = Registered { redirect, broadcast, own, sender: Rc::clone(&session.sender) };
        let guard = WorkerTracking::register(worker, asked, judged);
        session.track(Some(Tracked::new(guard, options)));
        Ok(())
    }
}

/// `CLIENT CACHING`, `GETREDIR` and `TRACKINGINFO`.
pub(super) fn caching(session: &Session, answer: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut tracked = session.tracked.borrow_mut();
    let Some(tracked) = &mut *tracked else { return Err(CACHING_WITHOUT.to_owned()) };
    let is_yes = match &*answer.to_ascii_lowercase() {
        b"yes" if !tracked.options.is_opt_in => return Err(YES_WITHOUT.to_owned()),
        b"no" if !tracked.options.is_opt_out => return Err(NO_WITHOUT.to_owned()),
        b"yes" => true,
        b"no" => false,
        _ => return Err(SYNTAX.to_owned()),
    };
    tracked.caching = Some(is_yes);
    write::status(out, "OK");
    Ok(())
}

/// Writes the number of the connection that gets the invalidations.
pub(crate) fn target(session: &Session, out: &mut Vec<u8>) {
    let tracked = session.tracked.borrow();
    write::integer(out, tracked.as_ref().map_or(-1, |tracked| tracked.options.redirect));
}

/// Writes how the connection tracks.
pub(super) fn describe(session: &Session, out: &mut Vec<u8>) {
    let version = session.version.get();
    let tracked = session.tracked.borrow();
    let none = Options::default();
    let options = tracked.as_ref().map_or(&none, |tracked| &tracked.options);
    let caching = tracked.as_ref().and_then(|tracked| tracked.caching);
    let is_broken = tracked.as_ref().is_some_and(|tracked| tracked.guard.has_broken_redirect());
    let flags = [
        (tracked.is_none(), "off"),
        (tracked.is_some(), "on"),
        (options.is_broadcast, "bcast"),
        (options.is_opt_in, "optin"),
        (caching == Some(true), "caching-yes"),
        (options.is_opt_out, "optout"),
        (caching == Some(false), "caching-no"),
        (options.is_no_loop, "noloop"),
        (is_broken, "broken_redirect"),
    ];
    write::map(out, version, 3);
    write::bulk(out, b"flags");
    write::set(out, version, flags.iter().filter(|(is_set, _)| *is_set).count());
    for (_, name) in flags.iter().filter(|(is_set, _)| *is_set) {
        write::bulk(out, name.as_bytes());
    }
    write::bulk(out, b"redirect");
    write::integer(out, tracked.as_ref().map_or(-1, |_| options.redirect));
    write::bulk(out, b"prefixes");
    write::array(out, options.prefixes.0.len());
    options.prefixes.0.iter().for_each(|prefix| write::bulk(out, prefix));
}

/// Replies that are kept fresh at the client.
impl Commands {
    /// Serves a command whose connection tracks: registers its keys first, and informs the client
    /// of what it may not keep when the reply is written.
    #[cold]
    pub(super) fn tracked_command(
        self: &Rc<Self>,
        asked: &AuthenticatedCommand<'_>,
        out: &mut Vec<u8>,
    ) -> Replied {
        let session = asked.request.session;
        if !self.begin_tracked(asked) {
            return self.serve_command(asked, out);
        }
        let begin = out.len();
        match self.serve_command(asked, out) {
            Replied::Later(pending) => {
                let (commands, session) = (Rc::clone(self), Rc::clone(session));
                Replied::Later(Box::pin(async move {
                    let reply = pending.await;
                    commands.end_tracked(&session, reply.bytes.first() == Some(&b'-'));
                    reply
                }))
            }
            replied => {
                self.end_tracked(session, out.get(begin) == Some(&b'-'));
                replied
            }
        }
    }

    /// Registers the keys of a command. Returns `false` if its reply is not to be kept fresh.
    fn begin_tracked(&self, asked: &AuthenticatedCommand<'_>) -> bool {
        let session = asked.request.session;
        let mut tracked = session.tracked.borrow_mut();
        let Some(tracked) = &mut *tracked else { return false };
        let caching = match session.transaction.is_open() {
            true => tracked.caching,
            false => tracked.caching.take(),
        };
        let Options { is_broadcast, is_opt_in, is_opt_out, .. } = tracked.options;
        let is_wanted = match caching {
            Some(is_yes) if is_opt_in || is_opt_out => is_yes,
            _ => !is_opt_in,
        };
        let Some(keys) = asked.keys().filter(|_| is_wanted) else { return false };
        let collections = &self.reads.collections;
        let keys = keys.map(|text| {
            let named = self.named_key(text).ok().and_then(|(named, key)| Some((named, key.ok()?)));
            let key = named.filter(|(named, key)| {
                // A change of the record that an alias names does not name the alias.
                !named.is_alias()
                    // Broadcasts have one spelling.
                    && (!is_broadcast || spelling(collections, key).as_deref() == Some(text))
            });
            TrackedKey { key: key.map(|(_, key)| key), spelling: text.into() }
        });
        #[cfg(feature = "failpoints")]
        if tracked.guard.plant() == TrackingPlant::RegisteredLate {
            tracked.unregistered = keys.collect();
            session.connection().begin_collecting();
            return true;
        }
        tracked.guard.begin(keys);
        session.connection().begin_collecting();
        true
    }

    /// Has the client give up what it may not keep of a reply that is written.
    fn end_tracked(&self, session: &Session, is_error: bool) {
        let answered = session.connection().collected();
        let records: HashMap<&[u8], &Record> =
            answered.iter().map(|record| (record.key_bytes(), record)).collect();
        let cache = &self.reads.cache;
        let now = Nanos::now();
        let keeps = |key: &Key| {
            let record = records.get(key.as_bytes())?;
            let until = cache.keeps_until(key, record, now)?;
            Some((cache.source_of(key.collection()), until))
        };
        #[cfg(feature = "failpoints")]
        let keeps = |key: &Key| {
            let tracked = session.tracked.borrow();
            let plant = tracked.as_ref().map(|tracked| tracked.guard.plant());
            let is_kept =
                plant.is_some_and(trusts_every_reply) && records.contains_key(key.as_bytes());
            keeps(key)
                .or_else(|| is_kept.then_some((cache.source_of(key.collection()), Nanos::MAX)))
        };
        #[cfg(feature = "failpoints")]
        if let Some(tracked) = &mut *session.tracked.borrow_mut() {
            tracked.guard.begin(std::mem::take(&mut tracked.unregistered).into_iter());
        }
        if let Some(tracked) = &*session.tracked.borrow() {
            tracked.guard.replied(is_error, keeps);
        }
    }

    /// Has a client that tracks, or gets invalidations of others, give up everything, because its
    /// sender is another one now.
    pub(super) fn changed_credential(self: &Rc<Self>, session: &Session, sender: &Sender) {
        let owner = Owner::from(sender);
        // First: it ends what waits for the former holder.
        session.hand_over(&owner);
        if let Some(tracked) = &*session.tracked.borrow() {
            let judged = Judged::by(&self.rules, sender);
            // Whether it may broadcast still is judged at the next look.
            let judged = if tracked.options.is_broadcast { judged.expired() } else { judged };
            tracked.guard.changed_credential(judged, &owner);
        }
    }
}
