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

/// A queue that began to stand at 0 and gave 10 keys each 100 ms up to now, in queries of 50 ms.
fn standing(config: Config, until_ms: u64) -> Discipline {
    let mut discipline = Discipline::new(config);
    for at in (0..=until_ms).step_by(100) {
        discipline.ended(10, millis(50));
        discipline.taken(10, 1000, ms(at));
    }
    discipline
}

#[test]
fn a_queue_that_is_emptied_now_and_then_is_served_in_order() {
    let mut discipline = Discipline::new(config());
    for at in 0..10_000 {
        discipline.taken(10, usize::from(at % 400 != 0), ms(at));
        assert_eq!(discipline.order(ms(at)), Order::OldestFirst, "{at}");
        assert!(!discipline.is_too_old(Nanos::ZERO, ms(at)));
    }
}

#[test]
fn a_queue_that_stands_is_served_newest_first_until_a_query_empties_it() {
    let mut discipline = standing(config(), 400);
    assert_eq!(discipline.order(ms(499)), Order::OldestFirst);
    assert_eq!(discipline.order(ms(500)), Order::NewestFirst);
    assert!(discipline.is_too_old(ms(399), ms(500)) && !discipline.is_too_old(ms(400), ms(500)));
    discipline.taken(10, 0, ms(600));
    assert_eq!(discipline.order(ms(600)), Order::OldestFirst);
    // What piled up while the database stood still is no overload by itself.
    discipline.taken(10, 1000, ms(9_000));
    assert_eq!(discipline.order(ms(9_000)), Order::OldestFirst);
}

#[test]
fn a_queue_that_was_cleared_stands_no_more() {
    let mut discipline = standing(config(), 500);
    assert_eq!(discipline.order(ms(500)), Order::NewestFirst);
    discipline.cleared();
    discipline.taken(10, 1000, ms(600));
    assert_eq!(discipline.order(ms(600)), Order::OldestFirst);
    assert_eq!(discipline.estimate(1000, ms(600)), None);
}

#[test]
fn first_come_first_served_for_ever_where_that_is_wanted() {
    let discipline = standing(Config { adaptive: false, ..config() }, 60_000);
    assert_eq!(discipline.order(ms(60_000)), Order::OldestFirst);
    assert!(!discipline.is_too_old(Nanos::ZERO, ms(60_000)) && !discipline.is_too_late(ms(1), ms(60_000)));
    assert_eq!(discipline.estimate(1_000_000, ms(60_000)), None);
    assert_eq!(discipline.query_keys(1000), 1000);
}

#[test]
fn the_wait_is_estimated_from_what_was_taken_lately() {
    let discipline = standing(config(), 400);
    assert_eq!(Discipline::new(config()).estimate(1_000_000, ms(1)), None, "it does not stand");
    // 50 keys in 400 ms: 125 per second.
    let estimate = discipline.estimate(125, ms(400)).unwrap();
    assert_eq!(estimate, millis(1050));
    assert_eq!(discipline.estimate(125, ms(500)), Some(millis(50)), "the newest is next");
}

#[test]
fn a_read_that_would_end_too_late_is_not_begun() {
    let discipline = standing(config(), 300);
    assert!(discipline.is_too_late(ms(350), ms(300)) && !discipline.is_too_late(ms(351), ms(300)));
    // Without a queue there is no harm in trying, and what was learnt may be wrong by now.
    let idle = Discipline { standing: None, ..discipline };
    assert!(idle.is_too_late(ms(300), ms(300)) && !idle.is_too_late(ms(301), ms(300)));
}

#[test]
fn queries_grow_in_steps_and_shrink_to_their_time() {
    let mut discipline = Discipline::new(config());
    assert_eq!(discipline.query_keys(1000), 1000, "nothing is known");
    discipline.ended(1, Duration::from_micros(90));
    assert_eq!(discipline.query_keys(1000), 1000, "0.09 s at most");
    // 4 ms per row.
    let mut slow = Discipline::new(config());
    let mut sizes = Vec::new();
    for _ in 0..6 {
        slow.ended(*sizes.last().unwrap_or(&1), millis(4) * *sizes.last().unwrap_or(&1) as u32);
        sizes.push(slow.query_keys(1000));
    }
    assert_eq!(sizes, [8, 25, 25, 25, 25, 25]);
    // A far database: size costs nothing.
    let mut far = Discipline::new(config());
    for (keys, next) in [(1, 8), (8, 64), (64, 512), (512, 1000)] {
        far.ended(keys, millis(200));
        assert_eq!(far.query_keys(1000), next);
    }
}
