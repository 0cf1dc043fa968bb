//! Limit on the work of one task before it yields to the other tasks of its thread.

/// Bytes of JSON written between two yields: some tenths of a millisecond of work.
const BYTES_PER_TURN: usize = 128 << 10;

/// Counter of written bytes that yields to the thread's other tasks after each portion.
#[derive(Debug, Default)]
pub struct Pace {
    bytes: usize,
}

impl Pace {
    /// Counts `bytes` as written, and yields after [`BYTES_PER_TURN`].
    pub async fn wrote(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= BYTES_PER_TURN {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_task_yields_once_per_so_many_bytes() {
        let mut pace = Pace::default();
        let mut yields = |bytes| {
            let mut wrote = pin!(pace.wrote(bytes));
            // Outside a runtime a yield wakes at once; the test needs only that the future was
            // pending.
            wrote.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending
        };
        assert_eq!([yields(BYTES_PER_TURN - 1), yields(1), yields(1)], [false, true, false]);
        assert!(yields(10 * BYTES_PER_TURN));
    }
}
