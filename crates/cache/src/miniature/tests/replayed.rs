//! What is replayed beside lookups: each test counts the misses of single keys.

use super::*;

/// A simulation of all keys, in which every copy has room.
fn all(change: impl FnOnce(&mut Settings)) -> Fed {
    let mut settings = settings(1.0);
    change(&mut settings);
    Fed::new(settings)
}

impl Fed {
    /// Looks the key up, without a read after a miss. Returns how many copies missed.
    fn misses(&mut self, key: u64) -> f64 {
        let sum = |fed: &Self| fed.simulation.misses.as_flattened().iter().sum::<f64>();
        let before = sum(self);
        self.event(key, Event::Lookup { is_scan: false, held: None });
        (sum(self) - before).round()
    }

    fn store(&mut self, key: u64, entry: Weighed) {
        self.event(key, Event::Stored { entry, is_warm_up: false });
    }

    fn of_collection(&mut self, collection: u16, event: Event) {
        let collection = CollectionId(collection);
        self.simulation.apply(&Sample { at: self.now, key_hash: 0, collection, event });
    }

    fn later(&mut self, by: Duration) {
        self.now = self.now.after(by);
    }
}

const ALL: f64 = COPIES as f64;

#[test]
fn a_changed_record_misses_once_in_every_copy() {
    for is_change in [true, false] {
        let mut fed = all(|_| {});
        assert_eq!(fed.misses(1), ALL);
        fed.store(1, FOUND);
        assert_eq!(fed.misses(1), 0.0);
        fed.event(1, Event::Removed { is_change });
        assert_eq!(fed.misses(1), ALL);
        fed.store(1, FOUND);
        assert_eq!(fed.misses(1), 0.0);
    }
}

#[test]
fn a_hot_record_is_read_again_when_it_changes_where_it_was() {
    for (prefetches, is_change, missed) in
        [(true, true, 0.0), (true, false, ALL), (false, true, ALL)]
    {
        let mut fed = all(|settings| settings.prefetch_on_change = prefetches);
        fed.misses(1);
        fed.store(1, FOUND);
        fed.event(1, Event::Removed { is_change });
        fed.store(1, FOUND);
        assert_eq!(fed.misses(1), missed);
        // A copy that did not have it does not get it without a lookup.
        fed.event(2, Event::Removed { is_change });
        fed.store(2, FOUND);
        assert_eq!(fed.misses(2), ALL);
    }
}

#[test]
fn records_live_as_long_as_their_collection_says() {
    let mut fed = all(|_| {});
    fed.misses(1);
    fed.store(1, FOUND);
    let missing = Weighed { weight_bytes: 116, presence: Presence::Missing };
    fed.misses(2);
    fed.store(2, missing);
    fed.later(Duration::from_secs(59));
    assert_eq!((fed.misses(1), fed.misses(2)), (0.0, ALL), "no room for missing records");
    fed.later(DAY);
    assert_eq!(fed.misses(1), ALL);
    fed.store(1, FOUND);
    assert_eq!(fed.misses(1), 0.0, "a new life");
}

#[test]
fn a_changed_lifetime_holds_for_what_is_stored_from_then_on() {
    let mut fed = all(|_| {});
    fed.misses(1);
    fed.store(1, FOUND);
    let mut changed = settings(0.125);
    changed.capacity_bytes = 1;
    changed.collections[0].ttl = Duration::from_secs(10);
    fed.simulation.follow(changed);
    fed.misses(2);
    fed.store(2, FOUND);
    assert_eq!((fed.misses(1), fed.misses(2)), (0.0, 0.0), "capacity and rate stay");
    fed.later(Duration::from_secs(11));
    assert_eq!((fed.misses(1), fed.misses(2)), (0.0, ALL));
}

#[test]
fn missing_records_have_their_own_room_and_life() {
    let mut fed = all(|settings| settings.negative_share = 0.1);
    let missing = Weighed { weight_bytes: 116, presence: Presence::Missing };
    fed.misses(1);
    fed.store(1, missing);
    fed.later(Duration::from_secs(59));
    assert_eq!(fed.misses(1), 0.0);
    fed.later(Duration::from_secs(2));
    assert_eq!(fed.misses(1), ALL);
}

#[test]
fn an_expired_record_is_refreshed_while_it_may_be_served() {
    let mut fed = all(|settings| settings.stale_while_revalidate = Duration::from_secs(100));
    fed.misses(1);
    fed.store(1, FOUND);
    fed.later(DAY + Duration::from_secs(50));
    assert_eq!(fed.misses(1), 0.0);
    fed.later(DAY - Duration::from_secs(50));
    assert_eq!(fed.misses(1), 0.0, "refreshed");
    fed.later(DAY + Duration::from_secs(101));
    assert_eq!(fed.misses(1), ALL);
}

