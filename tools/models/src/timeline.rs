//! Timeline of the first moments of a run: running, sleeping and waiting threads. The window is
//! divided into [`BUCKETS`] buckets; a lane shows its thread's predominant state per bucket, so the
//! record is bounded.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotrow_report::plot::{Lane, LaneSpan, LaneState};

/// Length of the window at full scale.
pub const WINDOW: Duration = Duration::from_millis(200);
/// Buckets of the window.
pub const BUCKETS: usize = 200;
/// Lanes that are recorded: threads, or positions in a batch.
pub const LANES_MAX: usize = 128;
/// Lanes that are shown.
pub const SHOWN_MAX: usize = 24;
/// Sleeps of requests without a thread that are recorded.
const ASLEEP_MAX: usize = 12;

/// Record of a run.
#[derive(Debug)]
pub(super) struct Timeline {
    began: Instant,
    window: Duration,
    lanes: Vec<Mutex<LaneRecord>>,
    asleep: Mutex<Vec<Lane>>,
}

#[derive(Debug, Default)]
struct LaneRecord {
    /// Nanoseconds per state and bucket; empty until the lane is used.
    buckets: Vec<[u64; 3]>,
    now: Option<(LaneState, u64)>,
}

impl Timeline {
    pub(super) fn new(began: Instant, window: Duration) -> Self {
        let lanes = (0..LANES_MAX).map(|_| Mutex::default()).collect();
        Self { began, window, lanes, asleep: Mutex::default() }
    }

    /// Sets the lane's state from `at` on.
    pub(super) fn enter(&self, lane: usize, state: LaneState, at: Instant) {
        let (Some(lane), at) = (self.lanes.get(lane), at.saturating_duration_since(self.began))
        else {
            return;
        };
        // After the window nothing is recorded; the last state before is drawn to its end.
        if at < self.window {
            let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            let at = at.as_nanos() as u64;
            lane.until(at, self.window);
            lane.now = Some((state, at));
        }
    }

    /// Ends the lane's current state at `at`.
    pub(super) fn leave(&self, lane: usize, at: Instant) {
        if let Some(lane) = self.lanes.get(lane) {
            let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            lane.until(at.saturating_duration_since(self.began).as_nanos() as u64, self.window);
            lane.now = None;
        }
    }

    /// Records the sleep of a request that occupied no thread.
    pub(super) fn slept(&self, id: u64, from: Instant, to: Instant) {
        let us = |at: Instant| {
            at.saturating_duration_since(self.began).min(self.window).as_micros() as u64
        };
        let (from_us, to_us) = (us(from), us(to));
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if from_us < self.window.as_micros() as u64 && asleep.len() < ASLEEP_MAX {
            let span = LaneSpan { state: LaneState::Sleeping, from_us, to_us };
            asleep.push(Lane { label: format!("request {id}"), spans: vec![span] });
        }
    }

    /// Returns the lanes; `end` is the end of the run.
    pub(super) fn rows(&self, lane: &str, end: Instant) -> Vec<Lane> {
        let end = end.saturating_duration_since(self.began).min(self.window);
        let mut rows: Vec<Lane> = Vec::new();
        for (number, recorded) in self.lanes.iter().enumerate() {
            let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
            recorded.until(end.as_nanos() as u64, self.window);
            let spans = recorded.spans(self.window);
            if !spans.is_empty() {
                rows.push(Lane { label: format!("{lane} {}", number + 1), spans });
            }
        }
        chosen(&mut rows);
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner).clone();
        asleep.sort_by_key(|row| row.spans.first().map(|span| span.from_us));
        rows.extend(asleep);
        rows
    }
}

/// Limits the lanes to those with the most sleep, the subject of the models.
fn chosen(rows: &mut Vec<Lane>) {
    let slept = |row: &Lane| {
        let asleep = row.spans.iter().filter(|span| span.state == LaneState::Sleeping);
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

impl LaneRecord {
    /// Accounts for the current state up to a time, in ns since the start of the run.
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

    fn spans(&self, window: Duration) -> Vec<LaneSpan> {
        let width_us = window.as_micros() as f64 / BUCKETS as f64;
        let mut spans: Vec<LaneSpan> = Vec::new();
        for (number, times) in self.buckets.iter().enumerate() {
            let states = [LaneState::Running, LaneState::Sleeping, LaneState::Waiting]
                .into_iter()
                .zip(times);
            let Some((state, _)) =
                states.filter(|(_, time)| **time > 0).max_by_key(|(_, time)| **time)
            else {
                continue;
            };
            let (from_us, to_us) =
                ((number as f64 * width_us) as u64, ((number + 1) as f64 * width_us) as u64);
            match spans.last_mut().filter(|last| last.state == state && last.to_us == from_us) {
                Some(last) => last.to_us = to_us,
                None => spans.push(LaneSpan { state, from_us, to_us }),
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
    fn a_lane_shows_its_predominant_state() {
        let began = Instant::now();
        let timeline = Timeline::new(began, WINDOW);
        let at = |us: u64| began + Duration::from_micros(us);
        timeline.enter(0, LaneState::Running, at(0));
        timeline.enter(0, LaneState::Waiting, at(100));
        timeline.enter(0, LaneState::Running, at(150));
        timeline.enter(0, LaneState::Sleeping, at(10_000));
        // Beyond the window and beyond the lanes nothing is recorded.
        timeline.enter(0, LaneState::Running, at(300_000));
        timeline.enter(LANES_MAX, LaneState::Running, at(0));
        timeline.enter(1, LaneState::Running, at(1_000));
        timeline.leave(1, at(3_000));
        timeline.leave(2, at(3_000));
        timeline.slept(7, at(5_000), at(900_000));
        timeline.slept(8, at(200_000), at(900_000));
        let span = |state, from_us, to_us| LaneSpan { state, from_us, to_us };
        let row = |label: &str, spans| Lane { label: label.to_owned(), spans };
        let slept =
            vec![span(LaneState::Running, 0, 10_000), span(LaneState::Sleeping, 10_000, 200_000)];
        let short = vec![span(LaneState::Running, 1_000, 3_000)];
        let asleep = vec![span(LaneState::Sleeping, 5_000, 200_000)];
        let want = [row("thread 1", slept), row("thread 2", short), row("request 7", asleep)];
        assert_eq!(timeline.rows("thread", at(1_000_000)), want);
    }

    #[test]
    fn lanes_with_sleep_are_shown_first() {
        let began = Instant::now();
        let timeline = Timeline::new(began, WINDOW);
        for lane in 0..LANES_MAX {
            timeline.enter(lane, LaneState::Waiting, began);
        }
        timeline.enter(99, LaneState::Sleeping, began);
        let rows = timeline.rows("thread", began + WINDOW);
        assert_eq!(
            (rows.len(), rows[0].label.as_str(), rows[23].label.as_str()),
            (24, "thread 1", "thread 100")
        );
    }

    #[test]
    fn the_record_is_bounded() {
        let began = Instant::now();
        let timeline = Timeline::new(began, WINDOW);
        for i in 0..10_000_u64 {
            let state = if i % 2 == 0 { LaneState::Running } else { LaneState::Waiting };
            timeline.enter(1, state, began + Duration::from_micros(i * 20));
            timeline.slept(i, began, began + WINDOW);
        }
        let rows = timeline.rows("thread", began + WINDOW);
        assert_eq!(rows.len(), 1 + ASLEEP_MAX);
        assert!(rows[0].spans.len() <= BUCKETS);
    }
}
