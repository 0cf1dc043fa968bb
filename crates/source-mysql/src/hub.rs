//! What a service that follows a change hub needs of the engine: the database that its sessions
//! lead to, and the hub's changes for its readers.
//!
//! A read is plain only if no commit that changed its keys may be invisible ([`Recent`]). Without a
//! feed of its own, the service knows the commits by what the hub delivers.
//!
//! [`Recent`]: super::recent::Recent

use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_source::looks::Looks;
use hotrow_source::origin::Origin;
use hotrow_source::{Change, FlushCause, LossCause, Sink};
use hotrow_types::key::CollectionId;
use hotrow_types::version::{ChangeId, Position, Version};

use super::server::Identity;
use super::shared::{Plan, Shared};

/// Returns the run of the database that a session leads to. The name is the same in every process;
/// `identity` has the incarnation of this process if the log went back, `found` that of the server.
pub(crate) fn origin(found: &Identity, identity: &Identity) -> Origin {
    Origin {
        name: format!("{found}, run {:x}", found.incarnation),
        incarnation: identity.incarnation,
    }
}

/// Receiver that informs the readers before the sink.
pub(crate) struct HubSink {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sink: Arc<dyn Sink>,
}

impl HubSink {
    fn plan(&self) -> Option<Arc<Plan>> {
        self.shared.published.plan().ok()
    }
}

impl Sink for HubSink {
    fn changes(&self, changes: &[Change]) {
        if let Some(plan) = self.plan() {
            for change in changes {
                if let ChangeId::Commit(end) = change.mark {
                    plan.recent.record_change(&change.key, end.at);
                }
            }
        }
        self.sink.changes(changes);
    }

    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<ChangeId>) {
        if let Some((plan, ChangeId::Commit(end))) = self.plan().zip(mark) {
            plan.recent.record_flush(end.at);
        }
        self.sink.flush(collection, cause, mark);
    }

    fn open_gap(&self, collection: CollectionId, detail: &str) {
        self.sink.open_gap(collection, detail);
    }

    fn close_gap(&self, collection: CollectionId) {
        self.sink.close_gap(collection);
    }

    fn loss(&self, cause: LossCause, detail: &str) {
        self.sink.loss(cause, detail);
        if cause == LossCause::OtherLog {
            // Its points recur with another meaning: the next session has another incarnation.
            self.shared.went_back.notify_one();
        }
    }

    fn started(&self, position: Option<Position>) {
        // Before it: reads that begin after it are kept.
        self.shared.renew_recent();
        self.sink.started(position);
    }

    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>) {
        if let Some((plan, Version::Log(end))) = self.plan().zip(visible) {
            plan.recent.mark_visible(end.at);
        }
        self.sink.advance(probe_sent_at, position, visible);
    }

    fn wants_visibility(&self) -> bool {
        self.sink.wants_visibility()
    }

    fn looks(&self) -> Option<&Looks> {
        self.sink.looks()
    }
}
