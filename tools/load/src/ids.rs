//! Ids that replace `{id}` in the URL.

use std::str::FromStr;
use std::sync::Arc;

use crate::random::Random;
use crate::request::error::RequestError;

/// A set of ids.
#[derive(Clone, Debug)]
pub enum Ids {
    /// Whole numbers, both bounds included.
    Range {
        /// The first id.
        from: u64,
        /// The last id.
        to: u64,
    },
    /// Texts, percent-encoded where needed.
    List(Arc<[Box<str>]>),
}

/// The distribution from which ids are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Every id is equally likely.
    Uniform,
    /// Zipf: the k-th id has a probability proportional to k to the power of minus this exponent
    /// (few hot ids, a long tail).
    Zipf(f64),
    /// In order, repeated. Threads take turns.
    Sequential,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// Above this exponent nearly every draw is the first id.
        const EXPONENT_MAX: f64 = 10.0;
        let exponent = match text {
            "uniform" => return Ok(Self::Uniform),
            "sequential" => return Ok(Self::Sequential),
            _ => text.strip_prefix("zipf:").and_then(|exponent| exponent.parse().ok()),
        };
        exponent
            .filter(|exponent| (0.0..=EXPONENT_MAX).contains(exponent))
            .map(Self::Zipf)
            .ok_or_else(|| {
                format!(
                    "must be uniform, sequential, or zipf:S with S between 0 and {EXPONENT_MAX}, \
                     as in zipf:0.99"
                )
            })
    }
}

impl Ids {
    /// Returns the number of ids.
    pub fn count(&self) -> u64 {
        match self {
            Self::Range { from, to } => (to - from).saturating_add(1),
            Self::List(list) => list.len() as u64,
        }
    }

    /// Returns a range, both bounds included.
    ///
    /// # Errors
    /// Fails when `to` is below `from`.
    pub fn range(from: u64, to: u64) -> Result<Self, RequestError> {
        if to < from {
            Err(RequestError::EmptyRange { from, to })
        } else {
            Ok(Self::Range { from, to })
        }
    }

    /// Returns a list of texts, each already valid in a URL (percent-encoded where needed).
    ///
    /// # Errors
    /// Fails when the list is empty, or a text has a character that is invalid in a URL.
    pub fn list(ids: Vec<String>) -> Result<Self, RequestError> {
        if ids.is_empty() {
            return Err(RequestError::NoIds);
        }
        if let Some((i, id)) =
            ids.iter().enumerate().find(|(_, id)| !id.bytes().all(|b| b.is_ascii_graphic()))
        {
            return Err(RequestError::BadId { line: i + 1, id: id.clone() });
        }
        Ok(Self::List(ids.into_iter().map(String::into_boxed_str).collect()))
    }
}

/// Draws the ids of one thread.
#[derive(Clone, Debug)]
pub(crate) struct IdSampler {
    ids: Ids,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Uniform(Random),
    Zipf(Random, Zipf),
    Sequential { next: u64, step: u64 },
}

impl IdSampler {
    /// Returns the sampler of thread `index` of `threads`.
    pub(crate) fn new(ids: &Ids, pick: Distribution, seed: u64, index: u32, threads: u32) -> Self {
        let count = ids.count();
        let random = Random::new(seed, u64::from(index));
        let rule = match pick {
            Distribution::Uniform => Rule::Uniform(random),
            Distribution::Zipf(exponent) => Rule::Zipf(random, Zipf::new(count, exponent)),
            Distribution::Sequential => Rule::Sequential {
                next: u64::from(index) % count,
                step: u64::from(threads) % count,
            },
        };
        Self { ids: ids.clone(), rule }
    }

    /// Appends the next id.
    #[inline]
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>) {
        let count = self.ids.count();
        let at = match &mut self.rule {
            Rule::Uniform(random) => random.below(count),
            Rule::Zipf(random, zipf) => zipf.sample(random) - 1,
            Rule::Sequential { next, step } => {
                let at = *next;
                // Both are below the count, so the sum wraps at most once.
                *next = if *step >= count - at { *step - (count - at) } else { at + *step };
                at
            }
        };
        match &self.ids {
            Ids::Range { from, .. } => out
                .extend_from_slice(itoa::Buffer::new().format(from.saturating_add(at)).as_bytes()),
            Ids::List(list) => out.extend_from_slice(list[at as usize].as_bytes()),
        }
    }
}

