use hotrow_admit::shed;
use hotrow_cache::Wish;
use hotrow_cache::key::KeyPart;

use super::*;
use crate::fuzzing::new_shared;
use crate::shared::Place;

const START: Nanos = Nanos(1_000_000_000);

/// With the default targets.
fn watch(shared: &Arc<Shared>) -> Watch {
    let pressure = shed::Config {
        queue_delay_target: Duration::from_millis(20),
        queue_delay_interval: Duration::from_millis(500),
        memory_share: 0.85,
        files_share: 0.85,
    };
    let config = Shed { pressure, memory_limit_bytes: Some(1 << 50), priority_header: false };
    Watch::new(shared.clone(), Vec::new(), &config)
}

/// Asks for so many cold keys, who wait as long as what is returned is held.
fn ask(shared: &Shared, keys: i64) -> impl Sized {
    let key = |id| shared.collections[0].schema.key(&[KeyPart::Integer(id)]).expect("a key");
    (0..keys).map(|id| shared.cache.lookup(&key(id), Wish::Any, START)).collect::<Vec<_>>()
}

#[test]
fn nobody_waits_for_the_database_when_no_key_does() {
    let shared = new_shared(None);
    let mut watch = watch(&shared);
    // As a request does that a leaky bucket holds back.
    let _place = Place::take(&shared, false).expect("a place");
    assert_eq!(watch.reading(START).database_wait, Some(Duration::ZERO));
    let _waiters = ask(&shared, 1);
    assert_eq!(watch.reading(START).database_wait, None, "nobody knows how long it will be");
}

#[test]
fn a_queue_that_turned_newest_first_makes_busy_while_keys_wait_in_it() {
    let shared = new_shared(None);
    let mut watch = watch(&shared);
    let _waiters = ask(&shared, 20);
    assert!(!watch.reading(START).standing, "nothing was left behind yet");
    let mut turn = shared.cache.turn(CollectionId(0)).expect("keys wait");
    assert_eq!(turn.next_query(START).map(|keys| keys.len()), Some(10), "and ten are left");
    // What is read now came last: it waited for nothing.
    shared.shedding.waited(Duration::ZERO);
    watch.look(START);
    assert_eq!(shared.shedding.load().map(|load| load.delay), Some(Level::Busy));
    shared.cache.give_up(CollectionId(0), &crate::trouble::Trouble::Unreadable);
    assert!(!watch.reading(START).standing, "nobody waits in it any more");
}
