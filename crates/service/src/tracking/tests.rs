//! Clients are informed of a change last: one that reads in that instant finds the cache ready.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use hotrow_cache::{Cache, Lookup, ReadMode};
use hotrow_changes::follow::Follows;
use hotrow_changes::tracking::Tracking;
use hotrow_measure::clock::Nanos;
use hotrow_source::{Change, ReadFailure, Sink};
use hotrow_types::key::{CollectionId, Key, KeyPart};
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Position, Snapshot, Version};
use parking_lot::Mutex;

use crate::fuzzing::new_service;
use hotrow_config::transport::Redis;

/// A client that reads when it is informed, at once and in the thread of the feed.
struct Reader {
    cache: Arc<Cache<ReadFailure>>,
    key: Key,
    lookups: Mutex<Vec<&'static str>>,
}

impl Wake for Reader {
    fn wake(self: Arc<Self>) {
        self.lookups.lock().push(
            match self.cache.lookup(&self.key, ReadMode::Normal, Nanos::now()) {
                Lookup::Miss(_) => "reads",
                Lookup::Coalesced(_) => "joins a read from before",
                _ => "gets something else",
            },
        );
    }
}

#[test]
fn the_cache_knows_of_a_visible_change_before_any_client_does() {
    let (mut config, mut shared) = new_service(None);
    let address = config.data;
    config.transport.redis = Some(Redis { address, allow_stale: false, tracking_bytes: 1 << 20 });
    config.follow.collections.push(CollectionId(0));
    let follows = Follows::new(&config.follow, &[], &shared.collections, 1).unwrap();
    let tracking = Tracking::new(&config, &shared.cache).unwrap();
    tracking.client_began();
    let cache = Arc::clone(&shared.cache);
    shared.follows = Some(Arc::clone(&follows));
    shared.tracking = Some(Arc::clone(&tracking));
    let sink = shared.sink(SourceId::FIRST);
    let at = |at| Some(Position { incarnation: 1, at });
    sink.started(at(10));
    sink.advance(Nanos::now(), at(10), None);
    let schema = &shared.collections.get(CollectionId(0)).schema;
    let keys = [1, 2].map(|id| schema.key(&[KeyPart::Integer(id)]).unwrap());
    let mark = ChangeId::Transaction { xid: 7, commit: 20 };
    sink.changes(&keys.clone().map(|key| Change { key, mark }));
    // Sent when the change was delivered and not yet visible.
    let _waiters = cache.lookup_batch(&keys, ReadMode::Normal, Nanos::now());
    let mut loader = cache.batch_loader(CollectionId(0)).unwrap();
    assert_eq!(loader.next_batch(Nanos::now()).map(|keys| keys.len()), Some(2));
    let mut versions = [follows.subscribe(), tracking.subscribe()];
    let readers = keys
        .map(|key| Arc::new(Reader { cache: Arc::clone(&cache), key, lookups: Mutex::default() }));
    let [follower, copies] = &mut versions;
    let mut news = (pin!(follower.changed()), pin!(copies.changed()));
    let [first, second] = readers.clone().map(Waker::from);
    assert!(news.0.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
    assert!(news.1.as_mut().poll(&mut Context::from_waker(&second)).is_pending());
    let snapshot = Arc::new(Snapshot { xmin: 8, xmax: 8, running: Vec::new() });
    let visible = Version::Snapshot { incarnation: 1, snapshot };
    sink.advance(Nanos::now(), at(21), Some(&visible));
    assert_eq!(readers.map(|reader| reader.lookups.lock().clone()), [["reads"], ["reads"]]);
}
