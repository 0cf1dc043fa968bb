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
/// Time without a question after which an instance no longer counts.
const COUNTED_FOR: Duration = Duration::from_secs(60);

/// Instances with a second question that keep their places while room for a new one is sought.
const KEPT_MAX: usize = 8;

/// Questions that wait for an answer. All times are those of the relay's own clock.
///
/// At most [`ANSWERS_MAX`] instances have a place. A new one takes the place that was given first,
/// of an instance that has not asked again since: invented instances lock out no other.
#[derive(Debug, Default)]
pub struct Nonces {
    rules: Rules,
    places: HashMap<u64, InstancePlace>,
    /// Instances in the order in which new ones take their places.
    order: VecDeque<u64>,
}

#[derive(Debug)]
struct InstancePlace {
    asked_at: Nanos,
    has_asked_again: bool,
    questions: VecDeque<(u128, Nanos)>,
}

impl Nonces {
    /// Creates an empty set.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Records a question. `arrived_at` may be later than its arrival, never earlier.
    pub fn ask(&mut self, nonce: Nonce, arrived_at: Nanos) {
        let question = (nonce.question, arrived_at);
        if let Some(place) = self.places.get_mut(&nonce.instance) {
            place.asked_at = arrived_at;
            place.has_asked_again = true;
            if place.questions.len() >= WAITING_MAX {
                place.questions.pop_back();
            }
            return place.questions.push_back(question);
        }
        if self.places.len() >= ANSWERS_MAX {
            self.make_room();
        }
        let questions = VecDeque::from([question]);
        let place = InstancePlace { asked_at: arrived_at, has_asked_again: false, questions };
        self.places.insert(nonce.instance, place);
        self.order.push_back(nonce.instance);
    }

    fn make_room(&mut self) {
        for kept in 0.. {
            let Some(instance) = self.order.pop_front() else { return };
            match self.places.get_mut(&instance) {
                Some(place) if place.has_asked_again && kept < KEPT_MAX => {
                    place.has_asked_again = false;
                    self.order.push_back(instance);
                }
                _ => {
                    self.places.remove(&instance);
                    return;
                }
            }
        }
    }

    /// Removes and returns the newest question per instance that a look answers which began at
    /// `look_at`: those that arrived before.
    pub fn answered_by(&mut self, look_at: Nanos) -> Vec<Nonce> {
        let has_order = self.rules.has(Rule::LookAfterNonce);
        let mut answers = Vec::new();
        for (instance, place) in &mut self.places {
            let mut newest = None;
            while let Some((question, arrived_at)) = place.questions.front() {
                if has_order && *arrived_at >= look_at {
                    break;
                }
                newest = Some(*question);
                place.questions.pop_front();
            }
            answers.extend(newest.map(|question| Nonce { instance: *instance, question }));
        }
        answers
    }

    /// Returns the instances that asked within the last minute.
    pub fn instances(&self, now: Nanos) -> usize {
        self.places.values().filter(|place| now.since(place.asked_at) < COUNTED_FOR).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(instance: u64, question: u128) -> Nonce {
        Nonce { instance, question }
    }

    #[test]
    fn a_look_answers_what_came_before_it_began() {
        let mut nonces = Nonces::default();
        for (question, at) in [(1, 10), (2, 20), (3, 30)] {
            nonces.ask(nonce(7, question), Nanos(at));
        }
        assert_eq!(nonces.answered_by(Nanos(10)), [], "not one of the same moment");
        assert_eq!(nonces.answered_by(Nanos(21)), [nonce(7, 2)]);
        assert_eq!(nonces.answered_by(Nanos(21)), []);
        assert_eq!(nonces.answered_by(Nanos(31)), [nonce(7, 3)]);
    }

    #[test]
    fn questions_and_instances_are_bounded() {
        let mut nonces = Nonces::default();
        (1..1000).for_each(|n| nonces.ask(nonce(7, n.into()), Nanos(n)));
        assert_eq!(nonces.places[&7].questions.len(), WAITING_MAX);
        assert_eq!(nonces.answered_by(Nanos(6)), [nonce(7, 5)], "the oldest remain");
    }

    #[test]
    fn invented_instances_lock_out_nobody() {
        let mut nonces = Nonces::default();
        // As many places as there are, all taken, and then a flood beside two real instances.
        for n in 0..10 * ANSWERS_MAX as u64 {
            nonces.ask(nonce(1_000 + n, 1), Nanos(n));
            if n % 1_000 == 0 {
                nonces.ask(nonce(7, n.into()), Nanos(n));
            }
        }
        assert_eq!((nonces.places.len(), nonces.order.len()), (ANSWERS_MAX, ANSWERS_MAX));
        nonces.ask(nonce(8, 2), Nanos(50_000));
        let answers = nonces.answered_by(Nanos(60_000));
        assert!(answers.contains(&nonce(7, 40_000)), "one that goes on asking keeps its place");
        assert!(answers.contains(&nonce(8, 2)), "a new one has a place at once");
        assert_eq!(nonces.places[&7].questions.len(), 0);
        assert_eq!(nonces.instances(Nanos(3_600_000_000_000)), 0);
    }
}
