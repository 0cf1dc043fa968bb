//! The work of one request, as in workloads W14 to W18 of the published experiments, and the
//! expected totals of a run.
//!
//! x = 13·id; r = √(x² + 3.1415·sin(x·2/π)); the response receives `Resp: ` and r; then the request
//! sleeps or yields, depending on its id; then a text is appended and its letters `v` become `V`.

use std::collections::TryReserveError;
use std::hint::black_box;
use std::io::Write as _;
use std::time::Duration;

/// Length of the text.
pub const TEXT_BYTES: usize = 12_386;
/// Letters `v` in the text.
pub const TEXT_LETTERS: usize = 157;
/// Capacity of a response.
pub const RESPONSE_BYTES: usize = 16_384;

/// Constant of the published work, which is not π.
#[allow(clippy::approx_constant, reason = "it is not meant to be π")]
const AMPLITUDE: f64 = 3.1415;
/// A line without the letter `v`, repeated to make the text.
const LINE: &[u8] = b"Each request is read, its row is found, and the answer goes out at once.\n";

/// Pause of a request between its halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It continues at once.
    None,
    /// It yields to other requests.
    Yield,
    /// It waits, as for a disk or another service.
    Sleep(Duration),
}

/// Length of the sleeps relative to the published ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(f64);

impl Scale {
    /// Smallest scale; below it, sleeps are shorter than a timer's resolution.
    pub const MIN: f64 = 0.001;
    /// Scale of the published experiments.
    pub const FULL: Self = Self(1.0);

    /// Returns a scale from [`Scale::MIN`] to 1; `None` for any other number.
    #[must_use]
    pub fn new(scale: f64) -> Option<Self> {
        (Self::MIN..=1.0).contains(&scale).then_some(Self(scale))
    }

    /// Returns the scale as a number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    fn of_ms(self, ms: u64) -> Duration {
        Duration::from_nanos((ms as f64 * 1e6 * self.0).round() as u64)
    }

    /// Returns the pause of a request: multiples of 10,000 sleep 1 s, else of 1,000 sleep 88 ms,
    /// else of 500 sleep 10 ms, else of 2 yield.
    #[must_use]
    pub fn pause(self, id: u64) -> Pause {
        match id {
            _ if id.is_multiple_of(10_000) => Pause::Sleep(self.of_ms(1_000)),
            _ if id.is_multiple_of(1_000) => Pause::Sleep(self.of_ms(88)),
            _ if id.is_multiple_of(500) => Pause::Sleep(self.of_ms(10)),
            _ if id.is_multiple_of(2) => Pause::Yield,
            _ => Pause::None,
        }
    }
}

/// Returns the text of every response; always the same.
pub fn text() -> Vec<u8> {
    let mut text: Vec<u8> = LINE.iter().copied().cycle().take(TEXT_BYTES).collect();
    for letter in 0..TEXT_LETTERS {
        // In the middle of as many equal parts.
        text[(2 * letter + 1) * TEXT_BYTES / (2 * TEXT_LETTERS)] = b'v';
    }
    text
}

/// Buffer of a response, reused from one request to the next.
#[derive(Debug)]
pub struct Response(Vec<u8>);

impl Default for Response {
    fn default() -> Self {
        Self(Vec::with_capacity(RESPONSE_BYTES))
    }
}

impl Response {
    /// Allocates a buffer.
    ///
    /// # Errors
    /// Out of memory.
    pub fn try_new() -> Result<Self, TryReserveError> {
        let mut room = Vec::new();
        room.try_reserve_exact(RESPONSE_BYTES)?;
        Ok(Self(room))
    }

    /// Runs the first half of a request: computes r and writes it.
    pub fn begin(&mut self, id: u64) -> f64 {
        let x = black_box(13.0 * id as f64);
        let value = (x * x + AMPLITUDE * (x * 2.0 / std::f64::consts::PI).sin()).sqrt();
        self.0.clear();
        // Writing to a vector cannot fail, and the longest r of a 64-bit id has 28 characters.
        let _ = write!(self.0, "Resp: {value:.6}");
        value
    }

    /// Runs the second half: copies the text and replaces its letters; returns their number.
    pub fn end(&mut self, text: &[u8]) -> u64 {
        let begin = self.0.len();
        self.0.extend_from_slice(text);
        let mut letters = 0;
        // In parts whose count fits in a byte, so that the compiler vectorises the comparison of 16
        // letters.
        for part in self.0[begin..].chunks_mut(usize::from(u8::MAX)) {
            let mut found = 0_u8;
            for byte in part {
                found += u8::from(*byte == b'v');
                *byte = if *byte == b'v' { b'V' } else { *byte };
            }
            letters += u64::from(found);
        }
        // The response is never sent; this keeps the compiler from removing the work.
        black_box(self.0.as_slice());
        letters
    }
}

/// Expected totals of a run, computed from the ids by formulas, without doing the work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Requests.
    pub requests: u64,
    /// Yielding requests.
    pub yields: u64,
    /// Sleeping requests.
    pub sleeps: u64,
    /// Sum of all sleeps, scaled.
    pub slept: Duration,
    /// Replaced letters.
    pub letters: u64,
    /// Sum of r.
    pub sum: f64,
    /// Tolerance of [`Expected::sum`]; a missing request exceeds it, up to 10⁶ requests.
    pub sum_tolerance: f64,
}

