//! Reads of a snapshot batch: each collection as it was at one cluster time (`atClusterTime`). It
//! is the end of the log when the reads begin, and the server answers when a majority has it.

use hotrow_types::version::{Position, Version};
use tokio::time::{Instant, timeout_at};

use super::MongoSource;
use super::error::{Fault, fault};
use super::server::log_end;
use hotrow_source::{KeysOfCollection, ReadSet, RowBudget, SourceError};

/// Wire version of MongoDB 5.0, the first that reads at a cluster time outside of transactions.
pub(crate) const WIRE_VERSION_MIN: i32 = 13;
pub(crate) const TOO_OLD: &str = "snapshots of MongoDB need version 5.0 or newer (atClusterTime)";

impl MongoSource {
    pub(super) async fn try_snapshot(
        &self,
        parts: &[KeysOfCollection],
        budget: &RowBudget,
        deadline: Instant,
    ) -> Result<ReadSet, Fault> {
        let deployment = self.deployment()?;
        let end = log_end(&self.database, &deployment.identity.kind);
        let end = timeout_at(deadline, end).await.map_err(|_| self.timed_out())?;
        let end = end.map_err(|e| fault(&e, self.read_timeout))?;
        let end =
            end.ok_or_else(|| SourceError::unavailable("no primary reports the log's end"))?;
        // All that the feed has delivered, as in every read.
        let at = end.max(self.shared.floor());
        budget.restart();
        let mut rows = Vec::new();
        for (collection, keys) in parts {
            let served = self.served(*collection)?;
            self.hooks.before_read(*collection, keys);
            let query = self.query(&deployment, served, keys, budget, deadline, Some(at));
            let answer = timeout_at(deadline, query).await.map_err(|_| self.timed_out())?;
            self.hooks.after_read(*collection, keys);
            rows.extend(answer.map_err(|e| self.failure(e))?.rows);
        }
        let position = Position { incarnation: deployment.identity.incarnation(), at };
        let version = Version::Span { from: position, to: position };
        Ok(ReadSet { version, position: Some(position), rows })
    }
}
