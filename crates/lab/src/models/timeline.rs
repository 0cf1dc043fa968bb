//! Who ran, slept and waited in the first moments of a run. The window is cut into [`BUCKETS`] parts; a place in the picture
//! shows what its thread did for most of a part, so that the record is bounded whatever happens.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Length of the window at full scale.
pub const WINDOW: Duration = Duration::from_millis(200);
/// Parts of the window.
pub const BUCKETS: usize = 200;
/// Places that are recorded: threads, or positions in a batch.
pub const PLACES_MAX: usize = 128;
/// Places that are shown.
pub const SHOWN_MAX: usize = 24;
/// Requests without a thread whose sleep is recorded.
const ASLEEP_MAX: usize = 12;

/// What a place did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It had a request, and ran or wanted to.
    Running,
    /// Its request slept.
    Sleeping,
    /// It waited for work, for a slot, or for the others of its batch.
    Waiting,
}

/// A stretch in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// What was done.
    pub state: State,
    /// From when, in µs since the run began.
    pub from_us: u64,
    /// Until when.
    pub to_us: u64,
}

/// One line of the picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Whose.
    pub label: String,
    /// What it did, in order.
    pub spans: Vec<Span>,
}

/// The record of a run.
#[derive(Debug)]
pub(super) struct Timeline {
    began: Instant,
    window: Duration,
    places: Vec<Mutex<Place>>,
    asleep: Mutex<Vec<Row>>,
}

#[derive(Debug, Default)]
struct Place {
    /// Nanoseconds in each state, per part of the window; empty until the place is used.
    buckets: Vec<[u64; 3]>,
    now: Option<(State, u64)>,
}

impl Timeline {
    pub(super) fn new(began: Instant, window: Duration) -> Self {
        let places = (0..PLACES_MAX).map(|_| Mutex::default()).collect();
        Self { began, window, places, asleep: Mutex::default() }
    }

    /// From `at` on, the place is in this state.
    pub(super) fn enter(&self, place: usize, state: State, at: Instant) {
        let (Some(place), at) = (self.places.get(place), at.saturating_duration_since(self.began)) else { return };
        // After the window every run goes as if nobody watched; the last state before it is drawn to its end.
        if at < self.window {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            let at = at.as_nanos() as u64;
            place.until(at, self.window);
            place.now = Some((state, at));
        }
    }

    /// From `at` on, there is nobody at the place.
    pub(super) fn leave(&self, place: usize, at: Instant) {
        if let Some(place) = self.places.get(place) {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            place.until(at.saturating_duration_since(self.began).as_nanos() as u64, self.window);
            place.now = None;
        }
    }

    /// A request slept while no thread was its own.
    pub(super) fn slept(&self, id: u64, from: Instant, to: Instant) {
        let us = |at: Instant| at.saturating_duration_since(self.began).min(self.window).as_micros() as u64;
        let (from_us, to_us) = (us(from), us(to));
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if from_us < self.window.as_micros() as u64 && asleep.len() < ASLEEP_MAX {
            let span = Span { state: State::Sleeping, from_us, to_us };
            asleep.push(Row { label: format!("request {id}"), spans: vec![span] });
        }
    }

    /// The picture; `end` is when the run ended.
    pub(super) fn rows(&self, place: &str, end: Instant) -> Vec<Row> {
        let end = end.saturating_duration_since(self.began).min(self.window);
        let mut rows: Vec<Row> = Vec::new();
        for (number, recorded) in self.places.iter().enumerate() {
            let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
            recorded.until(end.as_nanos() as u64, self.window);
            let spans = recorded.spans(self.window);
            if !spans.is_empty() {
                rows.push(Row { label: format!("{place} {}", number + 1), spans });
            }
        }
        chosen(&mut rows);
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner).clone();
        asleep.sort_by_key(|row| row.spans.first().map(|span| span.from_us));
        rows.extend(asleep);
        rows
    }
}

/// Keeps as many rows as are shown: those with the most sleep, for sleep is what a model is about.
fn chosen(rows: &mut Vec<Row>) {
    let slept = |row: &Row| {
        let asleep = row.spans.iter().filter(|span| span.state == State::Sleeping);
        asleep.map(|span| span.to_us - span.from_us).sum::<u64>()
    };
    let mut ranked: Vec<(u64, usize)> = rows.iter().map(slept).zip(0..).collect();
    ranked.sort_by_key(|(slept, number)| (std::cmp::Reverse(*slept), *number));
    ranked.truncate(SHOWN_MAX);
    let mut number = 0;
    rows.retain(|_| {
        number += 1;
        ranked.iter().any(|(_, kept)| *kept == number - 1)
    });
}

