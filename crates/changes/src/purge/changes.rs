//! From the log of followed changes to the queues of the targets.

use hotrow_push::{Cursor, Event, Opening, Progress, Purge};
use hotrow_supervisor as supervisor;
use hotrow_types::key::CollectionId;
use hotrow_types::version::Position;

use super::{Cause, Purger};
use crate::follow::Follows;

/// Place in the changes of one collection.
struct Reader {
    collection: CollectionId,
    cursor: Cursor,
}

/// What a change asks for.
enum RequestedPurge {
    Record(Purge, Position),
    Collection(Cause, Option<Position>),
}

/// Reads changes and queues their purges, without end. At the beginning everything is purged,
/// because what changed before is unknown.
pub(crate) async fn read_all(purger: &Purger, follows: &Follows) {
    let mut version = follows.subscribe();
    let mut readers = Vec::with_capacity(purger.purged.len());
    for &collection in &purger.purged {
        let Some((cursor, opening)) = follows.open(collection, None) else { continue };
        let begun = match opening {
            Opening::Begin(id) => Some(id.position),
            Opening::Resumed | Opening::Reset(_) => None,
        };
        purger.add_all(collection, Cause::Start, begun);
        readers.push(Reader { collection, cursor });
    }
    loop {
        supervisor::turn();
        for reader in &mut readers {
            reader.read(purger, follows).await;
        }
        if version.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

impl Reader {
    /// Reads what waits.
    async fn read(&mut self, purger: &Purger, follows: &Follows) {
        let collection = self.collection;
        loop {
            let mut asked = Vec::new();
            let mut take = |event: Event<'_>| {
                asked.push(match event {
                    Event::Change { key, position, .. } => {
                        RequestedPurge::Record(Purge::Record(key.clone()), position)
                    }
                    Event::Flush { position, .. } => {
                        RequestedPurge::Collection(Cause::Flush, Some(position))
                    }
                    Event::Reset { at: None } => RequestedPurge::Collection(Cause::Loss, None),
                    Event::Reset { at: Some(id) } => {
                        RequestedPurge::Collection(Cause::Resumed, Some(id.position))
                    }
                });
            };
            let progress = follows.read(collection, &mut self.cursor, &mut take);
            if progress == Progress::Overrun {
                // Before the purge, which then covers everything up to there.
                if let Some((cursor, _)) = follows.open(collection, None) {
                    self.cursor = cursor;
                }
                asked.push(RequestedPurge::Collection(Cause::Overrun, None));
            }
            for asked in asked {
                match asked {
                    RequestedPurge::Record(purge, position) => purger.add(&purge, Some(position)),
                    RequestedPurge::Collection(cause, position) => {
                        purger.add_all(collection, cause, position);
                    }
                }
            }
            if progress == Progress::Current {
                return;
            }
            // The senders are tasks of the same thread.
            tokio::task::yield_now().await;
        }
    }
}
