//! The queue on real threads, with generated loads; `schedules` explores its interleavings.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Every item comes out once, in order per producer, and the capacity holds.
    #[test]
    fn nothing_is_lost_doubled_or_out_of_order(
        capacity in 1_usize..40,
        producers in 1_usize..5,
        consumers in 1_usize..5,
        items in 0_usize..200,
    ) {
        let queue = Queue::new(capacity);
        let longest = AtomicUsize::new(0);
        let taken: Vec<Vec<(usize, usize)>> = thread::scope(|scope| {
            let consume = || {
                let mut taken = Vec::new();
                while let Some(item) = queue.pop() {
                    longest.fetch_max(queue.len(), SeqCst);
                    taken.push(item);
                }
                taken
            };
            let consumers: Vec<_> = (0..consumers).map(|_| scope.spawn(consume)).collect();
            let produce = |producer| {
                let queue = &queue;
                move || (0..items).for_each(|item| queue.push((producer, item)).unwrap())
            };
            let producers: Vec<_> =
                (0..producers).map(|producer| scope.spawn(produce(producer))).collect();
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            queue.close();
            consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect()
        });
        prop_assert!(longest.load(SeqCst) <= capacity);
        let all: HashSet<_> = taken.iter().flatten().copied().collect();
        prop_assert_eq!(all.len(), producers * items);
        prop_assert_eq!(taken.iter().map(Vec::len).sum::<usize>(), producers * items);
        for taken in &taken {
            for producer in 0..producers {
                let own: Vec<usize> = taken
                    .iter()
                    .filter(|(by, _)| *by == producer)
                    .map(|(_, item)| *item)
                    .collect();
                prop_assert!(own.is_sorted(), "{:?}", own);
            }
        }
    }

    /// One thread sees a plain list.
    #[test]
    fn it_is_a_list_that_is_full_at_its_capacity(
        capacity in 1_usize..6,
        steps in prop::collection::vec(any::<bool>(), 0..60),
    ) {
        let queue = Queue::new(capacity);
        let mut model = VecDeque::new();
        for (number, push) in steps.into_iter().enumerate() {
            // A step that would block is skipped on a single thread.
            if push && model.len() < capacity {
                queue.push(number).unwrap();
                model.push_back(number);
            } else if !push && !model.is_empty() {
                prop_assert_eq!(queue.pop(), model.pop_front());
            }
            prop_assert_eq!(queue.len(), model.len());
        }
    }
}

#[test]
fn a_closed_queue_refuses_new_items_and_yields_the_rest() {
    let queue = Queue::new(2);
    queue.push(1).unwrap();
    queue.close();
    assert_eq!(queue.push(2), Err(2));
    assert_eq!((queue.pop(), queue.pop()), (Some(1), None));
}

#[test]
fn closing_wakes_waiting_producers_and_consumers() {
    let queue = Queue::new(1);
    queue.push(0).unwrap();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let queue = &queue;
        scope.spawn(move || sender.send(queue.push(1)).unwrap());
        // It waits for room: only the close can answer it.
        while lock(&queue.state).producers == 0 {
            thread::yield_now();
        }
        queue.close();
        assert_eq!(receiver.recv(), Ok(Err(1)));
    });
}
