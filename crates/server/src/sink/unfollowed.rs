//! `source.feed = "none"`: of what a source notices, only what makes entries worthless gets through.

use hotrow_cache::key::CollectionId;
use hotrow_cache::version::{Mark, Position, Version};
use hotrow_measure::clock::Nanos;
use hotrow_source::{Change, FlushCause, LossCause, Sink};

use super::CacheSink;

/// Lets through that a table has another shape, and that another database answers. Entries live until their TTL otherwise,
/// also while the database is away.
pub struct Unfollowed {
    cache: CacheSink,
}

impl Unfollowed {
    /// In front of the cache's own sink.
    #[must_use]
    pub fn new(cache: CacheSink) -> Self {
        Self { cache }
    }
}

impl Sink for Unfollowed {
    fn changes(&self, _: &[Change]) {}

    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<Mark>) {
        match cause {
            FlushCause::Schema => self.cache.flush(collection, cause, mark),
            FlushCause::Bulk | FlushCause::Unlisted => {}
        }
    }

    fn loss(&self, cause: LossCause, detail: &str) {
        match cause {
            LossCause::OtherDatabase | LossCause::OtherLog => self.cache.loss(cause, detail),
            LossCause::Unavailable | LossCause::LogPruned | LossCause::NotWatched => {
                tracing::warn!(
                    ?cause,
                    detail,
                    "the database cannot be watched at present; entries live on until their TTL"
                );
            }
        }
    }

    fn started(&self, _: Option<Position>) {}

    fn advance(&self, _: Nanos, _: Option<Position>, _: Option<&Version>) {}
}
