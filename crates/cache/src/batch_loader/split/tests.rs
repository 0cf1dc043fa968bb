use super::*;
use crate::flight::{Waited, Waiter};
use crate::testkit::*;
use crate::{BatchLoader, LookupError, ReadMode};
use hotrow_types::key::Key;

const BAD: TestError = "bad data";

/// Answers queries as a database that fails each one that has a bad key, and splits them. Returns
/// the number of queries; `each` runs before the answer to each of them.
fn serve(
    loader: &mut BatchLoader<TestError>,
    is_bad: impl Fn(&Key) -> bool,
    mut each: impl FnMut(usize),
) -> usize {
    let mut queries = 0;
    while let Some(keys) = loader.next_batch(START) {
        queries += 1;
        each(queries);
        match keys.iter().any(&is_bad) {
            true if loader.split() => {}
            true => loader.complete(Err(BAD), START),
            false => loader.complete(answers(1, keys.len()), START),
        }
    }
    queries
}

fn large() -> TestCache {
    let mut config = config();
    (config.query_keys, config.query_bytes, config.waiting_keys) = (1000, 1 << 20, 2000);
    config.capacity_bytes = 1 << 30;
    cache(config)
}

fn ask_thousand(cache: &TestCache) -> Vec<Waiter<TestError>> {
    let keys: Vec<Key> = (0..1000).map(key).collect();
    cache.lookup_batch(&keys, ReadMode::Normal, START).into_iter().map(waiter).collect()
}

/// Returns the numbers of answered and of failed waiters.
fn ended(waiters: &mut [Waiter<TestError>]) -> (usize, usize) {
    let mut counts = (0, 0);
    for waiter in waiters {
        match poll(waiter) {
            Some(Waited::Done(Ok(_))) => counts.0 += 1,
            Some(Waited::Done(Err(LookupError::Source(BAD)))) => counts.1 += 1,
            other => panic!("{other:?}"),
        }
    }
    counts
}

#[test]
fn bad_keys_are_isolated_within_a_bounded_number_of_queries() {
    for (bad, expected, queries) in [(1, (999, 1), 21), (3, (997, 3), 61), (1000, (0, 1000), 65)] {
        let cache = large();
        let mut waiters = ask_thousand(&cache);
        let mut loader = cache.batch_loader(FIRST).unwrap();
        let bad_keys: Vec<Key> = (0..1000).step_by(1000 / bad).take(bad).map(key).collect();
        let sent = serve(&mut loader, |key| bad_keys.contains(key), |_| ());
        assert!(sent <= queries, "{bad} bad keys: {sent} queries");
        assert_eq!(ended(&mut waiters), expected, "{bad} bad keys");
        super::super::tests::assert_idle(&cache);
    }
}

#[test]
fn keys_that_are_not_isolated_fail_and_those_before_are_answered() {
    let cache = large();
    let mut waiters = ask_thousand(&cache);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    let bad_keys: Vec<Key> = (0..65).map(|i| key(i * 15)).collect();
    let sent = serve(&mut loader, |key| bad_keys.contains(key), |_| ());
    assert_eq!(sent, 1 + usize::from(SPLIT_QUERIES_MAX));
    let (answered, failed) = ended(&mut waiters);
    assert!(answered > 50 && failed > 65, "{answered} answered, {failed} failed");
    // The next query has its own further ones.
    let mut later = super::super::tests::ask_batch(&cache, 2000..2002);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(serve(&mut loader, |asked| *asked == key(2000), |_| ()), 3);
    assert_eq!(ended(&mut later), (1, 1));
}

#[test]
fn keys_whose_clients_have_left_are_not_read_again() {
    let cache = large();
    let mut waiters = ask_thousand(&cache);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    // Their deadline passes during the third query.
    let sent = serve(
        &mut loader,
        |_| true,
        |queries| {
            if queries == 3 {
                waiters.clear();
            }
        },
    );
    assert_eq!(sent, 3);
    super::super::tests::assert_idle(&cache);
}

#[test]
fn halves_of_a_cancelled_loader_are_read_by_the_next_one() {
    let cache = large();
    let mut waiters = ask_thousand(&cache);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(loader.next_batch(START).map(|keys| keys.len()), Some(1000));
    assert!(loader.split());
    assert_eq!(loader.next_batch(START).map(|keys| keys.len()), Some(500));
    drop(loader);
    assert!(matches!(poll(&mut waiters[0]), Some(Waited::Lead)));
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(serve(&mut loader, |_| false, |_| ()), 1);
    assert_eq!(ended(&mut waiters), (1000, 0));
    super::super::tests::assert_idle(&cache);
}
