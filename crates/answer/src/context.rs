//! Context of a request: what its handler knows besides its route and its body.
//!
//! HTTP and the Redis protocol parse to the same [`ReadRequest`]. It borrows from the connection's
//! [`ConnectionContext`] and from the bytes of the request's head: a hit copies and allocates
//! nothing. A request that waits becomes a [`PendingRequest`].

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use hotrow_access::caller::{Caller, Peer, Rights};
use hotrow_cache::Record;
use hotrow_http1::fields::{Fields, FieldsBuf};
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::columns::Columns;

use crate::activity::Activity;
use crate::client::Clients;
use crate::read_requirement::{ReadRequirement, Required};
use crate::scan_detector::{ClientDetectors, ScanDetector, ScanSubject};
use crate::tenant_filter::{TenantFilter, TenantFilterBuf};

/// State of a connection that its requests use. One thread uses it.
#[derive(Debug)]
pub struct ConnectionContext {
    /// The other end.
    pub peer: Peer,
    /// Subject of the client's certificate (RFC 4514), if it sent a valid one.
    pub certificate_subject: Option<Box<str>>,
    /// Holds the reservations of answers whose last bytes are not yet in the kernel.
    pub activity: Rc<Activity>,
    /// Lookups of the connection's requests.
    pub(crate) scan_detector: ScanDetector,
    /// Whether the peer is a trusted proxy; determined by the first request.
    pub(crate) is_proxy: OnceCell<bool>,
    /// Whether it speaks the Redis protocol: batches stay in parts, and it renders them.
    pub is_redis: bool,
    /// Whether the records of answers are collected, because the client may keep copies of them.
    collects: Cell<bool>,
    collected: RefCell<Vec<Record>>,
}

impl ConnectionContext {
    /// Creates the context of a connection from `peer`.
    #[must_use]
    pub fn new(peer: impl Into<Peer>, activity: Rc<Activity>) -> Rc<Self> {
        Self::certified(peer, None, activity)
    }

    /// Creates the same with the subject of the client's verified certificate.
    #[must_use]
    pub fn certified(
        peer: impl Into<Peer>,
        certificate_subject: Option<Box<str>>,
        activity: Rc<Activity>,
    ) -> Rc<Self> {
        Rc::new(Self::of(peer.into(), certificate_subject, activity, false))
    }

    /// Creates the same for a client that speaks the Redis protocol.
    #[must_use]
    pub fn of_redis(
        peer: Peer,
        certificate_subject: Option<Box<str>>,
        activity: Rc<Activity>,
    ) -> Rc<Self> {
        Rc::new(Self::of(peer, certificate_subject, activity, true))
    }

    fn of(
        peer: Peer,
        certificate_subject: Option<Box<str>>,
        activity: Rc<Activity>,
        is_redis: bool,
    ) -> Self {
        Self {
            peer,
            certificate_subject,
            activity,
            scan_detector: ScanDetector::default(),
            is_proxy: OnceCell::new(),
            is_redis,
            collects: Cell::new(false),
            collected: RefCell::default(),
        }
    }

    /// Returns what the lookups of a request with these header fields are counted for. Call it once
    /// per request. `by_client`: the detectors of clients behind trusted proxies.
    pub fn scan_subject<'a>(
        &'a self,
        headers: Fields<'_>,
        clients: &Clients,
        by_client: &'a ClientDetectors,
    ) -> ScanSubject<'a> {
        let client = self
            .is_proxy
            .get_or_init(|| clients.names_clients(self.peer))
            .then(|| clients.forwarded_key(self.peer, headers))
            .flatten();
        match client {
            None => ScanSubject::Connection(&self.scan_detector),
            Some(client) => by_client.subject(&client),
        }
    }

    /// Collects the records of the next answer.
    pub fn begin_collecting(&self) {
        self.collected.borrow_mut().clear();
        self.collects.set(true);
    }

    /// Takes a record of an answer, unless it is past the contract's bound.
    #[inline]
    pub fn collect(&self, record: &Record, outcome: CacheOutcome) {
        if self.collects.get() && outcome != CacheOutcome::Stale {
            self.collected.borrow_mut().push(record.clone());
        }
    }

    /// Returns the records of the answer.
    pub fn collected(&self) -> Vec<Record> {
        self.collects.set(false);
        self.collected.take()
    }
}

