//! Traps: the problems that the contract's safeguards prevent, provoked while the checker runs.
//! With a safeguard disabled (feature `failpoints`, tests only) the checker finds a violation; with
//! all safeguards a trap is harmless. Each engine has a table of its traps.

use std::time::Duration;

use crate::verify::checker::{ALL_RULES, MODEST, assert_all_rules, assert_self_checked};
use crate::verify::stage::{Deployment, Stage, pass_while};

/// Duration of a test with all safeguards.
const TRIAL_DURATION: Duration = Duration::from_secs(6);
/// Time limit for finding a missing safeguard.
#[cfg(feature = "failpoints")]
const FOUND_WITHIN: Duration = Duration::from_secs(60);
/// Rules that an outdated response violates; the first one found is random. Not `committed`,
/// because every response was correct once; not `no_cache`, because such reads bypass the cache.
#[cfg(feature = "failpoints")]
const TOO_OLD: [&str; 10] = [
    "monotonic",
    "fresh",
    "age",
    "session",
    "own_write",
    "strict",
    "snapshot",
    "purged",
    "followed",
    "convergent",
];
/// Few keys, so that the same ones are written and read repeatedly.
const FEW_KEYS: [&str; 4] = ["--rate", "200", "--keys", "60"];

/// A problem that occurs without these safeguards.
pub(crate) struct Trap<S> {
    /// Names as in HOTROW_FAILPOINTS.
    #[cfg_attr(
        not(feature = "failpoints"),
        expect(dead_code, reason = "everything is in place in this build")
    )]
    pub(crate) safeguards: &'static str,
    /// Provokes the problem once and ends it.
    pub(crate) trigger: fn(&mut Deployment<S>),
}

/// Asserts that a service with all safeguards passes all traps.
#[track_caller]
pub(crate) fn assert_harmless<S: Stage>(traps: &[Trap<S>]) {
    let mut deployment = Deployment::<S>::alone(&[]);
    let duration = format!("{}s", TRIAL_DURATION.as_secs());
    let mut checker = deployment.check(&[&FEW_KEYS[..], &MODEST, &["-d", &duration]].concat());
    for trap in traps.iter().cycle() {
        if !checker.runs() {
            break;
        }
        (trap.trigger)(&mut deployment);
        pass_while(&mut checker, Duration::from_millis(50));
    }
    let report = checker.ended(TRIAL_DURATION).assert_passed(200, 50);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&deployment.one);
}

/// Asserts that the checker finds the problem without these safeguards.
#[cfg(feature = "failpoints")]
#[track_caller]
pub(crate) fn assert_found<S: Stage>(traps: &[Trap<S>], safeguards: &str) {
    assert_found_by(traps, safeguards, &TOO_OLD);
}

/// Asserts that the checker finds the problem by one of these rules.
#[cfg(feature = "failpoints")]
#[track_caller]
pub(crate) fn assert_found_by<S: Stage>(traps: &[Trap<S>], safeguards: &str, rules: &[&str]) {
    let trap = traps
        .iter()
        .find(|trap| trap.safeguards == safeguards)
        .expect("a trap for these safeguards");
    let mut deployment = Deployment::<S>::alone(&[("HOTROW_FAILPOINTS", safeguards)]);
    let duration = format!("{}s", FOUND_WITHIN.as_secs());
    let mut checker = deployment.check_at_work(&[&FEW_KEYS[..], &["-d", &duration]].concat());
    while checker.runs() {
        (trap.trigger)(&mut deployment);
    }
    let (rule, counterexample) = checker.ended(FOUND_WITHIN).assert_violated();
    assert!(rules.contains(&rule.as_str()), "{rule}: {counterexample}");
}
