//! Reads that are not queued, or given up before they are sent.

use super::*;

#[test]
fn a_queue_without_waiters_does_not_refuse_for_ever() {
    let cache = cache(Config { waiting_keys: 2, ..config() });
    let waiters = [ask(&cache, 1), ask(&cache, 2)];
    drop(cache.batch_loader(FIRST).unwrap());
    assert!(
        matches!(
            cache.lookup(&key(3), ReadMode::Normal, START),
            Lookup::Refused(LookupError::QueueFull)
        ),
        "still waiting"
    );
    drop(waiters);
    let mut late = ask(&cache, 3);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![3]));
    loader.complete(answers(1, 1), START);
    assert_eq!((body(poll(&mut late)), query(&mut loader)), (Some(1), None));
    assert_idle(&cache);
}

#[test]
fn lookups_that_are_not_admitted_queue_nothing() {
    let cache = cache(config());
    let refused = cache.lookup_if(&key(1), ReadMode::Normal, START, || Err("no"));
    assert_eq!(refused.err(), Some("no"));
    let keys = [key(1), key(2)];
    let refused = cache.lookup_batch_if(&keys, ReadMode::Normal, START, Err);
    assert_eq!(refused.err(), Some(2));
    assert!(cache.batch_loader(FIRST).is_none(), "nothing waits");
    let mut asked = ask(&cache, 1);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1]));
    loader.complete(answers(1, 1), START);
    assert_eq!(body(poll(&mut asked)), Some(1));
    let never = || -> Result<Nanos, &str> { panic!("memory answers") };
    assert!(matches!(
        cache.lookup_if(&key(1), ReadMode::Normal, START, never),
        Ok(Lookup::Hit(..))
    ));
    assert_eq!(
        cache.lookup_batch_if(&keys, ReadMode::Normal, START, Err).err(),
        Some(1),
        "one of two is cold"
    );
}

#[test]
fn reads_given_up_before_they_are_sent_are_answered_and_not_remembered() {
    let cache = cache(config());
    let mut sent = ask(&cache, 1);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1]));
    let mut queued = ask_batch(&cache, 2..5);
    assert_eq!(cache.give_up(FIRST, &"left alone"), 3);
    for waiter in &mut queued {
        assert!(matches!(poll(waiter), Some(Waited::Done(Err(LookupError::Source("left alone"))))));
    }
    assert_eq!(cache.give_up(FIRST, &"left alone"), 0);
    assert!(poll(&mut sent).is_none(), "what was sent is not given up");
    loader.complete(answers(1, 1), START);
    assert_eq!(body(poll(&mut sent)), Some(1));
    let mut again = ask(&cache, 2);
    assert_eq!(query(&mut loader), Some(vec![2]), "requested again at once by the running loader");
    loader.complete(answers(1, 1), START);
    assert_eq!(body(poll(&mut again)), Some(1));
    assert_eq!(query(&mut loader), None);
    assert_idle(&cache);
}
