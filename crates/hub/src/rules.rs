//! The rules that make a hub correct, each with a switch for tests: the model disables one, and
//! must find the fault. In a build of the program there are no switches.

/// Rule of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
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

/// Rules in force: all of them, but for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    #[cfg(test)]
    pub(crate) disabled: Option<Rule>,
}

impl Rules {
    /// Returns whether a rule is in force.
    #[cfg(not(test))]
    #[must_use]
    #[allow(clippy::unused_self, reason = "the form of the tests has a switch")]
    pub const fn has(self, _: Rule) -> bool {
        true
    }

    /// Returns whether a rule is in force.
    #[cfg(test)]
    #[must_use]
    pub fn has(self, rule: Rule) -> bool {
        self.disabled != Some(rule)
    }
}
