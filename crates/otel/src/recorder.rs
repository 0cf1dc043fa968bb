//! Queue between the threads that record spans and the one that exports them: bounded in bytes and
//! in spans. What does not fit is dropped and counted; nothing waits.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::span::Span;

/// Most bytes of waiting spans ([`Span::bytes`]).
pub const QUEUE_BYTES_MAX: usize = 256 << 10;
/// Most waiting spans.
pub const QUEUE_SPANS_MAX: usize = 1_024;
/// Most spans of one message.
pub const BATCH_SPANS_MAX: usize = 128;
/// Most bytes of the spans of one message; a larger span is a message alone.
pub const BATCH_BYTES_MAX: usize = 64 << 10;
/// Largest span that is recorded.
pub const SPAN_BYTES_MAX: usize = 16 << 10;
/// Bytes reserved for a message. JSON takes up to four times the memory of its spans.
pub const MESSAGE_BYTES_MAX: usize = 4 * BATCH_BYTES_MAX;
/// Most memory of a queue, and of a message: its spans, one of them as it is encoded, and the bytes
/// that are sent.
pub const MEMORY_BYTES_MAX: usize =
    QUEUE_BYTES_MAX + QUEUE_SPANS_MAX * size_of::<Span>() + 2 * BATCH_BYTES_MAX + MESSAGE_BYTES_MAX;

/// Reason for which a span or a trace is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The queue has no room, or the span is larger than [`SPAN_BYTES_MAX`].
    QueueFull,
    /// The second has as many traced requests as are configured.
    Rate,
    /// Too many traced requests wait at once.
    InFlight,
}

impl DropReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::Rate, Self::InFlight];

    /// Returns its name in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Rate => "rate",
            Self::InFlight => "in_flight",
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    spans: Vec<Span>,
    bytes: usize,
}

/// Finished spans that wait to be exported.
#[derive(Debug, Default)]
pub struct Recorder {
    queue: Mutex<Queue>,
    /// By [`DropReason`].
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl Recorder {
    /// Queues a span, or drops it. Returns whether a message is full, so that it can be sent before
    /// its time.
    pub fn record(&self, span: Span) -> bool {
        let bytes = span.bytes();
        let mut queue = self.queue.lock();
        let fits = bytes <= SPAN_BYTES_MAX
            && queue.bytes + bytes <= QUEUE_BYTES_MAX
            && queue.spans.len() < QUEUE_SPANS_MAX;
        if !fits {
            drop(queue);
            self.count_dropped(DropReason::QueueFull);
            return false;
        }
        queue.bytes += bytes;
        queue.spans.push(span);
        queue.spans.len() >= BATCH_SPANS_MAX || queue.bytes >= BATCH_BYTES_MAX
    }

    /// Takes the spans of one message, the oldest first.
    pub fn take_batch(&self) -> Vec<Span> {
        let mut queue = self.queue.lock();
        let mut bytes = 0;
        let fits = |span: &&Span| {
            bytes += span.bytes();
            bytes <= BATCH_BYTES_MAX
        };
        let count = queue.spans.iter().take(BATCH_SPANS_MAX).take_while(fits).count();
        // `SPAN_BYTES_MAX` is less than a message, so this always takes one.
        let batch: Vec<Span> = queue.spans.drain(..count).collect();
        queue.bytes -= batch.iter().map(Span::bytes).sum::<usize>();
        batch
    }

    /// Counts a span, or a request that would have been traced.
    pub fn count_dropped(&self, reason: DropReason) {
        self.dropped[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what was dropped, by the reason.
    pub fn dropped_total(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }

    /// Returns the bytes of the waiting spans.
    pub fn queued_bytes(&self) -> usize {
        self.queue.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use crate::span::tests::span;

    use super::*;

    #[test]
    fn a_queue_is_bounded_in_bytes_and_in_spans() {
        let recorder = Recorder::default();
        let (small, large) = (span(0), span(8 << 10));
        let fitting = QUEUE_BYTES_MAX / large.bytes();
        (0..2 * fitting).for_each(|_| _ = recorder.record(large.clone()));
        assert_eq!(recorder.dropped_total(DropReason::QueueFull), fitting as u64);
        assert!(recorder.queued_bytes() <= QUEUE_BYTES_MAX);
        let mut taken = 0;
        loop {
            let batch = recorder.take_batch();
            if batch.is_empty() {
                break;
            }
            assert!(batch.iter().map(Span::bytes).sum::<usize>() <= BATCH_BYTES_MAX);
            taken += batch.len();
        }
        assert_eq!((taken, recorder.queued_bytes()), (fitting, 0));
        let recorder = Recorder::default();
        (0..QUEUE_SPANS_MAX).for_each(|_| _ = recorder.record(small.clone()));
        let dropped = recorder.dropped_total(DropReason::QueueFull);
        let fitting = (QUEUE_BYTES_MAX / small.bytes()).min(QUEUE_SPANS_MAX);
        assert_eq!(dropped as usize, QUEUE_SPANS_MAX - fitting);
        assert!(recorder.take_batch().len() <= BATCH_SPANS_MAX);
    }

    #[test]
    fn a_span_that_is_too_large_is_dropped() {
        let recorder = Recorder::default();
        recorder.record(span(SPAN_BYTES_MAX));
        assert_eq!(recorder.dropped_total(DropReason::QueueFull), 1);
        assert!(recorder.take_batch().is_empty());
        // One that just fits leaves alone.
        const { assert!(SPAN_BYTES_MAX <= BATCH_BYTES_MAX) };
    }

    #[test]
    fn a_full_message_is_announced_once_it_is_full() {
        let recorder = Recorder::default();
        let announced: Vec<bool> = (0..BATCH_SPANS_MAX).map(|_| recorder.record(span(0))).collect();
        assert_eq!(announced.iter().position(|is_full| *is_full), Some(BATCH_SPANS_MAX - 1));
        assert_eq!(recorder.take_batch().len(), BATCH_SPANS_MAX);
        assert!(!recorder.record(span(0)));
    }
}
