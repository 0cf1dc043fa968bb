//! Sink for `source.feed = "none"`: forwards only the events that invalidate all entries of a table
//! or database.

use hotrow_measure::clock::Nanos;
use hotrow_source::{Change, FlushCause, LossCause, Sink};
use hotrow_types::key::CollectionId;
use hotrow_types::version::{ChangeId, Position, Version};

use super::CacheSink;

/// Forwards that a table's shape changed, that another database answers, and that the detection of
/// both failed. Other entries live until their TTL, also while the database is unavailable.
pub struct TtlOnlySink {
    cache: CacheSink,
}

impl TtlOnlySink {
    /// Wraps the cache's own sink.
    #[must_use]
    pub fn new(cache: CacheSink) -> Self {
        Self { cache }
    }
}

impl Sink for TtlOnlySink {
    fn changes(&self, _: &[Change]) {}

    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<ChangeId>) {
        match cause {
            FlushCause::Schema => self.cache.flush(collection, cause, mark),
            FlushCause::Bulk | FlushCause::Unlisted | FlushCause::Gap => {}
        }
    }

    fn open_gap(&self, _: CollectionId, _: &str) {}

    fn close_gap(&self, _: CollectionId) {}

    fn loss(&self, cause: LossCause, detail: &str) {
        match cause {
            LossCause::OtherDatabase | LossCause::OtherLog | LossCause::FeedFailed => {
                self.cache.loss(cause, detail)
            }
            LossCause::Unavailable | LossCause::LogPruned | LossCause::NotWatched => {
                tracing::warn!(
                    ?cause,
                    detail,
                    "the database cannot be watched now; entries stay until their TTL"
                );
            }
        }
    }

    fn started(&self, _: Option<Position>) {}

    fn advance(&self, _: Nanos, _: Option<Position>, _: Option<&Version>) {}
}
