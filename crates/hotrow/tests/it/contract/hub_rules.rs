//! Rules of the change hub, one scenario each, over any engine that has one. Every scenario keeps
//! the contract; with a rule disabled in the relays or in the instance by a failpoint (feature
//! `failpoints`), the checker finds a violation, or a loss where there need be none.

use tempfile::TempDir;

use crate::contract::hidden::Hidden;
use crate::contract::hub::{BehindHub, Hubbed};
use crate::contract::run::Trial;
use crate::contract::safeguards::late_stream;
use crate::contract::scenario::{
    BEYOND, BOUND, KEY, OTHER, Scenario, ScenarioOutcome, assert_clean, config, first, stage,
};
use hotrow_testkit::harness::{SOON, await_until};
use hotrow_verify::observation::Outcome;

/// Lease of the relays: a relay that is killed is replaced after it.
pub(crate) const LEASE: &str = "1500ms";

/// Result of a scenario in which relays take over.
#[derive(Debug)]
pub(crate) struct TakeOver {
    /// The instance had a loss.
    pub(crate) is_loss: bool,
    /// Log of the instance, then those of the relays.
    log: String,
    pub(crate) outcome: ScenarioOutcome,
}

/// Starts relays with these failpoints, and an instance without.
pub(crate) fn start<E: BehindHub>(failpoints: &str) -> Scenario<Hubbed<E>> {
    let mut run = stage::<Hubbed<E>>();
    run.database.with_relays(failpoints, LEASE);
    Scenario::over(run, &[])
}

/// Starts relays and an instance with these failpoints, over a run that is there.
pub(crate) fn start_everywhere<E: BehindHub>(
    mut run: Trial<Hubbed<E>>,
    failpoints: &str,
) -> Scenario<Hubbed<E>> {
    run.database.with_relays(failpoints, LEASE);
    Scenario::over(run, &environment(failpoints))
}

fn environment(failpoints: &str) -> Vec<(&'static str, &str)> {
    let all = [("HOTROW_FAILPOINTS", failpoints)];
    all.into_iter().filter(|_| !failpoints.is_empty()).collect()
}

/// A nonce is answered by a look that began after it arrived: while the stream is late, so is the
/// answer.
pub(crate) fn look<E: BehindHub>(failpoint: &str) -> ScenarioOutcome {
    late_stream(start::<E>(failpoint))
}

/// Changes arrive, and before the watermark that answers for them.
pub(crate) fn changes<E: BehindHub>(failpoint: &str) -> ScenarioOutcome {
    let mut scenario = start::<E>(failpoint);
    for _ in 0..4 {
        scenario.run.change(KEY);
        scenario.run.pass(BOUND + BEYOND);
        for _ in 0..3 {
            scenario.get(KEY);
        }
    }
    scenario.end(Vec::new())
}

/// An instance joins while a delivered change is not visible to its reads.
pub(crate) fn join<E: BehindHub>(failpoint: &str) -> ScenarioOutcome {
    let mut scenario = start::<E>("");
    let before = scenario.delivered();
    let hidden = Hidden::begin(&scenario.run, KEY);
    scenario.await_delivery(before);
    let config = config(&scenario.run);
    let joined = scenario.run.serve(&config, &environment(failpoint));
    for _ in 0..20 {
        let seen = scenario.reader.get(joined, KEY).seen.clone();
        assert_eq!(seen, first(KEY), "the change is not visible yet");
    }
    hidden.end(&scenario.run);
    scenario.run.pass(BOUND + BEYOND);
    for _ in 0..5 {
        scenario.reader.get(joined, KEY);
    }
    scenario.end(Vec::new())
}

