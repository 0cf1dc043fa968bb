//! Interleavings explored by shuttle: the queue with several producers and consumers, and the slots
//! of the I/O-aware pool. Shuttle reports a thread that is never woken as a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use shuttle::thread;

use crate::io_aware::next;
use crate::queue::Queue;
use crate::slots::{SlotQueue, Slots};

/// Schedules per scenario and scheduler.
const SCHEDULES: usize = 2_000;
/// Forced preemptions of the second scheduler.
const DEPTH: usize = 4;

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, DEPTH);
}

/// Runs two producers and two consumers over a queue of the given capacity; every item must arrive
/// once, in order per producer.
fn hand_over(capacity: usize) {
    const ITEMS: usize = 3;
    let queue = Arc::new(Queue::new(capacity));
    let produce = |producer: usize| {
        let queue = queue.clone();
        thread::spawn(move || {
            for item in 0..ITEMS {
                queue.push((producer, item)).unwrap();
                assert!(queue.len() <= capacity);
            }
        })
    };
    let consume = || {
        let queue = queue.clone();
        thread::spawn(move || std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>())
    };
    let consumers = [consume(), consume()];
    for producer in [produce(0), produce(1)] {
        producer.join().unwrap();
    }
    queue.close();
    let mut all = Vec::new();
    for consumer in consumers {
        let taken = consumer.join().unwrap();
        for producer in 0..2 {
            assert!(taken.iter().filter(|(by, _)| *by == producer).is_sorted(), "{taken:?}");
        }
        all.extend(taken);
    }
    all.sort_unstable();
    let want: Vec<_> =
        (0..2).flat_map(|producer| (0..ITEMS).map(move |item| (producer, item))).collect();
    assert_eq!(all, want);
}

#[test]
fn a_queue_of_one_loses_nothing_and_wakes_every_thread() {
    explore(|| hand_over(1));
}

#[test]
fn a_queue_with_room_loses_nothing_and_wakes_every_thread() {
    explore(|| hand_over(3));
}

#[test]
fn closing_wakes_waiting_producers_and_consumers() {
    explore(|| {
        let queue = Arc::new(Queue::new(1));
        let (producer, consumer) = (queue.clone(), queue.clone());
        let producer =
            thread::spawn(move || (0..3).filter(|item| producer.push(*item).is_ok()).count());
        let consumer = thread::spawn(move || usize::from(consumer.pop().is_some()));
        queue.close();
        let (put, taken) = (producer.join().unwrap(), consumer.join().unwrap());
        assert_eq!(put, taken + queue.len());
    });
}

/// Runs threads of the I/O-aware pool: at most `slots` run at a time, and all end.
fn run_in_turns(slots: usize, threads: usize) {
    let shared = Arc::new(Slots::new(slots, threads));
    let running = Arc::new(AtomicUsize::new(0));
    let enter = move |running: &AtomicUsize| {
        assert!(running.fetch_add(1, SeqCst) < slots, "more run than there are slots")
    };
    let all: Vec<_> = (0..threads)
        .map(|me| {
            let (shared, running) = (shared.clone(), running.clone());
            thread::spawn(move || {
                let leave = |running: &AtomicUsize| running.fetch_sub(1, SeqCst);
                shared.acquire(me, SlotQueue::Idle);
                enter(&running);
                for _ in 0..2 {
                    // It sleeps.
                    leave(&running);
                    shared.release();
                    thread::yield_now();
                    shared.acquire(me, SlotQueue::Returning);
                    enter(&running);
                    thread::yield_now();
                    // Between two requests.
                    leave(&running);
                    shared.offer(me);
                    enter(&running);
                }
                leave(&running);
                shared.release();
            })
        })
        .collect();
    all.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(running.load(SeqCst), 0);
}

/// Runs the complete I/O-aware pool: threads that take requests from a queue, wait for them without
/// a slot, and sleep in between.
fn serve_from_a_queue(slots: usize, threads: usize) {
    const ITEMS: usize = 3;
    let (queue, shared) = (Arc::new(Queue::new(1)), Arc::new(Slots::new(slots, threads)));
    let (running, served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let all: Vec<_> = (0..threads)
        .map(|me| {
            let (queue, shared, running, served) =
                (queue.clone(), shared.clone(), running.clone(), served.clone());
            thread::spawn(move || {
                let work = || {
                    assert!(running.fetch_add(1, SeqCst) < slots, "more run than there are slots");
                    thread::yield_now();
                    running.fetch_sub(1, SeqCst);
                };
                shared.acquire(me, SlotQueue::Idle);
                while next(me, &queue, &shared).is_some() {
                    work();
                    shared.release();
                    thread::yield_now();
                    shared.acquire(me, SlotQueue::Returning);
                    work();
                    served.fetch_add(1, SeqCst);
                    shared.offer(me);
                }
            })
        })
        .collect();
    (0..ITEMS).for_each(|_| queue.push(()).unwrap());
    queue.close();
    all.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((served.load(SeqCst), running.load(SeqCst), shared.waiting()), (ITEMS, 0, 0));
}

#[test]
fn a_thread_that_waits_for_a_request_holds_no_slot() {
    explore(|| serve_from_a_queue(1, 2));
    explore(|| serve_from_a_queue(2, 3));
}

/// A thread that waits for work does not keep the only slot from one with a request.
#[test]
fn a_thread_without_work_releases_its_slot() {
    explore(|| {
        let (queue, slots) = (Arc::new(Queue::<()>::new(1)), Arc::new(Slots::new(1, 2)));
        let (waiting_queue, waiting_slots) = (queue.clone(), slots.clone());
        let waiting = thread::spawn(move || {
            waiting_slots.acquire(0, SlotQueue::Idle);
            next(0, &waiting_queue, &waiting_slots)
        });
        slots.acquire(1, SlotQueue::Returning);
        slots.release();
        queue.close();
        assert_eq!(waiting.join().unwrap(), None);
    });
}

#[test]
fn one_slot_reaches_every_thread() {
    explore(|| run_in_turns(1, 3));
}

#[test]
fn two_slots_reach_every_thread() {
    explore(|| run_in_turns(2, 4));
}

#[test]
fn threads_with_a_request_precede_threads_without() {
    explore(|| {
        let slots = Arc::new(Slots::new(1, 3));
        let order = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
        slots.acquire(0, SlotQueue::Idle);
        let wait = |me: usize, queue| {
            let (slots, order) = (slots.clone(), order.clone());
            thread::spawn(move || {
                slots.acquire(me, queue);
                order.lock().unwrap().push(me);
                slots.release();
            })
        };
        let (idle, returning) = (wait(1, SlotQueue::Idle), wait(2, SlotQueue::Returning));
        while slots.waiting() < 2 {
            thread::yield_now();
        }
        slots.release();
        idle.join().unwrap();
        returning.join().unwrap();
        assert_eq!(*order.lock().unwrap(), [2, 1]);
    });
}
