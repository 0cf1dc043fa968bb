//! Thread schedules, explored by shuttle: keys that take over each other's slot in one set while
//! they are charged.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use shuttle::thread;

use crate::rate::gcra::Gcra;
use crate::rate::keyed::Keyed;
use crate::rate::meter::Meter;

const SCHEDULES: usize = 2000;
const DEPTH: usize = 3;
const BURST: u64 = 2;

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, DEPTH);
}

fn gcra(burst: u32) -> Gcra {
    let rate = "1/h".parse().unwrap();
    Gcra(Meter::new(rate, burst, Duration::ZERO, Nanos(0)))
}

/// More keys than slots, each requested by two threads more often than allowed.
#[test]
fn no_key_exceeds_its_burst() {
    explore(|| {
        const KEYS: u64 = 9;
        let world = Arc::new((Keyed::new(8, [1, 2]), gcra(BURST as u32)));
        // Not a step of a schedule.
        let admitted: Arc<Vec<std::sync::atomic::AtomicU64>> =
            Arc::new((0..KEYS).map(|_| 0.into()).collect());
        let ask = |keys: Vec<u64>| {
            let world = world.clone();
            let admitted = admitted.clone();
            thread::spawn(move || {
                let (table, gcra) = &*world;
                for key in keys {
                    if table.decide(table.hash(&[key as u8]), gcra, 1, Nanos(0)).is_admitted() {
                        admitted[key as usize].fetch_add(1, SeqCst);
                    }
                }
            })
        };
        let threads =
            [ask((0..KEYS).collect()), ask((0..KEYS).rev().collect()), ask(vec![0, 0, 8, 8, 0, 8])];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(admitted.iter().all(|count| count.load(SeqCst) <= BURST), "{admitted:?}");
    });
}

/// A key charged at the very moment in which another key takes its slot over: the charge must count
/// for the key; otherwise it returns to a slot that owes less.
#[test]
fn charges_during_a_takeover_are_not_forgotten() {
    explore(|| {
        let world = Arc::new((Keyed::new(8, [1, 2]), gcra(3)));
        let decide = |(table, gcra): &(Keyed, Gcra), key: u8| {
            table.decide(table.hash(&[key]), gcra, 1, Nanos(0)).is_admitted()
        };
        // All owe the same, so the first slot is taken over first, and it belongs to key 0.
        let mut admitted = (0..8).filter(|key| decide(&world, *key) && *key == 0).count();
        let charging = {
            let world = world.clone();
            thread::spawn(move || decide(&world, 0))
        };
        let taking_over = {
            let world = world.clone();
            thread::spawn(move || decide(&world, 8))
        };
        admitted += usize::from(charging.join().unwrap());
        taking_over.join().unwrap();
        admitted += (0..4).filter(|_| decide(&world, 0)).count();
        assert!(admitted <= 3, "{admitted}");
    });
}

/// A change of the burst during use applies before or after a decision, never within.
#[test]
fn a_change_is_atomic() {
    explore(|| {
        let gcra = Arc::new(gcra(1));
        let changed = gcra.clone();
        let changing = thread::spawn(move || {
            changed.0.change(Some("2/s".parse().unwrap()), Some(2), Nanos(0));
            changed.0.change(Some("3/s".parse().unwrap()), Some(3), Nanos(0));
        });
        for _ in 0..2 {
            assert!(["1/h", "2/s", "3/s"].contains(&gcra.0.rate().to_string().as_str()));
        }
        changing.join().unwrap();
        assert_eq!((gcra.0.rate().to_string(), gcra.0.burst()), ("3/s".to_owned(), 3));
    });
}
