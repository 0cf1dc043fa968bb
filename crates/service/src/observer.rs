//! Notes for operators of each request: lines of the access log, `Server-Timing`, and spans.
//!
//! A request that is answered at once is looked at where it lies; one that waits takes along a copy
//! of what its note needs. Without a note to make, a request pays one branch on the handler's
//! [`Observer`].

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hotrow_access::caller::Peer;
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::request::Request;
use hotrow_config::access::Names;
use hotrow_gate::admission::rate::seed;
use hotrow_http1::head::Head;
use hotrow_measure::clock::Nanos;
use hotrow_otel::context::TraceParent;
use hotrow_telemetry::access_log::WorkerAccessLog;
use hotrow_telemetry::request::{Notes, Protocol};
use hotrow_telemetry::traces::{TraceSlot, Tracer};

use crate::shared::Shared;

/// Notes of one worker.
#[derive(Debug)]
pub(crate) struct Observer {
    access_log: Option<WorkerAccessLog>,
    pub(crate) has_server_timing: bool,
    pub(crate) tracer: Option<Arc<Tracer>>,
}

impl Observer {
    /// Creates the notes that are configured; `None`: none are.
    pub(crate) fn new(shared: &Shared, worker: usize) -> Option<Self> {
        let of_worker = |log| {
            let [seed, _] = seed();
            WorkerAccessLog::new(log, worker, seed)
        };
        let access_log = shared.access_log.clone().map(of_worker);
        let has_server_timing = shared.has_server_timing;
        let tracer = shared.fetcher.tracer.clone();
        (access_log.is_some() || has_server_timing || tracer.is_some()).then_some(Self {
            access_log,
            has_server_timing,
            tracer,
        })
    }
}

impl Observer {
    /// Returns whether there is an access log.
    pub(crate) fn has_access_log(&self) -> bool {
        self.access_log.is_some()
    }

    /// Returns the access log if it has a line for such a request.
    pub(crate) fn access_log_of(
        &self,
        status: u16,
        took: Duration,
        now: Nanos,
    ) -> Option<&WorkerAccessLog> {
        self.access_log.as_ref().filter(|log| log.is_due(status, took, now))
    }
}

/// A request as it arrived.
#[derive(Clone, Copy)]
pub(crate) struct Arrived<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) connection: &'a Rc<ConnectionContext>,
    pub(crate) protocol: Protocol,
    pub(crate) since: Nanos,
}

impl<'a> Arrived<'a> {
    pub(crate) fn of(request: &Request<'a>) -> Self {
        let Request { head, connection, now, protocol, .. } = request;
        Self { head: *head, connection, protocol: *protocol, since: *now }
    }
}

/// What the note of a request that waits needs of it.
#[derive(Debug)]
pub(crate) struct PendingNote {
    /// Method and target.
    pub(crate) line: Box<[u8]>,
    pub(crate) method_bytes: usize,
    pub(crate) client: Peer,
    pub(crate) protocol: Protocol,
    pub(crate) since: Nanos,
    pub(crate) notes: Notes,
    pub(crate) names: Option<Arc<Names>>,
    pub(crate) parent: Option<TraceParent>,
    /// Its trace, once it waits for keys and is traced.
    pub(crate) trace: Option<TraceSlot>,
}
