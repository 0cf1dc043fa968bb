//! Faults and traps of engines behind a network, and the tests that run over each of them.

use std::time::Duration;

use crate::backend::Backend;
use crate::verify::faults::{Fault, assert_writers_were_interrupted, run_faults};
use crate::verify::stage::{Deployment, Stage, wait_for};
use crate::verify::traps::{Trap, assert_harmless};
#[cfg(feature = "failpoints")]
use crate::verify::traps::{assert_found, assert_found_by};

/// Delay of reads, long enough that rows change in between.
const READS_DELAY: Duration = Duration::from_millis(50);
/// Delay of the feed, longer than the bound.
const FEED_DELAY: Duration = Duration::from_millis(1500);

/// Makes the tests of this module for one stage. The attributes given apply to the demonstrations
/// that missing safeguards are found: one engine behind a network shows them in short runs.
macro_rules! network_tests {
    ($(#[$attribute:meta])* $stage:ty) => {
        use $crate::verify::network;

        tests! {
            $stage:
            $(#[$attribute])*
            network::traps_are_harmless_with_all_safeguards,
            #[cfg(feature = "failpoints")]
            $(#[$attribute])*
            network::leases_and_the_fence_are_missed,
            #[cfg(feature = "failpoints")]
            $(#[$attribute])*
            network::the_fence_is_missed,
            #[cfg(feature = "failpoints")]
            $(#[$attribute])*
            network::the_epoch_is_missed,
            #[cfg(feature = "failpoints")]
            $(#[$attribute])*
            network::the_time_of_the_probe_is_missed,
            #[cfg(feature = "failpoints")]
            $(#[$attribute])*
            network::rules_of_followers_are_missed,
            #[ignore = "long: a minute of faults of every kind"]
            network::a_sound_service_passes_under_every_fault,
        }
    };
}
pub(crate) use network_tests;

/// A stage behind a network.
pub(crate) trait NetworkStage: Stage + Backend {
    /// Returns the faults of this engine alone.
    fn own_faults() -> Vec<Fault<Self>>;
}

/// Ends delays, holds and refusals.
pub(crate) fn restore_normal<S: NetworkStage>(deployment: &mut Deployment<S>) {
    deployment.stage.clear_faults();
}

/// Returns the faults of all engines behind a network.
pub(crate) fn common_faults<S: NetworkStage>() -> [Fault<S>; 8] {
    [
        Fault {
            name: "database killed",
            is_a_loss: !S::FEED_RESUMES,
            // Writers are interrupted during their commits.
            begin: |deployment| deployment.stage.kill(),
            end: |deployment| deployment.stage.restart(),
        },
        Fault {
            name: "database stopped",
            is_a_loss: false,
            begin: |deployment| deployment.stage.pause(),
            end: |deployment| deployment.stage.resume(),
        },
        Fault {
            name: "connections cut",
            is_a_loss: !S::FEED_RESUMES,
            begin: |deployment| deployment.stage.cut(),
            end: restore_normal,
        },
        Fault {
            name: "reads delayed",
            is_a_loss: false,
            begin: |deployment| deployment.stage.delay_reads(READS_DELAY),
            end: restore_normal,
        },
        Fault {
            name: "reads held",
            is_a_loss: false,
            begin: |deployment| deployment.stage.hold_reads(),
            end: restore_normal,
        },
        Fault {
            name: "feed delayed",
            is_a_loss: false,
            begin: |deployment| deployment.stage.delay_feed(FEED_DELAY),
            end: restore_normal,
        },
        Fault {
            name: "feed held",
            is_a_loss: false,
            begin: |deployment| deployment.stage.hold_feed(),
            end: restore_normal,
        },
        Fault {
            name: "feed refused and its position lost",
            is_a_loss: true,
            begin: |deployment| deployment.stage.refuse_feed(),
            end: |deployment| {
                deployment.stage.prune_log();
                deployment.stage.clear_faults();
            },
        },
    ]
}

fn traps<S: NetworkStage>() -> [Trap<S>; 6] {
    [
        Trap { safeguards: "lease,fence", trigger: late_answers },
        Trap { safeguards: "fence", trigger: hidden_commits },
        Trap { safeguards: "epoch", trigger: changes_without_a_feed },
        Trap { safeguards: "probe", trigger: late_stream },
        Trap { safeguards: "follow-proof", trigger: hidden_commits },
        Trap { safeguards: "follow-beginning", trigger: changes_without_a_feed },
    ]
}

/// Race A: rows are read, then changed, and only then arrive.
fn late_answers<S: NetworkStage>(deployment: &mut Deployment<S>) {
    deployment.stage.delay_reads(Duration::from_millis(5));
    wait_for(Duration::from_millis(500));
    deployment.stage.clear_faults();
}

/// Race B: commits are delivered and stay invisible.
fn hidden_commits<S: NetworkStage>(deployment: &mut Deployment<S>) {
    deployment.stage.hide_commits();
    wait_for(Duration::from_millis(50));
    deployment.stage.show_commits();
    wait_for(Duration::from_millis(50));
}

/// Loss: no feed delivers the changes in between. Shorter than the bound, so entries are still
/// fresh.
fn changes_without_a_feed<S: NetworkStage>(deployment: &mut Deployment<S>) {
    deployment.stage.refuse_feed();
    wait_for(Duration::from_millis(100));
    deployment.stage.prune_log();
    deployment.stage.clear_faults();
    deployment.one.await_ready();
    wait_for(Duration::from_millis(200));
}

/// Staleness: the stream is steadily later than the bound.
fn late_stream<S: NetworkStage>(deployment: &mut Deployment<S>) {
    deployment.stage.delay_feed(FEED_DELAY);
    wait_for(Duration::from_millis(4000));
    deployment.stage.clear_faults();
}

pub(crate) fn traps_are_harmless_with_all_safeguards<S: NetworkStage>() {
    assert_harmless(&traps::<S>());
}

#[cfg(feature = "failpoints")]
pub(crate) fn leases_and_the_fence_are_missed<S: NetworkStage>() {
    assert_found(&traps::<S>(), "lease,fence");
}

#[cfg(feature = "failpoints")]
pub(crate) fn the_fence_is_missed<S: NetworkStage>() {
    assert_found(&traps::<S>(), "fence");
}

#[cfg(feature = "failpoints")]
pub(crate) fn the_epoch_is_missed<S: NetworkStage>() {
    assert_found(&traps::<S>(), "epoch");
}

#[cfg(feature = "failpoints")]
pub(crate) fn the_time_of_the_probe_is_missed<S: NetworkStage>() {
    assert_found(&traps::<S>(), "probe");
}

/// The order of its events alone shows a missing beginning.
#[cfg(feature = "failpoints")]
pub(crate) fn rules_of_followers_are_missed<S: NetworkStage>() {
    assert_found_by(&traps::<S>(), "follow-proof", &["followed"]);
    assert_found_by(&traps::<S>(), "follow-beginning", &["followed", "committed"]);
}

pub(crate) fn a_sound_service_passes_under_every_fault<S: NetworkStage>() {
    let mut faults = S::own_faults();
    faults.extend(common_faults());
    assert_writers_were_interrupted(&run_faults(&faults));
}