impl Expected {
    /// Returns the totals for the ids 0 to `requests` − 1.
    #[must_use]
    pub fn of(requests: u64, scale: Scale) -> Self {
        // Multiples of n among the ids; those of 10,000 are also multiples of 1,000, and so on.
        let multiples = |n: u64| requests.div_ceil(n);
        let long = multiples(10_000);
        let middle = multiples(1_000) - long;
        let short = multiples(500) - long - middle;
        let times =
            |count: u64, ms: u64| Duration::from_nanos(scale.of_ms(ms).as_nanos() as u64 * count);
        let (sum, sum_tolerance) = sum(requests);
        Self {
            requests,
            yields: multiples(2) - multiples(500),
            sleeps: multiples(500),
            slept: times(long, 1_000) + times(middle, 88) + times(short, 10),
            letters: requests * TEXT_LETTERS as u64,
            sum,
            sum_tolerance,
        }
    }
}

/// Returns the sum of r over n ids and its error bound. √(x² + a·sin θi) = x + a·sin θi / 2x − …,
/// with x = 13·i and θ = 26/π. The first terms sum to 13·n(n−1)/2. The second ones are the Fourier
/// series Σ sin(θi)/i = (π − θ)/2 for 0 < θ < 2π, truncated at n with an error of at most
/// 1/(n·sin(θ/2)). The third ones together are below a² Σ 1/i³ / (8·13³) < 0.001. Adding n numbers
/// in any order errs by less than n times the rounding of the sum.
fn sum(n: u64) -> (f64, f64) {
    use std::f64::consts::{PI, TAU};
    let (a, theta) = (AMPLITUDE, (26.0 / PI) % TAU);
    let n = n as f64;
    let first = 13.0 * n * (n - 1.0) / 2.0;
    let second = a / 26.0 * (PI - theta) / 2.0;
    let cut = a / 26.0 / (n.max(1.0) * (theta / 2.0).sin());
    (first + second, 0.001 + cut + first * 1e-12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_published_length_and_letters() {
        let text = text();
        assert_eq!(
            (text.len(), text.iter().filter(|byte| **byte == b'v').count()),
            (TEXT_BYTES, TEXT_LETTERS)
        );
        assert_eq!(text, super::text());
        assert!(text.is_ascii() && !text.contains(&b'V'));
    }

    #[test]
    fn the_full_work_has_the_published_check_values() {
        let expected = Expected::of(100_000, Scale::FULL);
        assert_eq!((expected.requests, expected.yields, expected.sleeps), (100_000, 49_800, 200));
        assert_eq!(expected.slept, Duration::from_millis(18_920));
        assert!((expected.sum / 6.499_94e10 - 1.0).abs() < 1e-6, "{}", expected.sum);
        let tenth = Expected::of(100_000, Scale::new(0.1).unwrap());
        assert_eq!((tenth.slept, tenth.yields), (Duration::from_millis(1_892), 49_800));
        assert_eq!([0.0, 0.0009, 1.1, f64::NAN, -1.0].map(Scale::new), [None; 5]);
    }

    #[test]
    fn the_formulas_agree_with_the_work() {
        let scale = Scale::new(0.5).unwrap();
        let (text, mut response) = (text(), Response::default());
        let (mut sum, mut yields, mut slept, mut letters) = (0.0, 0, Duration::ZERO, 0);
        for id in 0..2_100 {
            sum += response.begin(id);
            letters += response.end(&text);
            match scale.pause(id) {
                Pause::None => {}
                Pause::Yield => yields += 1,
                Pause::Sleep(length) => slept += length,
            }
            let expected = Expected::of(id + 1, scale);
            assert_eq!(
                (expected.yields, expected.slept, expected.letters),
                (yields, slept, letters),
                "{id}"
            );
            assert!(
                (expected.sum - sum).abs() <= expected.sum_tolerance,
                "{id}: {sum} and {expected:?}"
            );
        }
        let full = Expected::of(100_000, Scale::FULL);
        let sum: f64 = (0..100_000).map(|id| response.begin(id)).sum();
        assert!((full.sum - sum).abs() <= full.sum_tolerance, "{sum} and {full:?}");
        assert!(full.sum_tolerance < 6.5, "one missing request must be seen");
    }

    #[test]
    fn a_response_has_the_expected_content() {
        let mut response = Response::default();
        assert!((response.begin(1) - 13.0).abs() < 0.5);
        assert!(
            response.0.starts_with(b"Resp: 1") && response.0.len() == "Resp: 13.000000".len(),
            "{response:?}"
        );
        assert_eq!(response.end(b"vivid v"), 3);
        assert_eq!(Response::default().end(&[b'v'; 1_000]), 1_000);
        assert!(response.0.ends_with(b"ViVid V"), "{response:?}");
        response.begin(u64::MAX);
        response.end(&text());
        assert!(response.0.len() < RESPONSE_BYTES && response.0.capacity() == RESPONSE_BYTES);
    }
}
