//! Questions of servers, and which of them a look at the database answers.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::message::{ANSWERS_MAX, Nonce};
use crate::rules::{Rule, Rules};

/// Most questions of one instance that wait. Beyond it the newest is replaced, because the oldest
/// is answered next.
const WAITING_MAX: usize = 64;
/// Time without a question after which an instance is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Questions that wait for an answer. All times are those of the relay's own clock.
#[derive(Debug, Default)]
pub struct Nonces {
    rules: Rules,
    instances: HashMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    asked_at: Nanos,
    questions: VecDeque<(u64, Nanos)>,
}

impl Nonces {
    /// Creates an empty set.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, instances: HashMap::new() }
    }

    /// Records a question. `arrived_at` may be later than its arrival, never earlier.
    pub fn ask(&mut self, nonce: Nonce, arrived_at: Nanos) {
        if !self.instances.contains_key(&nonce.instance) && self.instances.len() >= ANSWERS_MAX {
            self.instances.retain(|_, w| arrived_at.since(w.asked_at) < FORGOTTEN_AFTER);
            if self.instances.len() >= ANSWERS_MAX {
                return;
            }
        }
        let waiting = self
            .instances
            .entry(nonce.instance)
            .or_insert_with(|| Waiting { asked_at: arrived_at, questions: VecDeque::new() });
        waiting.asked_at = arrived_at;
        if waiting.questions.len() >= WAITING_MAX {
            waiting.questions.pop_back();
        }
        waiting.questions.push_back((nonce.sequence, arrived_at));
    }

    /// Removes and returns the newest question per instance that a look answers which began at
    /// `look_at`: those that arrived before.
    pub fn answered_by(&mut self, look_at: Nanos) -> Vec<Nonce> {
        let has_order = self.rules.has(Rule::LookAfterNonce);
        let mut answers = Vec::new();
        for (instance, waiting) in &mut self.instances {
            let mut newest = None;
            while let Some((sequence, arrived_at)) = waiting.questions.front() {
                if has_order && *arrived_at >= look_at {
                    break;
                }
                newest = Some(*sequence);
                waiting.questions.pop_front();
            }
            answers.extend(newest.map(|sequence| Nonce { instance: *instance, sequence }));
        }
        answers
    }

    /// Returns the instances that asked within the last minute.
    #[must_use]
    pub fn instances(&self, now: Nanos) -> usize {
        self.instances.values().filter(|w| now.since(w.asked_at) < FORGOTTEN_AFTER).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(instance: u64, sequence: u64) -> Nonce {
        Nonce { instance, sequence }
    }

    #[test]
    fn a_look_answers_what_came_before_it_began() {
        let mut nonces = Nonces::default();
        for (sequence, at) in [(1, 10), (2, 20), (3, 30)] {
            nonces.ask(nonce(7, sequence), Nanos(at));
        }
        assert_eq!(nonces.answered_by(Nanos(10)), [], "not one of the same moment");
        assert_eq!(nonces.answered_by(Nanos(21)), [nonce(7, 2)]);
        assert_eq!(nonces.answered_by(Nanos(21)), []);
        assert_eq!(nonces.answered_by(Nanos(31)), [nonce(7, 3)]);
    }

    #[test]
    fn questions_and_instances_are_bounded() {
        let mut nonces = Nonces::default();
        (1..1000).for_each(|n| nonces.ask(nonce(7, n), Nanos(n)));
        assert_eq!(nonces.instances[&7].questions.len(), WAITING_MAX);
        assert_eq!(nonces.answered_by(Nanos(6)), [nonce(7, 5)], "the oldest remain");
        let hour = 3_600_000_000_000;
        (0..5_000).for_each(|n| nonces.ask(nonce(n, 1), Nanos(hour)));
        assert!(nonces.instances.len() <= ANSWERS_MAX && nonces.instances.contains_key(&4_000));
        assert!(!nonces.instances.contains_key(&4_999), "no room until others are forgotten");
        nonces.ask(nonce(4_999, 1), Nanos(2 * hour));
        assert_eq!(nonces.instances(Nanos(2 * hour)), 1);
    }
}
