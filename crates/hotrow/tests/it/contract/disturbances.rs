//! Disturbances of the service, of its database and of the connections between them, each for a
//! while, under load.

use std::time::Duration;

use rustix::process::Signal;

use crate::contract::board::Instance;
use crate::contract::networked::Networked;
use crate::contract::rows::Random;
use crate::contract::run::Trial;

/// One disturbance.
pub(crate) struct Disturbance<E: Networked> {
    pub(crate) name: &'static str,
    pub(crate) ends_the_feed: bool,
    /// Begins it; the instance is the one that it affects, if it affects one.
    pub(crate) begin: fn(&mut Trial<E>, Instance, &mut Random),
    pub(crate) end: fn(&mut Trial<E>, Instance),
}

impl<E: Networked> Disturbance<E> {
    /// A disturbance that ends with all delays, holds and refusals.
    pub(crate) fn calmed(
        name: &'static str,
        ends_the_feed: bool,
        begin: fn(&mut Trial<E>, Instance, &mut Random),
    ) -> Self {
        Self { name, ends_the_feed, begin, end: |run, _| run.database.clear_faults() }
    }

    /// Applies the disturbance and ends it.
    pub(crate) fn apply(&self, run: &mut Trial<E>, victim: Instance, random: &mut Random) {
        (self.begin)(run, victim, random);
        // Around the bound, so that some end before the policy applies and some do not.
        let bound_ms = run.plan.max_staleness.as_millis() as u64;
        run.pass(Duration::from_millis(200 + random.below(2 * bound_ms)));
        (self.end)(run, victim);
    }
}

/// Returns the disturbances of the connections between service and database.
pub(crate) fn of_connections<E: Networked>() -> Vec<Disturbance<E>> {
    vec![
        Disturbance::calmed("feed refused", !E::FEED_RESUMES, |run, _, _| {
            run.database.refuse_feed();
        }),
        // By less than the bound, and by more.
        Disturbance::calmed("stream late", false, |run, _, _| {
            run.database.delay_feed(run.plan.max_staleness / 5);
        }),
        Disturbance::calmed("stream very late", false, |run, _, _| {
            run.database.delay_feed(run.plan.max_staleness * 3);
            // Longer than the delay, so that something arrives late.
            run.pass(run.plan.max_staleness * 5 / 2);
        }),
        Disturbance::calmed("stream held", false, |run, _, _| run.database.hold_feed()),
        Disturbance::calmed("readers late", false, |run, _, random| {
            run.database.delay_reads(Duration::from_millis(1 + random.below(100)));
        }),
        Disturbance::calmed("readers held", false, |run, _, _| run.database.hold_reads()),
        Disturbance::calmed("all cut", !E::FEED_RESUMES, |run, _, _| run.database.cut()),
    ]
}

/// Returns the disturbances of the processes.
pub(crate) fn of_processes<E: Networked>() -> Vec<Disturbance<E>> {
    vec![
        Disturbance {
            name: "server paused",
            ends_the_feed: false,
            begin: |run, _, _| run.database.pause(),
            end: |run, _| run.database.resume(),
        },
        Disturbance {
            name: "service paused",
            ends_the_feed: false,
            begin: |run, victim, _| run.server(victim).stop(),
            end: |run, victim| run.server(victim).signal(Signal::CONT),
        },
        Disturbance {
            name: "server killed",
            ends_the_feed: !E::FEED_RESUMES,
            begin: |run, _, _| run.database.kill(),
            end: |run, _| run.restart(),
        },
    ]
}
