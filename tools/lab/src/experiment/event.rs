//! Events in the middle of a measurement.

/// An event: an instance is killed or started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Share of the measurement before it, above 0 and below 1.
    pub at: f64,
    /// The instance, from 1.
    pub instance: u32,
    /// What happens to it.
    pub kind: EventKind,
}

/// What happens to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It is killed (SIGKILL).
    Kill,
    /// It is started: after it was killed, or as a spare.
    Start,
}

/// Names of the figures that every measurement with an event has; the last if an instance that was
/// killed is started again.
pub const EVENT_FIGURES: [&str; 3] = ["failed requests", "failed", "outage"];

impl Event {
    /// Returns the event in words: "instance 2 killed". It names the phase that begins with it.
    pub fn words(&self) -> String {
        let what = match self.kind {
            EventKind::Kill => "killed",
            EventKind::Start => "started",
        };
        format!("instance {} {what}", self.instance)
    }

    /// Returns the name of the figure of the keys that are read again after it.
    pub fn read_again(&self) -> String {
        format!("read again, {}", self.words())
    }
}