/// Times of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestTimes {
    /// Arrival of the complete head.
    pub arrived: Nanos,
    /// Arrival of the complete request, body included.
    pub complete: Nanos,
    /// Present time; later than the others where the request was delayed.
    pub now: Nanos,
}

impl RequestTimes {
    /// Returns the times of a request without a body, at its arrival.
    #[inline]
    pub fn of_arrival(now: Nanos) -> Self {
        Self { arrived: now, complete: now, now }
    }
}

/// A request for records, over whatever protocol, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    /// The connection over which it came.
    pub connection: &'a Rc<ConnectionContext>,
    /// What HTTP alone says: conditions, codings, priority, deadline, trace. A command has none.
    pub headers: Fields<'a>,
    /// Requirement beyond the contract.
    pub required: Required,
    /// Its times.
    pub times: RequestTimes,
    /// Its sender.
    pub caller: Caller,
    /// Grants of its sender on the requested collection.
    pub rights: Rights,
    /// Records of that collection that its sender may see.
    pub sight: TenantFilter<'a>,
    /// Columns of them that its sender may see; `None`: all.
    pub columns: Option<&'a Arc<Columns>>,
    /// `true`: an earlier evaluation has taken from its rate limits.
    pub is_paid: bool,
    /// `true`: purges of a record reach the answer to its URL.
    pub is_purgeable: bool,
    /// `true`: it may have a span, to which queries for it belong.
    pub is_traced: bool,
}

impl<'a> ReadRequest<'a> {
    /// Returns a request whose sender and collection are not known yet.
    pub fn new(
        connection: &'a Rc<ConnectionContext>,
        headers: Fields<'a>,
        times: RequestTimes,
    ) -> Self {
        Self {
            connection,
            headers,
            required: Ok(ReadRequirement::None),
            times,
            caller: Caller::default(),
            rights: Rights::ALL,
            sight: TenantFilter::All,
            columns: None,
            is_paid: false,
            is_purgeable: false,
            is_traced: false,
        }
    }

    /// Returns the request as a future can hold it. Allocates for the header fields.
    pub fn to_pending(self) -> PendingRequest {
        PendingRequest {
            connection: Rc::clone(self.connection),
            headers: self.headers.to_buf(),
            required: self.required,
            times: self.times,
            caller: self.caller,
            rights: self.rights,
            sight: self.sight.to_buf(),
            columns: self.columns.cloned(),
            is_paid: self.is_paid,
            is_purgeable: self.is_purgeable,
            is_traced: self.is_traced,
        }
    }
}

/// A request that waits for a delay, the database, the feed or its body.
#[derive(Debug)]
pub struct PendingRequest {
    /// See [`ReadRequest`].
    pub connection: Rc<ConnectionContext>,
    /// See [`ReadRequest`].
    pub headers: FieldsBuf,
    /// See [`ReadRequest`].
    pub required: Required,
    /// See [`ReadRequest`].
    pub times: RequestTimes,
    /// See [`ReadRequest`].
    pub caller: Caller,
    /// See [`ReadRequest`].
    pub rights: Rights,
    /// See [`ReadRequest`].
    pub sight: TenantFilterBuf,
    /// See [`ReadRequest`].
    pub columns: Option<Arc<Columns>>,
    /// See [`ReadRequest`].
    pub is_paid: bool,
    /// See [`ReadRequest`].
    pub is_purgeable: bool,
    /// See [`ReadRequest`].
    pub is_traced: bool,
}

impl PendingRequest {
    /// Returns its context.
    pub fn context(&self) -> ReadRequest<'_> {
        ReadRequest {
            connection: &self.connection,
            headers: self.headers.as_fields(),
            required: self.required,
            times: self.times,
            caller: self.caller,
            rights: self.rights,
            sight: self.sight.as_sight(),
            columns: self.columns.as_ref(),
            is_paid: self.is_paid,
            is_purgeable: self.is_purgeable,
            is_traced: self.is_traced,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::IpAddr;

    use super::*;

    /// Returns the context of a new connection.
    pub(crate) fn connection() -> Rc<ConnectionContext> {
        ConnectionContext::new(IpAddr::from([192, 0, 2, 1]), Rc::new(Activity::new(Nanos(1))))
    }
}
