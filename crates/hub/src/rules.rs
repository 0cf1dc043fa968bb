//! The rules that make a hub correct, each with a switch for tests: the simulated world disables
//! one, and must find the fault; tests of processes do the same by a failpoint. In a build of the
//! program without the feature `failpoints` there are no switches.

/// Rule of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every delivered change is published.
    EveryChange,
    /// Only the next counter of the same chain follows a message.
    Successor,
    /// Chains are equal only if number and identity are.
    Identity,
    /// A watermark answers only nonces that arrived before its look began.
    LookAfterNonce,
    /// A watermark counts only once everything before it was applied.
    WatermarkInOrder,
    /// A server that joins takes hidden changes as marks of every key.
    Hidden,
    /// A chain continues another only if it resumes no later than that one was complete.
    ResumeWithin,
    /// A chain continues another only if the database published the same tables all the time.
    SameWatch,
    /// Each message is written only behind the one before it.
    CompareAndSet,
    /// Only what the stream has acknowledged is confirmed to the database.
    ConfirmAfterAck,
    /// Hidden changes of the chain before are unknown until all that ran then is visible.
    SettleFirst,
}

#[cfg(any(test, feature = "failpoints"))]
impl Rule {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::EveryChange,
        Self::Successor,
        Self::Identity,
        Self::LookAfterNonce,
        Self::WatermarkInOrder,
        Self::Hidden,
        Self::ResumeWithin,
        Self::SameWatch,
        Self::CompareAndSet,
        Self::ConfirmAfterAck,
        Self::SettleFirst,
    ];

    /// Returns the rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| format!("{rule:?}") == name)
    }
}

/// Rules in force: all of them, but for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    #[cfg(any(test, feature = "failpoints"))]
    disabled: &'static [Rule],
}

impl Rules {
    /// Returns whether a rule is in force.
    #[cfg(not(any(test, feature = "failpoints")))]
    #[must_use]
    #[allow(clippy::unused_self, reason = "the form of the tests has a switch")]
    pub const fn has(self, _: Rule) -> bool {
        true
    }

    /// Returns whether a rule is in force.
    #[cfg(any(test, feature = "failpoints"))]
    #[must_use]
    pub fn has(self, rule: Rule) -> bool {
        !self.disabled.contains(&rule)
    }

    /// Returns all rules but these.
    #[cfg(any(test, feature = "failpoints"))]
    #[must_use]
    pub fn without(disabled: &'static [Rule]) -> Self {
        Self { disabled }
    }
}
