use super::*;

const fn ms(n: u64) -> Nanos {
    Nanos(n * 1_000_000)
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn config() -> Config {
    Config { adaptive: true, target: millis(100), interval: millis(500), query_target: millis(100) }
}

/// Returns a queue that has been standing since 0 and released 10 keys every 100 ms until
/// `until_ms`, in queries of 50 ms.
fn standing(config: Config, until_ms: u64) -> QueuePolicy {
    let mut policy = QueuePolicy::new(config);
    for at in (0..=until_ms).step_by(100) {
        policy.ended(10, millis(50));
        policy.taken(10, 1000, ms(at));
    }
    policy
}

#[test]
fn a_queue_that_is_sometimes_emptied_is_served_in_order() {
    let mut policy = QueuePolicy::new(config());
    for at in 0..10_000 {
        policy.taken(10, usize::from(at % 400 != 0), ms(at));
        assert_eq!(policy.order(ms(at)), Order::OldestFirst, "{at}");
        assert!(!policy.is_too_old(Nanos::ZERO, ms(at)));
    }
}

#[test]
fn a_standing_queue_is_lifo_until_a_query_empties_it() {
    let mut policy = standing(config(), 400);
    assert_eq!(policy.order(ms(499)), Order::OldestFirst);
    assert_eq!(policy.order(ms(500)), Order::Lifo);
    assert!(policy.is_too_old(ms(399), ms(500)) && !policy.is_too_old(ms(400), ms(500)));
    policy.taken(10, 0, ms(600));
    assert_eq!(policy.order(ms(600)), Order::OldestFirst);
    // Keys accumulated while the database stood still are not an overload by themselves.
    policy.taken(10, 1000, ms(9_000));
    assert_eq!(policy.order(ms(9_000)), Order::OldestFirst);
}

#[test]
fn clearing_a_queue_ends_its_standing_state() {
    let mut policy = standing(config(), 500);
    assert_eq!(policy.order(ms(500)), Order::Lifo);
    policy.cleared();
    policy.taken(10, 1000, ms(600));
    assert_eq!(policy.order(ms(600)), Order::OldestFirst);
    assert_eq!(policy.estimate(1000, ms(600)), None);
}

#[test]
fn a_fifo_queue_stays_fifo() {
    let policy = standing(Config { adaptive: false, ..config() }, 60_000);
    assert_eq!(policy.order(ms(60_000)), Order::OldestFirst);
    assert!(!policy.is_too_old(Nanos::ZERO, ms(60_000)) && !policy.is_too_late(ms(1), ms(60_000)));
    assert_eq!(policy.estimate(1_000_000, ms(60_000)), None);
    assert_eq!(policy.query_keys(1000), 1000);
}

#[test]
fn the_wait_is_estimated_from_recent_queries() {
    let policy = standing(config(), 400);
    assert_eq!(QueuePolicy::new(config()).estimate(1_000_000, ms(1)), None, "it does not stand");
    // 50 keys in 400 ms: 125 per second.
    let estimate = policy.estimate(125, ms(400)).unwrap();
    assert_eq!(estimate, millis(1050));
    assert_eq!(policy.estimate(125, ms(500)), Some(millis(50)), "the newest is next");
}

#[test]
fn a_read_that_would_miss_its_deadline_is_not_begun() {
    let policy = standing(config(), 300);
    assert!(policy.is_too_late(ms(350), ms(300)) && !policy.is_too_late(ms(351), ms(300)));
    // Without a queue a try does no harm, and the knowledge may be outdated.
    let idle = QueuePolicy { standing: None, ..policy };
    assert!(idle.is_too_late(ms(300), ms(300)) && !idle.is_too_late(ms(301), ms(300)));
}

#[test]
fn queries_grow_in_steps_and_shrink_to_their_time() {
    let mut policy = QueuePolicy::new(config());
    assert_eq!(policy.query_keys(1000), 1000, "nothing is known");
    policy.ended(1, Duration::from_micros(90));
    assert_eq!(policy.query_keys(1000), 1000, "0.09 s at most");
    // 4 ms per row.
    let mut slow = QueuePolicy::new(config());
    let mut sizes = Vec::new();
    for _ in 0..6 {
        slow.ended(*sizes.last().unwrap_or(&1), millis(4) * *sizes.last().unwrap_or(&1) as u32);
        sizes.push(slow.query_keys(1000));
    }
    assert_eq!(sizes, [8, 25, 25, 25, 25, 25]);
    // A distant database: size costs nothing.
    let mut far = QueuePolicy::new(config());
    for (keys, next) in [(1, 8), (8, 64), (64, 512), (512, 1000)] {
        far.ended(keys, millis(200));
        assert_eq!(far.query_keys(1000), next);
    }
}
