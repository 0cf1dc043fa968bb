//! What the fixes of the contract are for, brought about while the checker runs: with a fix taken out by the test-only switch
//! (feature `sabotage`), the checker finds a violation; with all in place, the same does no harm. Which traps there are each
//! engine says, in a table.

use std::time::Duration;

use crate::checker::{ALL_RULES, assert_all_rules, assert_self_checked};
use crate::stage::{Stage, World, pass_while};

/// How long a sound service is tried.
const TRIED: Duration = Duration::from_secs(6);
/// How long a missing fix may stay unfound.
#[cfg(feature = "sabotage")]
const FOUND_WITHIN: Duration = Duration::from_secs(60);
/// What an answer breaks that is older than the contract allows: which of these shows first is chance. Not among them are
/// `committed`, for every answer was true once, and `no_cache`, for such a read never asks the cache.
#[cfg(feature = "sabotage")]
const TOO_OLD: [&str; 7] = ["monotonic", "fresh", "age", "session", "own_write", "purged", "convergent"];
/// Few keys, so that the same ones are written and read again and again.
const FEW_KEYS: [&str; 4] = ["--rate", "200", "--keys", "60"];

/// Something that does harm without these fixes.
pub(crate) struct Trap<S> {
    /// As HOTROW_SABOTAGE names them.
    #[cfg_attr(not(feature = "sabotage"), expect(dead_code, reason = "everything is in place in this build"))]
    pub(crate) fixes: &'static str,
    /// Brings it about once and lets it pass.
    pub(crate) spring: fn(&mut World<S>),
}

/// A service with all fixes holds, whatever trap is sprung.
#[track_caller]
pub(crate) fn assert_harmless<S: Stage>(traps: &[Trap<S>]) {
    let mut world = World::<S>::alone(&[]);
    let duration = format!("{}s", TRIED.as_secs());
    let mut checker = world.check(&[&FEW_KEYS[..], &["-d", &duration]].concat());
    for trap in traps.iter().cycle() {
        if !checker.runs() {
            break;
        }
        (trap.spring)(&mut world);
        pass_while(&mut checker, Duration::from_millis(50));
    }
    let report = checker.ended(TRIED).assert_kept(200, 50);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&world.one);
}

/// Without these fixes the trap does harm, and the checker finds it.
#[cfg(feature = "sabotage")]
#[track_caller]
pub(crate) fn assert_found<S: Stage>(traps: &[Trap<S>], fixes: &str) {
    let trap = traps.iter().find(|trap| trap.fixes == fixes).expect("a trap for these fixes");
    let mut world = World::<S>::alone(&[("HOTROW_SABOTAGE", fixes)]);
    let duration = format!("{}s", FOUND_WITHIN.as_secs());
    let mut checker = world.check_at_work(&[&FEW_KEYS[..], &["-d", &duration]].concat());
    while checker.runs() {
        (trap.spring)(&mut world);
    }
    let (rule, story) = checker.ended(FOUND_WITHIN).assert_broken();
    assert!(TOO_OLD.contains(&rule.as_str()), "{rule}: {story}");
}
