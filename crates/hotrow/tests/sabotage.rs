//! Race A, a change during a fill, with its fix in place and with the fix taken out: shows that the switch works, and
//! that a missing fix would be seen. Only in builds with the feature `sabotage`.

use std::sync::Arc;

use hotrow::config::{Overrides, Resolved, parse};
use hotrow_cache::key::{CollectionId, Key, KeySchema, KeyType};
use hotrow_cache::version::Version;
use hotrow_cache::{Answers, Cache, Fetched, Lookup, Wish};
use hotrow_measure::clock::Nanos;

const COLLECTION: CollectionId = CollectionId(0);
const NOW: Nanos = Nanos(1_000_000_000);

fn cache() -> Arc<Cache<String>> {
    let text = "source.url = 'sqlite:any.db'\n[collections.products]\n";
    let unset = |_: &str| Err(std::env::VarError::NotPresent);
    let Resolved { cache, collections, .. } = parse(text, "test", &unset, &Overrides::default()).expect("valid");
    let cache = Cache::new(cache, collections);
    cache.advance(NOW, None);
    cache
}

fn key() -> Key {
    KeySchema::new(COLLECTION, vec![KeyType::Integer]).parse_url("1").expect("an integer")
}

/// Reads a record while `meanwhile` happens between the query and its answer; then: is what was read kept?
fn kept_after_fill(cache: &Arc<Cache<String>>, meanwhile: impl FnOnce(&Cache<String>)) -> bool {
    // Held until the end: a fill that nobody waits for is not begun.
    let asked = cache.lookup(&key(), Wish::Any, NOW);
    assert!(matches!(asked, Lookup::Fill(_)), "an empty cache asks for a fill");
    let mut turn = cache.turn(COLLECTION).expect("the fill's turn");
    assert_eq!(turn.next_query(NOW), Some(vec![key()]));
    meanwhile(cache);
    let answers = Answers { version: Version::Unknown, position: None, rows: vec![Fetched::Found(b"{}".to_vec())] };
    turn.complete(Ok(answers), NOW);
    matches!(cache.lookup(&key(), Wish::Any, NOW), Lookup::Hit(..))
}

#[test]
fn what_nothing_changed_is_kept() {
    assert!(kept_after_fill(&cache(), |_| ()));
}

#[test]
fn a_row_read_before_its_change_is_not_kept() {
    assert!(!kept_after_fill(&cache(), |cache| cache.invalidate(&key())));
}

#[test]
fn without_the_fix_it_is_kept() {
    let cache = cache();
    cache.break_leases();
    assert!(kept_after_fill(&cache, |cache| cache.invalidate(&key())), "the switch does not take the fix out");
}
