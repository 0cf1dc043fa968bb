//! Gaps in the changes of single collections while a session runs, from their opening to their end.
//!
//! After a table is added to the publication, its later changes are delivered, but not those that
//! transactions wrote before, and of transactions that ran across that moment only a part. A gap
//! therefore ends in three steps, the *bridge*: first, every transaction that ran when the gap was
//! found becomes visible to readers, so that a read sees what was not delivered; second, the log's
//! end is requested; third, the stream passes that end, so that everything delivered of these
//! transactions has been handed to the sink. Reads after that are cached again.

use hotrow_types::key::CollectionId;
use tokio_postgres::Client;

use super::config::Tuning;
use super::link;
use super::probe::LogLayout;
use super::wire::replication::Lsn;
use hotrow_source::feed_loop::{BackgroundTask, Ended};

/// The open gaps of a session.
pub(crate) struct Gaps<'a> {
    client: &'a Client,
    tuning: &'a Tuning,
    layout: LogLayout,
    /// Gaps found since the current bridge began: its snapshot may be too old for them.
    found: Vec<CollectionId>,
    /// Gaps that the current bridge will close.
    bridging: Vec<CollectionId>,
    bridge: BackgroundTask<'a, Result<Lsn, Ended>>,
    /// Gaps whose transactions are visible, with the end of the log after that.
    bridged: Vec<(Lsn, Vec<CollectionId>)>,
}

impl<'a> Gaps<'a> {
    pub(crate) fn new(client: &'a Client, tuning: &'a Tuning, layout: LogLayout) -> Self {
        let found = Vec::new();
        let bridging = Vec::new();
        let bridged = Vec::new();
        Self { client, tuning, layout, found, bridging, bridge: BackgroundTask::idle(), bridged }
    }

    /// Opens gaps that a catalogue check has found. A gap that is open already begins anew.
    pub(crate) fn open(&mut self, gaps: Vec<CollectionId>) {
        self.bridging.retain(|collection| !gaps.contains(collection));
        for (_, collections) in &mut self.bridged {
            collections.retain(|collection| !gaps.contains(collection));
        }
        self.found.extend(gaps);
        self.begin();
    }

    fn begin(&mut self) {
        if self.bridge.is_idle() && !self.found.is_empty() {
            self.bridging = std::mem::take(&mut self.found);
            self.bridge.start(link::bridge(self.client, self.tuning));
        }
    }

    /// Waits until the current bridge is complete; pending for ever without one. Cancel-safe.
    ///
    /// # Errors
    /// The server's failure.
    pub(crate) async fn bridged(&mut self) -> Result<(), Ended> {
        let end = self.bridge.done().await?;
        self.bridged.push((self.layout.reachable(end), std::mem::take(&mut self.bridging)));
        self.begin();
        Ok(())
    }

    /// Returns whether changes of a collection are missed now.
    pub(crate) fn is_open(&self) -> bool {
        let is_left = |(_, collections): &(Lsn, Vec<CollectionId>)| !collections.is_empty();
        !self.found.is_empty() || !self.bridging.is_empty() || self.bridged.iter().any(is_left)
    }

    /// Returns the collections whose gaps end because the stream has passed the ends of their
    /// bridges.
    pub(crate) fn passed(&mut self, delivered: Lsn) -> Vec<CollectionId> {
        let is_passed = |(end, _): &mut (Lsn, Vec<CollectionId>)| *end <= delivered;
        self.bridged.extract_if(.., is_passed).flat_map(|(_, collections)| collections).collect()
    }
}
