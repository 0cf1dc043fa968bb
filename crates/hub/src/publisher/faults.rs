//! Faults of a relay whose rules are disabled, for tests.

use super::{Body, Event, Publisher, Rule};

/// Watermarks that overtake a change.
const OVERTAKING: u32 = 8;
/// Of this many changes one is not published.
const DROPS_ONE_OF: u64 = 2;

#[derive(Debug, Default)]
pub(super) struct Faults {
    changes: u64,
    overtaken: u32,
}

impl Publisher {
    /// Returns whether a change is forgotten, so that the chain has no sign of it.
    pub(super) fn drops(&mut self, event: &Event) -> bool {
        if self.rules.has(Rule::EveryChange) || !matches!(event, Event::Change { .. }) {
            return false;
        }
        self.faults.changes += 1;
        self.faults.changes.is_multiple_of(DROPS_ONE_OF)
    }

    /// Lets a watermark overtake the changes before it.
    pub(super) fn reorder(&mut self) {
        if self.rules.has(Rule::WatermarkInOrder) || self.faults.overtaken >= OVERTAKING {
            return;
        }
        let is_watermark = |body: &Body| matches!(body, Body::Watermark(_));
        let Some(place) = self.queue.iter().position(|queued| is_watermark(&queued.body)) else {
            return;
        };
        if let Some(watermark) = self.queue.remove(place) {
            self.faults.overtaken += u32::from(place > 0);
            self.queue.push_front(watermark);
        }
    }

    /// Returns whether changes wait for more watermarks to overtake them.
    pub(super) fn holds(&mut self) -> bool {
        let is_change = matches!(self.queue.front(), Some(q) if matches!(q.body, Body::Changes(_)));
        if self.rules.has(Rule::WatermarkInOrder) || !is_change {
            return false;
        }
        if self.faults.overtaken >= OVERTAKING {
            self.faults.overtaken = 0;
            return false;
        }
        true
    }
}
