//! State of one collection's standbys: what earlier answers showed, and whether they wait.

use hotrow_measure::clock::Nanos;

/// Slots per collection, a power of two: 256 KiB. A read every millisecond fills 1.5 % of them in
/// the quarter of a second that a standby may be behind without being refused for it.
const SLOTS: usize = 1 << 14;

/// Points of the log that bound what answers showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExposedPositions {
    /// Of any answer.
    pub(crate) any: u64,
    /// Of an answer of a standby.
    pub(crate) standby: u64,
}

/// Standbys as one collection may use them.
#[derive(Debug)]
pub(crate) struct Standbys {
    exposed: Box<[ExposedPositions]>,
    hold: Hold,
    /// Least point that every read of a standby must have reached.
    pub(crate) floor: u64,
}

/// Whether standbys wait for a probe (S5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Released,
    /// For one that was sent after this time.
    Until(Nanos),
    /// For one that was sent after a time which is not known yet.
    Unscheduled,
}

impl Standbys {
    pub(crate) fn new() -> Self {
        let exposed = vec![ExposedPositions::default(); SLOTS].into_boxed_slice();
        Self { exposed, hold: Hold::Unscheduled, floor: 0 }
    }

    pub(crate) fn slot(&mut self, hash: u64) -> &mut ExposedPositions {
        // The mask keeps the index within the slots.
        &mut self.exposed[hash as usize & (SLOTS - 1)]
    }

    /// Returns whether standbys wait for a probe.
    pub(crate) fn is_held(&self) -> bool {
        self.hold != Hold::Released
    }

    /// Forgets what earlier answers showed: everything is different now, or a probe that is sent
    /// later covers it.
    pub(crate) fn restart(&mut self) {
        self.exposed.fill(ExposedPositions::default());
        self.floor = 0;
        self.hold();
    }

    /// Holds standbys back until [`crate::Cache::release_standbys_after`] and a probe.
    pub(crate) fn hold(&mut self) {
        self.hold = Hold::Unscheduled;
    }

    pub(crate) fn release_after(&mut self, now: Nanos) -> bool {
        self.hold = match self.hold {
            Hold::Released => Hold::Released,
            Hold::Until(time) => Hold::Until(time.max(now)),
            Hold::Unscheduled => Hold::Until(now),
        };
        self.is_held()
    }

    /// The feed has passed a probe. Returns whether standbys still wait.
    pub(crate) fn passed(&mut self, probe_sent_at: Nanos, position: u64) -> bool {
        if matches!(self.hold, Hold::Until(time) if probe_sent_at > time) {
            self.hold = Hold::Released;
            self.floor = self.floor.max(position);
        }
        self.is_held()
    }
}
