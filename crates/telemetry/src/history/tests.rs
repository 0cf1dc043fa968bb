use hotrow_types::key::{Collation, KeySchema, KeyType};

use super::hot_keys::KeySampler;
use super::recorder::{COLLECTIONS_MAX, CollectionReading, SAMPLES_MAX};
use super::*;

/// Most bytes that all of this module takes, whatever is configured and requested.
const MEMORY_BYTES_MAX: usize = 3 << 20;
/// Most bytes of an answer of `/history`.
const ANSWER_BYTES_MAX: usize = 3 << 20;

fn frame() -> Frame {
    Frame { wall_lead_ns: 0, started_unix_ms: 1, now_unix_ms: 2, period_ms: 1_000 }
}

fn parsed(history: &History, since: u64) -> serde_json::Value {
    serde_json::from_str(&history.json(since, frame())).expect("JSON")
}

/// Returns a history that has taken all that it may keep: of more collections than it names, with
/// the longest names and keys.
pub(crate) fn full(workers: usize) -> History {
    let rings = KeyRing::of_workers(workers);
    let samplers: Vec<_> = rings.iter().map(|ring| KeySampler::new(ring.clone(), 9)).collect();
    let history = History::new(Some(rings), Nanos(0));
    let schemas: Vec<KeySchema> = (0..300)
        .map(|id| KeySchema::new(CollectionId(id), vec![KeyType::Text(Collation::Binary)]))
        .collect();
    for second in 1..=2 * SAMPLES_MAX as u64 {
        let mut reading = Reading::empty();
        reading.values = [f64::from(u32::MAX) * second as f64; recorder::SERIES];
        for latency in 0..40 {
            reading.hits.record_n(600 << latency, second * 1_000_000);
        }
        let requested = |id: u64| CollectionReading {
            name: format!("collection {id} {}", "x".repeat(40)),
            memory: second * id * 98_765,
            database: second * id * 12_345,
        };
        reading.collections = (0..300).map(requested).collect();
        if second % 40 == 0 {
            for (worker, sampler) in samplers.iter().enumerate() {
                for key in 0..64 {
                    let schema = &schemas[(worker * 64 + key) % 300];
                    let text = format!("{key}-{second}-{}", "y".repeat(95));
                    let key = schema.parse_url(&text).expect("a key");
                    sampler.note(&[key], |key| key.as_bytes().len() as u64 * second);
                }
            }
        }
        history.take(Nanos(second * 1_000_000_000), reading);
    }
    history
}

#[test]
fn memory_and_answers_stay_within_their_bounds_with_many_collections() {
    let history = full(128);
    let samples = history.recorder.lock().memory_bytes();
    let keys = history.memory_bytes() - samples;
    println!("samples {samples} B, keys {keys} B");
    assert!(keys > 500_000, "the test fills the sketches: {keys}");
    assert!(samples + keys <= MEMORY_BYTES_MAX, "{samples} + {keys}");
    let answer = history.json(0, frame());
    println!("answer {} B", answer.len());
    assert!(answer.len() <= ANSWER_BYTES_MAX, "{}", answer.len());
    let document = parsed(&history, 0);
    assert_eq!(document["at_unix_ms"].as_array().map(Vec::len), Some(SAMPLES_MAX));
    assert_eq!(document["collections"].as_object().map(|own| own.len()), Some(COLLECTIONS_MAX));
    assert!(document["other_collections"]["memory"][599].as_f64() > Some(0.0));
}

#[test]
fn an_answer_continues_where_the_one_before_ended() {
    let history = History::new(None, Nanos(0));
    let take = |second: u64| {
        let mut reading = Reading::empty();
        reading.set(series::Series::RequestsHit, second as f64 * 50.0);
        history.take(Nanos(second * 1_000_000_000), reading);
    };
    (1..=5).for_each(take);
    let first = parsed(&history, 0);
    // Five readings make four samples.
    assert_eq!((&first["first"], &first["next"]), (&0.into(), &4.into()));
    assert_eq!(first["at_unix_ms"], serde_json::json!([2_000, 3_000, 4_000, 5_000]));
    assert_eq!(first["series"]["requests.hit"], serde_json::json!([50, 50, 50, 50]));
    assert_eq!(first["series"]["feed.staleness_ms"][0], serde_json::Value::Null);
    take(6);
    let second = parsed(&history, 4);
    assert_eq!((&second["first"], &second["next"]), (&4.into(), &5.into()));
    assert_eq!(second["at_unix_ms"], serde_json::json!([6_000]));
    assert_eq!(parsed(&history, 5)["at_unix_ms"], serde_json::json!([]));
    // A number of the process before this one: all is sent.
    let after_restart = parsed(&history, 1_000);
    assert_eq!((&after_restart["first"], &after_restart["next"]), (&0.into(), &5.into()));
}

#[test]
fn the_thread_ends_with_the_process() {
    let shutdown = Shutdown::new();
    let supervisor = Supervisor::default();
    let history = Arc::new(History::new(None, Nanos(0)));
    let read = |_| Reading::empty();
    let thread = start(history, read, &shutdown, &supervisor).expect("a thread");
    shutdown.now();
    assert!(matches!(thread.join(), Ok(Some(()) | None)));
}