impl Place {
    /// Counts the present state up to a moment, in ns since the run began.
    fn until(&mut self, to: u64, window: Duration) {
        let Some((state, from)) = self.now else { return };
        if self.buckets.is_empty() {
            self.buckets = vec![[0; 3]; BUCKETS];
        }
        let width = (window.as_nanos() as u64 / BUCKETS as u64).max(1);
        let mut at = from;
        while at < to {
            let bucket = (at / width) as usize;
            let Some(times) = self.buckets.get_mut(bucket) else { break };
            let next = ((bucket as u64 + 1) * width).min(to);
            times[state as usize] += next - at;
            at = next;
        }
        self.now = Some((state, to.max(from)));
    }

    fn spans(&self, window: Duration) -> Vec<Span> {
        let width_us = window.as_micros() as f64 / BUCKETS as f64;
        let mut spans: Vec<Span> = Vec::new();
        for (number, times) in self.buckets.iter().enumerate() {
            let states = [State::Running, State::Sleeping, State::Waiting].into_iter().zip(times);
            let Some((state, _)) = states.filter(|(_, time)| **time > 0).max_by_key(|(_, time)| **time) else {
                continue;
            };
            let (from_us, to_us) = ((number as f64 * width_us) as u64, ((number + 1) as f64 * width_us) as u64);
            match spans.last_mut().filter(|last| last.state == state && last.to_us == from_us) {
                Some(last) => last.to_us = to_us,
                None => spans.push(Span { state, from_us, to_us }),
            }
        }
        spans
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    #[test]
    fn a_place_shows_what_it_did_for_most_of_the_time() {
        let began = Instant::now();
        let timeline = Timeline::new(began, WINDOW);
        let at = |us: u64| began + Duration::from_micros(us);
        timeline.enter(0, State::Running, at(0));
        timeline.enter(0, State::Waiting, at(100));
        timeline.enter(0, State::Running, at(150));
        timeline.enter(0, State::Sleeping, at(10_000));
        // Beyond the window, and beyond the places: neither is recorded.
        timeline.enter(0, State::Running, at(300_000));
        timeline.enter(PLACES_MAX, State::Running, at(0));
        timeline.enter(1, State::Running, at(1_000));
        timeline.leave(1, at(3_000));
        timeline.leave(2, at(3_000));
        timeline.slept(7, at(5_000), at(900_000));
        timeline.slept(8, at(200_000), at(900_000));
        let span = |state, from_us, to_us| Span { state, from_us, to_us };
        let row = |label: &str, spans| Row { label: label.to_owned(), spans };
        let slept = vec![span(State::Running, 0, 10_000), span(State::Sleeping, 10_000, 200_000)];
        let short = vec![span(State::Running, 1_000, 3_000)];
        let asleep = vec![span(State::Sleeping, 5_000, 200_000)];
        let want = [row("thread 1", slept), row("thread 2", short), row("request 7", asleep)];
        assert_eq!(timeline.rows("thread", at(1_000_000)), want);
    }

    #[test]
    fn those_that_slept_are_shown_among_many() {
        let began = Instant::now();
        let timeline = Timeline::new(began, WINDOW);
        for place in 0..PLACES_MAX {
            timeline.enter(place, State::Waiting, began);
        }
        timeline.enter(99, State::Sleeping, began);
        let rows = timeline.rows("thread", began + WINDOW);
        assert_eq!((rows.len(), rows[0].label.as_str(), rows[23].label.as_str()), (24, "thread 1", "thread 100"));
    }

    #[test]
    fn the_record_is_bounded() {
        let began = Instant::now();
        let timeline = Timeline::new(began, WINDOW);
        for i in 0..10_000_u64 {
            let state = if i % 2 == 0 { State::Running } else { State::Waiting };
            timeline.enter(1, state, began + Duration::from_micros(i * 20));
            timeline.slept(i, began, began + WINDOW);
        }
        let rows = timeline.rows("thread", began + WINDOW);
        assert_eq!(rows.len(), 1 + ASLEEP_MAX);
        assert!(rows[0].spans.len() <= BUCKETS);
    }
}