/// An instance starts after a take-over, while a change that the relay before delivered is not
/// visible to its reads.
pub(crate) fn join_after_take_over<E: BehindHub>(failpoint: &str) -> ScenarioOutcome {
    let mut scenario = start::<E>(failpoint);
    let before = scenario.delivered();
    let hidden = Hidden::begin(&scenario.run, KEY);
    scenario.await_delivery(before);
    // Until then the next relay would deliver it again.
    scenario.run.pass(BOUND);
    scenario.run.database.kill_leader();
    let config = config(&scenario.run);
    let joined = scenario.run.serve_unready(&config, &[]);
    // Long enough for a join, if there is one.
    scenario.repeat_for(BOUND * 3, |scenario| {
        scenario.reader.get(joined, KEY);
    });
    hidden.end(&scenario.run);
    scenario.run.await_readyz(joined, 200);
    scenario.run.pass(BOUND + BEYOND);
    for _ in 0..5 {
        scenario.reader.get(joined, KEY);
    }
    scenario.end(Vec::new())
}

/// The stream loses its end while the instance is apart from it, and the sequences that the
/// instance has seen are given again: to a change, among others.
pub(crate) fn rewound<E: BehindHub>(failpoints: &str) -> ScenarioOutcome {
    let mut run = stage::<Hubbed<E>>();
    run.database.with_relays("", LEASE);
    let mut scenario = Scenario::over(run, &environment(failpoints));
    let saved = scenario.run.database.restart_nats();
    // Another chain begins, which the instance follows.
    scenario.change_and_deliver(OTHER);
    scenario.run.await_readyz(scenario.instance, 200);
    await_until("a hit", SOON, || {
        scenario.reader.get(scenario.instance, KEY).outcome == Outcome::Hit
    });
    scenario.run.pass(BOUND);
    scenario.run.rewind(&saved, KEY);
    scenario.run.await_readyz(scenario.instance, 200);
    scenario.end(Vec::new())
}

impl<E: BehindHub> Trial<Hubbed<E>> {
    fn rewind(&mut self, saved: &TempDir, key: u32) {
        let end = self.database.begin_rewind(saved);
        self.change(key);
        self.database.end_rewind(end);
    }
}

/// The leader is stopped past its lease, with messages under way that arrive when another relay has
/// begun; then it is continued.
pub(crate) fn paused<E: BehindHub>(failpoint: &str) -> TakeOver {
    let mut run = stage::<Hubbed<E>>();
    let network = run.database.with_leader_apart(failpoint, LEASE);
    let mut scenario = Scenario::over(run, &[]);
    scenario.run.database.pause_leader(&network);
    scenario.change_and_deliver(KEY);
    scenario.run.database.wake_first(&network);
    // Time for the messages, and for what they cause.
    scenario.repeat_for(BOUND * 2, |scenario| {
        scenario.get(KEY);
    });
    scenario.run.await_readyz(scenario.instance, 200);
    scenario.run.change(KEY);
    end(scenario)
}

/// Ends all relays, lets something happen that changes [`KEY`], and starts a relay.
pub(crate) fn between<E: BehindHub>(
    mut scenario: Scenario<Hubbed<E>>,
    happens: impl FnOnce(&mut Trial<Hubbed<E>>),
) -> TakeOver {
    scenario.run.database.kill_relays();
    happens(&mut scenario.run);
    scenario.run.await_readyz(scenario.instance, 503);
    scenario.run.database.start_ready_relay();
    scenario.run.await_readyz(scenario.instance, 200);
    end(scenario)
}

/// Judges a scenario of a take-over.
pub(crate) fn end<E: BehindHub>(scenario: Scenario<Hubbed<E>>) -> TakeOver {
    let is_loss = scenario.run.losses(scenario.instance, None) > 0.0;
    let instance = scenario.run.server(scenario.instance).log();
    let log = format!("{instance}\n{}", scenario.run.database.relay_logs());
    TakeOver { is_loss, log, outcome: scenario.end(Vec::new()) }
}

/// Asserts that a take-over is a loss, and that no rule of the contract is broken.
#[track_caller]
pub(crate) fn assert_loss(TakeOver { is_loss, log, outcome }: TakeOver) {
    assert!(is_loss, "no loss\n{log}");
    assert_clean(outcome);
}

/// Asserts that a take-over is no loss, and that no rule of the contract is broken.
#[track_caller]
pub(crate) fn assert_continued(TakeOver { is_loss, log, outcome }: TakeOver) {
    assert!(!is_loss, "a loss where there need be none\n{log}");
    assert_clean(outcome);
}