/// Samples 1..=n with probability ∝ k^−s by rejection-inversion (Hörmann and Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", 1996): exact,
/// no table, about one attempt per sample for any n and s.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    n: f64,
    exponent: f64,
    /// H(1.5) − h(1): the upper bound of the draw.
    h_begin: f64,
    /// H(n + 0.5): the lower bound.
    h_end: f64,
    /// Draws this close below a whole number are accepted without evaluating H.
    shortcut: f64,
}

impl Zipf {
    fn new(n: u64, exponent: f64) -> Self {
        let mut zipf = Self { n: n as f64, exponent, h_begin: 0.0, h_end: 0.0, shortcut: 0.0 };
        zipf.h_begin = zipf.integral(1.5) - 1.0;
        zipf.h_end = zipf.integral(zipf.n + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.h_end + random.unit() * (self.h_begin - self.h_end);
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64;
            }
        }
    }

    /// h(x) = x^−s.
    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// H(x), an integral of h: (x^(1−s) − 1)/(1 − s), or ln x for s = 1, without the cancellation
    /// near 1.
    fn integral(&self, x: f64) -> f64 {
        let ln = x.ln();
        let t = (1.0 - self.exponent) * ln;
        ln * if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 }
    }

    /// The inverse of H.
    fn inverse(&self, x: f64) -> f64 {
        // Rounding may move it past the pole at −1.
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        (x * if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 }).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(drawer: &mut IdSampler) -> String {
        let mut out = Vec::new();
        drawer.fill(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn zipf_has_its_frequencies() {
        for (n, exponent) in [(10, 0.5), (100, 1.0), (1000, 0.99), (50, 2.5), (1, 1.0), (20, 0.0)] {
            const DRAWS: u32 = 200_000;
            let zipf = Zipf::new(n, exponent);
            let mut random = Random::new(3, 0);
            let mut counts = vec![0_u32; n as usize];
            (0..DRAWS).for_each(|_| counts[zipf.sample(&mut random) as usize - 1] += 1);
            let weights: Vec<f64> = (1..=n).map(|k| (k as f64).powf(-exponent)).collect();
            let total: f64 = weights.iter().sum();
            for (k, (count, weight)) in counts.iter().zip(&weights).enumerate() {
                let expected = weight / total * f64::from(DRAWS);
                let error = (f64::from(*count) - expected).abs();
                assert!(
                    error <= 5.0 * expected.sqrt() + 1.0,
                    "n {n}, s {exponent}, k {}: {count}, {expected}",
                    k + 1
                );
            }
        }
        let vast = Zipf::new(u64::MAX, 0.9);
        let mut random = Random::new(4, 0);
        assert!((0..1000).all(|_| vast.sample(&mut random) >= 1));
    }

    #[test]
    fn sequential_threads_cover_the_range_once_a_round() {
        let ids = Ids::range(10, 14).unwrap();
        let mut drawers: Vec<IdSampler> =
            (0..3).map(|i| IdSampler::new(&ids, Distribution::Sequential, 1, i, 3)).collect();
        let drawn: Vec<String> = (0..10).map(|i| draw(&mut drawers[i % 3])).collect();
        assert_eq!(drawn, ["10", "11", "12", "13", "14", "10", "11", "12", "13", "14"]);
        let whole = Ids::range(0, u64::MAX).unwrap();
        assert_eq!(draw(&mut IdSampler::new(&whole, Distribution::Sequential, 1, 0, 1)), "0");
    }

    #[test]
    fn a_seed_repeats_and_stays_in_range() {
        let ids = Ids::range(1, 100).unwrap();
        for pick in [Distribution::Uniform, Distribution::Zipf(1.1)] {
            let run = |seed| {
                let mut drawer = IdSampler::new(&ids, pick, seed, 0, 1);
                (0..500).map(|_| draw(&mut drawer).parse::<u64>().unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(run(1), run(1));
            assert_ne!(run(1), run(2));
            assert!(run(1).iter().all(|id| (1..=100).contains(id)));
        }
    }

    #[test]
    fn bad_ids_are_refused() {
        assert!(Ids::range(2, 1).is_err() && Ids::list(vec![]).is_err());
        assert!(matches!(
            Ids::list(vec!["a".into(), "b c".into()]),
            Err(RequestError::BadId { line: 2, .. })
        ));
        let ids = Ids::list(vec!["x%20y".into()]).unwrap();
        assert_eq!(draw(&mut IdSampler::new(&ids, Distribution::Uniform, 1, 0, 1)), "x%20y");
    }
}
