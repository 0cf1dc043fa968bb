//! Requests of several clients at once, while something changes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::wait_until;

/// A client: sends one request and returns the status.
pub(crate) type Ask<'a> = Box<dyn FnMut() -> u16 + 'a>;

/// Runs `change` while several clients, each made by `ask`, send requests. Each must be answered
/// with the record. Returns the number of answers.
pub(crate) fn under_load<'a>(ask: impl Fn() -> Ask<'a> + Sync, change: impl FnOnce()) -> usize {
    const CLIENTS: usize = 4;
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut ask = ask();
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(ask(), 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let before = |n| answered.load(Ordering::Relaxed) >= n;
        wait_until(|| before(CLIENTS));
        change();
        let then = answered.load(Ordering::Relaxed);
        wait_until(|| before(then + CLIENTS));
        is_over.store(true, Ordering::Relaxed);
    });
    answered.load(Ordering::Relaxed)
}
