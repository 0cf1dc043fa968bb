//! Rules in force. Each has a switch for tests of processes: with a rule disabled, they must find
//! the fault. In a build of the program without the feature `failpoints` there are no switches.

use std::fmt;
#[cfg(not(any(test, feature = "failpoints")))]
use std::marker::PhantomData;

/// Rules in force: all of them, but for tests.
pub struct RuleSet<R: 'static> {
    #[cfg(any(test, feature = "failpoints"))]
    disabled: &'static [R],
    #[cfg(not(any(test, feature = "failpoints")))]
    rules: PhantomData<R>,
}

impl<R> Clone for RuleSet<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for RuleSet<R> {}

impl<R> Default for RuleSet<R> {
    fn default() -> Self {
        Self {
            #[cfg(any(test, feature = "failpoints"))]
            disabled: &[],
            #[cfg(not(any(test, feature = "failpoints")))]
            rules: PhantomData,
        }
    }
}

impl<R> fmt::Debug for RuleSet<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleSet").finish_non_exhaustive()
    }
}

#[cfg(not(any(test, feature = "failpoints")))]
impl<R> RuleSet<R> {
    /// Returns whether a rule is in force.
    #[must_use]
    #[allow(clippy::unused_self, reason = "the form of the tests has a switch")]
    #[allow(clippy::needless_pass_by_value, reason = "rules are plain names")]
    pub fn has(self, _: R) -> bool {
        true
    }
}

#[cfg(any(test, feature = "failpoints"))]
impl<R: PartialEq> RuleSet<R> {
    /// Returns whether a rule is in force.
    #[must_use]
    #[allow(clippy::needless_pass_by_value, reason = "rules are plain names")]
    pub fn has(self, rule: R) -> bool {
        !self.disabled.contains(&rule)
    }

    /// Returns all rules but these.
    #[must_use]
    pub fn without(disabled: &'static [R]) -> Self {
        Self { disabled }
    }
}