#[test]
fn lives_are_shortened_by_chance() {
    let mut fed = all(|settings| settings.ttl_jitter = 0.5);
    for key in 0..1_000 {
        fed.misses(key);
        fed.store(key, FOUND);
    }
    fed.later(DAY / 4 * 3);
    let missed = (0..1_000).filter(|key| fed.misses(*key) == ALL).count();
    assert!((400..600).contains(&missed), "{missed}");
}

#[test]
fn a_flush_concerns_its_collection_and_a_gap_all() {
    let mut fed = all(|_| {});
    fed.misses(1);
    fed.store(1, FOUND);
    fed.of_collection(1, Event::Flushed);
    assert_eq!(fed.misses(1), 0.0);
    fed.of_collection(0, Event::Flushed);
    assert_eq!(fed.misses(1), ALL);
    fed.store(1, FOUND);
    assert_eq!(fed.misses(1), 0.0);
    fed.of_collection(1, Event::Gap);
    assert_eq!(fed.misses(1), ALL);
}

#[test]
fn weights_follow_the_record() {
    // The smallest copy has room for 10,000 of these.
    let mut fed = all(|_| {});
    for key in 0..9_000 {
        fed.misses(key);
        fed.store(key, FOUND);
    }
    let smallest = |fed: &Fed| fed.simulation.misses[0].iter().sum::<f64>();
    let before = smallest(&fed);
    // As if each had got a compressed form that weighs as much again.
    let heavier = Weighed { weight_bytes: 2 * WEIGHT, ..FOUND };
    for _ in 0..2 {
        for key in 0..9_000 {
            fed.event(key, Event::Lookup { is_scan: false, held: Some(heavier) });
        }
    }
    let missed = smallest(&fed) - before;
    assert!(missed > 3_000.0, "{missed}");
}

#[test]
fn the_warm_start_fills_every_copy() {
    let mut fed = all(|_| {});
    fed.event(1, Event::Stored { entry: FOUND, is_warm_up: true });
    assert_eq!(fed.misses(1), 0.0);
}

#[test]
fn a_scanning_client_evicts_nothing_from_a_full_copy() {
    let mut fed = all(|settings| settings.capacity_bytes /= 10);
    for key in 0..40_000 {
        fed.misses(key);
        fed.store(key, FOUND);
    }
    // In all copies but the largest, perhaps.
    let kept: Vec<u64> = (0..40_000).filter(|key| fed.misses(*key) == 0.0).collect();
    for key in 1_000_000..1_004_000 {
        fed.event(key, Event::Lookup { is_scan: true, held: Some(FOUND) });
    }
    let lost = kept.iter().filter(|key| fed.misses(**key) != 0.0).count();
    assert_eq!(lost, 0);
    assert!(kept.len() > 500, "{}", kept.len());
}

#[test]
fn unknown_collections_and_unsampled_keys_are_left_out() {
    let mut fed = Fed::new(settings(0.125));
    let held = Some(FOUND);
    let unsampled = (0..).find(|key| !fed.simulation.settings().rate.takes(hash(*key)));
    let event = Event::Lookup { is_scan: false, held };
    let key_hash = hash(unsampled.expect("seven of eight"));
    fed.simulation.apply(&Sample { at: fed.now, key_hash, collection: FIRST, event });
    let sampled = (0..).find(|key| fed.simulation.settings().rate.takes(hash(*key)));
    let key_hash = hash(sampled.expect("one of eight"));
    let collection = CollectionId(7);
    fed.simulation.apply(&Sample { at: fed.now, key_hash, collection, event });
    fed.of_collection(7, Event::Flushed);
    assert_eq!(fed.simulation.sampled_lookups(), 0);
}

#[test]
fn reads_that_never_arrive_are_forgotten() {
    let mut fed = all(|_| {});
    for key in 0..20_000 {
        fed.misses(key);
    }
    assert!(fed.simulation.dropped_total > 10_000, "more than are awaited");
    let lost = fed.simulation.dropped_total;
    fed.later(Duration::from_secs(61));
    fed.misses(100_000);
    fed.store(100_000, FOUND);
    assert_eq!(fed.simulation.dropped_total, lost);
    assert_eq!(fed.misses(100_000), 0.0);
}
