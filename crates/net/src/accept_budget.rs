//! Accept budget of a worker: how many connections it accepts before the open ones get their turn.
//! Decisions only; the time is passed in.
//!
//! A new connection costs far more than its accept: its first request is read, answered, and the
//! connection closed. A worker that accepts everything the kernel holds divides its time among all
//! of them, and established clients wait for thousands of others. So the budget measures how long
//! the open connections take for one turn each. Within its target, more is accepted per turn; above
//! it, half as much. A worker that is busy with open connections alone still accepts one per
//! millisecond of serving. Connections that are not accepted wait in the kernel.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Most connections accepted in one turn.
pub(crate) const ACCEPTS_PER_TURN_MAX: u32 = 32;
/// Longest time for which one turn accepts.
pub(crate) const ACCEPT_TIME_PER_TURN_MAX: Duration = Duration::from_micros(500);
/// Time of the open connections between two turns of accepting above which less is accepted.
pub(crate) const SERVE_TIME_TARGET: Duration = Duration::from_millis(2);

/// Time of serving that permits one more accept, however long the turns are: a busy worker still
/// admits new clients.
pub(crate) const SERVE_TIME_PER_ACCEPT: Duration = Duration::from_millis(1);

/// Accept budget of one worker.
#[derive(Debug)]
pub struct AcceptBudget {
    per_turn: u32,
    left: u32,
    began_at: Nanos,
}

impl AcceptBudget {
    /// Creates a full budget.
    pub fn new(now: Nanos) -> Self {
        Self { per_turn: ACCEPTS_PER_TURN_MAX, left: ACCEPTS_PER_TURN_MAX, began_at: now }
    }

    /// Records an accepted connection. Returns whether another may be accepted in this turn.
    pub fn accepted(&mut self, now: Nanos) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0 && now.since(self.began_at) < ACCEPT_TIME_PER_TURN_MAX
    }

    /// Begins the next turn of accepting after the open connections had theirs, which took
    /// `served`.
    pub fn next_turn(&mut self, served: Duration, now: Nanos) {
        self.per_turn = match served > SERVE_TIME_TARGET {
            true => (self.per_turn / 2).max(1),
            false => (self.per_turn + 1).min(ACCEPTS_PER_TURN_MAX),
        };
        let earned = served.as_nanos() / SERVE_TIME_PER_ACCEPT.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX).min(ACCEPTS_PER_TURN_MAX);
        self.left = self.per_turn.max(earned);
        self.began_at = now;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const START: Nanos = Nanos(1_000_000_000);

    fn us(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    /// Returns the accepts of one turn in which each takes that long.
    fn turn(budget: &mut AcceptBudget, each: Duration) -> u32 {
        let mut accepts = 1;
        let mut now = budget.began_at.after(each);
        while budget.accepted(now) {
            accepts += 1;
            now = now.after(each);
        }
        accepts
    }

    #[test]
    fn a_turn_ends_by_number_or_by_time() {
        let mut budget = AcceptBudget::new(START);
        assert_eq!(turn(&mut budget, us(1)), ACCEPTS_PER_TURN_MAX);
        budget.next_turn(us(10), START);
        assert_eq!(turn(&mut budget, us(100)), 5, "half a millisecond is over");
        budget.next_turn(us(10), START);
        assert_eq!(turn(&mut budget, us(10_000)), 1, "one is always accepted");
    }

    #[test]
    fn the_budget_halves_above_the_target_and_grows_by_one_below() {
        let mut budget = AcceptBudget::new(START);
        let mut sizes = Vec::new();
        for served in [2_001, 3_000, 5_000, 9_000, 90_000, 90_000, 2_000, 0, 0] {
            budget.next_turn(us(served), START);
            sizes.push(budget.per_turn);
        }
        assert_eq!(sizes, [16, 8, 4, 2, 1, 1, 2, 3, 4]);
        (0..99).for_each(|_| budget.next_turn(us(1), START));
        assert_eq!(budget.per_turn, ACCEPTS_PER_TURN_MAX);
    }

    /// Simulates a worker with an unlimited supply of new connections, each of which takes three
    /// turns of 20 µs, beside `established` connections that are ready in each turn, at 10 µs.
    /// Returns the lengths of the turns, and the number of accepted connections.
    fn simulate(established: u64, turns: usize, is_budgeted: bool) -> (Vec<Duration>, u64) {
        let mut budget = AcceptBudget::new(START);
        let mut now = START;
        let mut accepted = 0;
        let mut lengths = Vec::new();
        // New connections, by their remaining turns.
        let mut young: VecDeque<u64> = VecDeque::from([0, 0, 0]);
        for _ in 0..turns {
            let new = if is_budgeted { u64::from(turn(&mut budget, us(10))) } else { 500 };
            accepted += new;
            young.pop_back();
            young.push_front(new);
            let served = us(established * 10 + young.iter().sum::<u64>() * 20);
            now = now.after(us(new * 10)).after(served);
            budget.next_turn(served, now);
            lengths.push(served + us(new * 10));
        }
        (lengths, accepted)
    }

    #[test]
    fn a_flood_of_connections_does_not_lengthen_the_turns_of_open_ones() {
        for established in [0, 10, 100, 150] {
            let (lengths, accepted) = simulate(established, 2_000, true);
            let longest = lengths[100..].iter().max().unwrap();
            assert!(*longest < SERVE_TIME_TARGET * 2, "{established}: {longest:?}");
            assert!(accepted > 2_000, "{established}: it goes on accepting: {accepted}");
        }
        let (lengths, accepted) = simulate(1_000, 2_000, true);
        let took: Duration = lengths.iter().sum();
        assert!(
            took < us(2_000 * 10_000) * 11 / 10,
            "new ones take a tenth of a busy worker: {took:?}"
        );
        assert!(accepted > 900 * took.as_secs(), "and are not shut out: {accepted} in {took:?}");
        let (lengths, _) = simulate(100, 2_000, false);
        assert!(
            lengths[100..].iter().all(|length| *length > SERVE_TIME_TARGET * 10),
            "what it is for"
        );
    }
}
