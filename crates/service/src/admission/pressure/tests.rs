use hotrow_admission::shed;
use hotrow_cache::ReadMode;
use hotrow_types::key::{CollectionId, KeyPart};

use super::*;
use crate::fuzzing::new_shared;
use crate::shared::Shared;

const START: Nanos = Nanos(1_000_000_000);

/// Returns a watch with the default targets.
fn watch(shared: &Shared) -> Watch {
    let pressure = shed::Config {
        queue_delay_target: Duration::from_millis(20),
        queue_delay_interval: Duration::from_millis(500),
        memory_share: 0.85,
        open_files_threshold: 0.85,
    };
    let config = Shed { pressure, memory_limit_bytes: Some(1 << 50), priority_header: false };
    let watched = Watched {
        load_shedder: Arc::clone(&shared.fetcher.sources[0].load_shedder),
        source: (SourceId::FIRST, "default".to_owned()),
        cache: Arc::clone(&shared.cache),
        collections: Arc::clone(&shared.collections),
        workers: Vec::new(),
        connections_max: shared.limits.connections,
    };
    Watch::new(watched, &config)
}

/// Requests `keys` cold keys, which wait as long as the result is held.
fn ask(shared: &Shared, keys: i64) -> impl Sized {
    let key = |id| {
        shared.collections.get(CollectionId(0)).schema.key(&[KeyPart::Integer(id)]).expect("a key")
    };
    (0..keys).map(|id| shared.cache.lookup(&key(id), ReadMode::Normal, START)).collect::<Vec<_>>()
}

#[test]
fn the_database_wait_is_zero_without_waiting_keys() {
    let shared = new_shared(None);
    let mut watch = watch(&shared);
    // As a request delayed by a leaky bucket does.
    let _place = shared.admission.inflight.enter(false).expect("a place");
    assert_eq!(watch.reading(START).database_wait, Some(Duration::ZERO));
    let _waiters = ask(&shared, 1);
    assert_eq!(watch.reading(START).database_wait, None, "unknown");
}

#[test]
fn a_lifo_queue_raises_the_level_while_keys_wait() {
    let shared = new_shared(None);
    let mut watch = watch(&shared);
    let _waiters = ask(&shared, 20);
    assert!(!watch.reading(START).standing, "nothing was left behind yet");
    let mut turn = shared.cache.batch_loader(CollectionId(0)).expect("keys wait");
    assert_eq!(turn.next_batch(START).map(|keys| keys.len()), Some(10), "and ten are left");
    // The read that begins now was queued last and did not wait.
    shared.fetcher.sources[0].load_shedder.waited(Duration::ZERO);
    watch.look(START);
    assert_eq!(
        shared.fetcher.sources[0].load_shedder.load().map(|load| load.delay),
        Some(Level::Elevated)
    );
    shared.cache.give_up(CollectionId(0), &hotrow_source::ReadFailure::Unreadable);
    assert!(!watch.reading(START).standing, "its keys no longer wait");
}
