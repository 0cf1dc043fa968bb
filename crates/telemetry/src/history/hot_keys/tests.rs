use hotrow_types::key::{Collation, KeySchema, KeyType};

use super::*;

fn hash(key: &Key) -> u64 {
    let mut bytes = key.as_bytes().iter();
    bytes.by_ref().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn schema(collection: u16) -> KeySchema {
    KeySchema::new(CollectionId(collection), vec![KeyType::Integer])
}

fn key(schema: &KeySchema, id: u64) -> Key {
    schema.parse_url(&id.to_string()).expect("a key")
}

fn shares(hot_keys: &HotKeys, schema: &KeySchema) -> Vec<(String, f64)> {
    let (sketches, _) = hot_keys.view();
    let (_, sketch) = &sketches[0];
    let share = |entry: &hotrow_measure::top_keys::TopKey| {
        (schema.id_of(&entry.key).expect("an id"), entry.count / sketch.total())
    };
    sketch.top(3).into_iter().map(share).collect()
}

#[test]
fn at_little_traffic_every_lookup_counts() {
    let ring = KeyRing::of_workers(1);
    let sampler = KeySampler::new(ring[0].clone(), 1);
    let mut hot_keys = HotKeys::new(ring);
    let schema = schema(3);
    for id in [7, 7, 8, 7] {
        sampler.note(&[key(&schema, id)], hash);
    }
    sampler.note(&[], hash);
    sampler.note(&[key(&schema, 8), key(&schema, 7)], hash);
    hot_keys.collect(1.0);
    let (sketches, seconds) = hot_keys.view();
    assert_eq!((sketches[0].0, sketches[0].1.total(), seconds), (CollectionId(3), 6.0, 1.0));
    assert_eq!(shares(&hot_keys, &schema)[0], ("7".to_owned(), 4.0 / 6.0));
}

#[test]
fn at_much_traffic_the_samples_are_bounded_and_the_shares_right() {
    const LOOKUPS_PER_S: u64 = 100_000;
    let ring = KeyRing::of_workers(1);
    let sampler = KeySampler::new(ring[0].clone(), 0x5eed);
    let mut hot_keys = HotKeys::new(ring.clone());
    let schema = schema(0);
    let hot: Vec<Key> = (0..10_000).map(|id| key(&schema, id)).collect();
    for _second in 0..120 {
        let head = ring[0].head.load(Ordering::Relaxed);
        for lookup in 0..LOOKUPS_PER_S {
            // Key 0 on every fourth lookup: a pattern that a fixed step would follow or miss.
            let id = if lookup % 4 == 0 { 0 } else { 1 + (lookup * 7) % 9_999 };
            sampler.note(std::slice::from_ref(&hot[id as usize]), hash);
        }
        let samples = ring[0].head.load(Ordering::Relaxed) - head;
        assert!(samples <= RING_SLOTS_MAX as u64, "{samples}");
        hot_keys.collect(1.0);
    }
    // About 87 s of 128 samples a second have weight: at a share of 25 % the standard error is
    // below half a point.
    let (_, share) = &shares(&hot_keys, &schema)[0];
    assert!((0.22..0.28).contains(share), "{share}");
    // The weights represent all lookups.
    let (sketches, seconds) = hot_keys.view();
    let rate = sketches[0].1.total() / seconds;
    assert!((rate / LOOKUPS_PER_S as f64 - 1.0).abs() < 0.05, "{rate}");
    // Less traffic: the step follows.
    assert!(ring[0].step.load(Ordering::Relaxed) > 64);
    (0..40).for_each(|_| hot_keys.collect(1.0));
    assert_eq!(ring[0].step.load(Ordering::Relaxed), 1);
}

#[test]
fn old_requests_lose_their_weight() {
    let ring = KeyRing::of_workers(1);
    let sampler = KeySampler::new(ring[0].clone(), 1);
    let mut hot_keys = HotKeys::new(ring);
    let schema = schema(0);
    (0..100).for_each(|_| sampler.note(&[key(&schema, 1)], hash));
    hot_keys.collect(1.0);
    (0..30).for_each(|_| sampler.note(&[key(&schema, 2)], hash));
    // Two half-lives, as after a suspend too.
    hot_keys.collect(2.0 * HALF_LIFE_S);
    let top = shares(&hot_keys, &schema);
    assert_eq!((top[0].0.as_str(), top[1].0.as_str()), ("2", "1"));
    assert!((top[1].1 - 25.0 / 55.0).abs() < 1e-9, "{top:?}");
}

#[test]
fn long_keys_are_counted_and_those_without_room_add_to_the_weight_of_the_others() {
    let ring = KeyRing::of_workers(1);
    let sampler = KeySampler::new(ring[0].clone(), 1);
    let mut hot_keys = HotKeys::new(ring.clone());
    let text = KeySchema::new(CollectionId(0), vec![KeyType::Text(Collation::Binary)]);
    let long = text.parse_url(&"x".repeat(KEY_BYTES_MAX)).expect("a key");
    sampler.note(&[long], hash);
    assert_eq!(hot_keys.too_long_total(), 1);
    let short = text.parse_url("x").expect("a key");
    let lookups = 10 * RING_SLOTS_MAX;
    (0..lookups).for_each(|_| sampler.note(std::slice::from_ref(&short), hash));
    hot_keys.collect(1.0);
    let (sketches, _) = hot_keys.view();
    assert!((sketches[0].1.total() / lookups as f64 - 1.0).abs() < 1e-9);
    // At the same traffic the ring will be half full.
    assert_eq!(ring[0].step.load(Ordering::Relaxed), 20);
}

#[test]
fn a_collection_without_requests_yields_its_sketch() {
    let mut sketches = Vec::new();
    for id in 0..SKETCHES_MAX as u16 {
        let sketch = sketch_of(&mut sketches, CollectionId(id)).expect("a place");
        sketch.add(1, b"key", 1.0);
    }
    let more = CollectionId(SKETCHES_MAX as u16);
    assert!(sketch_of(&mut sketches, more).is_none(), "all are in use");
    sketches[4].1.decay(0.1);
    let sketch = sketch_of(&mut sketches, more).expect("the place of an idle one");
    assert_eq!(sketch.total(), 0.0);
    assert!(!sketches.iter().any(|(id, _)| *id == CollectionId(4)));
    assert_eq!(sketches.len(), SKETCHES_MAX);
}

#[test]
fn the_rings_of_many_workers_stay_small() {
    for workers in [0, 1, 16, 64, 256] {
        let rings = KeyRing::of_workers(workers);
        assert_eq!(rings.len(), workers);
        let slots: usize = rings.iter().map(|ring| ring.slots.len()).sum();
        assert!(slots <= RING_SLOTS_TOTAL_MAX.max(16 * workers), "{slots}");
    }
}
