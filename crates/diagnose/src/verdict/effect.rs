//! What a change brought, and whether that is more than the noise.

use hotrow_measure::statistics::median;

use super::{Change, Pace, ROUNDS_MIN};

/// Requests that fail, as a share, from which on there is trouble; and connections that a listener drops per second.
const TROUBLE_FAILED: f64 = 0.001;
/// See [`TROUBLE_FAILED`].
const TROUBLE_OVERFLOWS_PER_S: f64 = 0.5;
/// From so many more failing requests on, as a share, a rate is not compared.
const FAILED_MORE: f64 = 0.01;
/// Fewer answers per second count as so many, where something is told of each.
const ANSWERS_LEAST_RPS: f64 = 1.0;
/// Trouble that is down to this part of it has ended.
const TROUBLE_ENDED: f64 = 0.1;
/// Trouble that is no less than this part of it goes on.
const TROUBLE_GOES_ON: f64 = 0.5;
/// A rate that is at least this part of another is as good.
const AS_GOOD: f64 = 0.85;
/// The part of the noise by which the median of n ratios may be off is this, over n: with n values whose spread is S, the standard
/// deviation of a value is about S/1.1, S/1.7, S/2.1, S/2.3 (n = 2 to 5; the mean range of normal values), that of a ratio of two of them
/// 1.4 times it, and that of the median of n about 1.25/√n of that.
const NOISE_LEFT: f64 = 1.8;

/// From this many times the rate on it rose, also when the generator had no time left in the end.
const ROSE: f64 = 1.25;
/// Of the rounds, this part may say the opposite of what their median says.
const ODD_ROUNDS_MOST: f64 = 0.25;

/// One load of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Answers as expected per second.
    pub rate_rps: f64,
    /// Requests that were lost, wrong, timed out or got no connection, as a share of what was due, 0 to 1.
    pub failed_share: f64,
    /// Connections that found the queue of a listener of this machine full, per second; 0 where it was not seen.
    pub overflows_per_s: f64,
    /// Share of the connections on which a request lay unread, 0 to 1; none where it was not seen.
    pub unread_share: Option<f64>,
    /// Whether the generator judges itself to have been the limit.
    pub generator_limited: bool,
}

/// How much went wrong in loads of one kind, as means.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    failed_share: f64,
    overflows_per_s: f64,
    overflows_per_answer: f64,
}

/// What equal loads differed by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The lowest rate, in requests per second.
    pub low_rps: f64,
    /// The highest.
    pub high_rps: f64,
}

/// What must come when a suspicion is true. Each has a gap between what confirms and what refutes, or is judged by the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Prediction {
    /// At least so many times the rate; less than the second refutes.
    Rises(f64, f64),
    /// At most so many times the rate; more than the second refutes.
    Stays(f64, f64),
    /// At most so many times the rate, which is below 1; more refutes.
    Falls(f64),
    /// At least so many times the rate, which is below 1; less than the second refutes.
    Holds(f64, f64),
    /// The generator is no longer the limit, or the rate rises by so much.
    Relieves(f64),
    /// Failures, and connections that are dropped, end.
    FailuresEnd,
    /// As many answers, and requests lie unread on less than this share of the connections.
    FewUnread(f64),
}

/// Where a ratio of rates confirms, and where it refutes.
#[derive(Clone, Copy, Debug)]
struct Edges {
    confirms: f64,
    refutes: f64,
    /// Whether it confirms from there on, rather than up to there.
    above: bool,
}

/// What came of a prediction.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Came {
    True,
    False,
    Unclear(String),
    Impossible(String),
}

/// What a change brought.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) change: Change,
    pub(super) pace: Pace,
    /// Of each round the unchanged and the changed load.
    pub(super) pairs: Vec<(Measured, Measured)>,
    pub(super) impossible: Option<String>,
}

impl Noise {
    /// Spread over the middle, 0 when all were equal.
    #[must_use]
    pub fn share(&self) -> f64 {
        let middle = f64::midpoint(self.low_rps, self.high_rps);
        if middle > 0.0 { (self.high_rps - self.low_rps) / middle } else { 0.0 }
    }

    /// The larger of two.
    pub(super) fn worse(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other.share() > one.share() { other } else { one }),
            (one, other) => one.or(other),
        }
    }
}

impl Effect {
    /// The median of the rounds' ratios of changed to unchanged rate; none without a rate to compare with.
    pub(super) fn ratio(&self) -> Option<f64> {
        let ratios = self.pairs.iter().filter(|(unchanged, _)| unchanged.rate_rps > 0.0);
        median(&ratios.map(|(unchanged, changed)| changed.rate_rps / unchanged.rate_rps).collect::<Vec<_>>())
    }

    /// What the unchanged loads differed by; none of fewer than two.
    pub(super) fn noise(&self) -> Option<Noise> {
        let rates = || self.pairs.iter().map(|(unchanged, _)| unchanged.rate_rps);
        let (low_rps, high_rps) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        (self.pairs.len() >= 2).then_some(Noise { low_rps, high_rps })
    }

    /// Whether what was predicted came. `generator_may_be_full`: it does not matter whether the generator had time left.
    pub(super) fn came(&self, prediction: Prediction, generator_may_be_full: bool) -> Came {
        // What could be compared before counts.
        if self.pairs.len() < ROUNDS_MIN {
            let few = || Came::Unclear("there were too few trials".to_owned());
            return self.impossible.clone().map_or_else(few, Came::Impossible);
        }
        let noise = self.noise().map_or(0.0, |noise| noise.share());
        let (ratio, off) = (self.ratio(), noise * NOISE_LEFT / self.pairs.len() as f64);
        let Some(edges) = prediction.edges() else {
            return match prediction {
                Prediction::FewUnread(most) => self.few_unread(most),
                _ => self.failures_end(),
            };
        };
        let came = self.rate_came(ratio, off, edges);
        let freed = self.mostly(|(unchanged, changed)| unchanged.generator_limited && !changed.generator_limited);
        if came == Came::False && freed && matches!(prediction, Prediction::Relieves(_)) {
            return Came::True;
        }
        if !matches!(came, Came::True | Came::False) {
            return came;
        }
        // Also when it was so before: what the target would have done nobody knows.
        let filled = self.mostly(|(_, changed)| changed.generator_limited);
        let slowed = came == Came::False && matches!(prediction, Prediction::Holds(..));
        if filled && !generator_may_be_full && (slowed || self.hidden_by_generator()) {
            return Came::Unclear("with this change the generator was the limit".to_owned());
        }
        self.fails_more().map_or(came, Came::Unclear)
    }

    /// Said when a change makes requests fail: what the others' rate tells is not what it would be without.
    fn fails_more(&self) -> Option<String> {
        let [unchanged, changed] =
            [self.trouble(|pair| pair.0), self.trouble(|pair| pair.1)].map(|trouble| trouble.failed_share);
        (changed - unchanged > FAILED_MORE).then(|| format!("with this change {:.0} % failed", changed * 100.0))
    }

    /// A rate that did not rise while more was asked for says nothing when the generator had no more to give.
    fn hidden_by_generator(&self) -> bool {
        let more = matches!(self.change, Change::Connections(_) | Change::Head | Change::Rate(_));
        more && self.ratio().is_none_or(|ratio| ratio < ROSE)
    }

    /// Judges the rate: `off` is by how much the ratio may be off.
    fn rate_came(&self, ratio: Option<f64>, off: f64, Edges { confirms, refutes, above }: Edges) -> Came {
        let Some(ratio) = ratio else { return Came::Unclear("nothing was answered".to_owned()) };
        let (came, wrong) =
            if above { (ratio >= confirms, ratio < refutes) } else { (ratio <= confirms, ratio > refutes) };
        if !came && !wrong {
            return Came::Unclear(format!(
                "{ratio:.2} times the rate is too little for the one and too much for the other"
            ));
        }
        let edge = if came { confirms } else { refutes };
        if (ratio - edge).abs() < off || !self.agree(edge, ratio >= edge) {
            return Came::Unclear(self.too_noisy());
        }
        if came { Came::True } else { Came::False }
    }

    /// Whether all rounds but a few lie on the same side of an edge.
    fn agree(&self, edge: f64, above: bool) -> bool {
        let other =
            |(unchanged, changed): &&(Measured, Measured)| (changed.rate_rps >= edge * unchanged.rate_rps) != above;
        self.pairs.iter().filter(other).count() as f64 <= ODD_ROUNDS_MOST * self.pairs.len() as f64
    }

    fn failures_end(&self) -> Came {
        let [before, after] =
            [|pair: &(Measured, Measured)| pair.0, |pair: &(Measured, Measured)| pair.1].map(|of| self.trouble(of));
        let failed = before.failed_share >= TROUBLE_FAILED;
        let overflows = before.overflows_per_s >= TROUBLE_OVERFLOWS_PER_S;
        if !failed && !overflows {
            return Came::Unclear("the same load did not fail again".to_owned());
        }
        if let Some(why) = self.fails_more() {
            return Came::Unclear(why);
        }
        let part = |there: bool, before: f64, after: f64| if there { after / before } else { 0.0 };
        let same = part(overflows, before.overflows_per_s, after.overflows_per_s);
        let left = part(failed, before.failed_share, after.failed_share)
            // A hundred times the answers with half as many dropped connections is less trouble; with as many, they are somebody else's.
            .max(part(overflows, before.overflows_per_answer, after.overflows_per_answer))
            .max(if same >= TROUBLE_GOES_ON { same } else { 0.0 });
        if left <= TROUBLE_ENDED {
            Came::True
        } else if left >= TROUBLE_GOES_ON {
            Came::False
        } else {
            Came::Unclear(format!("{:.0} % of the failures are left", left * 100.0))
        }
    }

    fn trouble(&self, of: impl Fn(&(Measured, Measured)) -> Measured) -> Trouble {
        let loads: Vec<Measured> = self.pairs.iter().map(of).collect();
        let mean = |part: fn(&Measured) -> f64| loads.iter().map(part).sum::<f64>() / loads.len().max(1) as f64;
        let overflows_per_s = mean(|load| load.overflows_per_s);
        Trouble {
            failed_share: mean(|load| load.failed_share),
            overflows_per_s,
            overflows_per_answer: overflows_per_s / mean(|load| load.rate_rps).max(ANSWERS_LEAST_RPS),
        }
    }

    fn few_unread(&self, most: f64) -> Came {
        let shares: Option<Vec<f64>> = self.pairs.iter().map(|(_, changed)| changed.unread_share).collect();
        let Some(unread) = shares.as_deref().and_then(median) else {
            return Came::Impossible("requests that lie unread cannot be seen here".to_owned());
        };
        match self.ratio() {
            Some(ratio) if ratio >= AS_GOOD && unread < most => Came::True,
            // One look may find fewer unread than there are, as when the generator has not asked again yet.
            Some(ratio) if ratio >= AS_GOOD => {
                Came::Unclear("so few connections are still more than are worked on at once".to_owned())
            }
            // Two connections of one worker, and another that has none.
            Some(ratio) if ratio + unread >= AS_GOOD => {
                Came::Unclear("so few connections were not spread evenly over the workers".to_owned())
            }
            Some(_) => Came::False,
            None => Came::Unclear("nothing was answered".to_owned()),
        }
    }

    fn mostly(&self, what: impl Fn(&(Measured, Measured)) -> bool) -> bool {
        self.pairs.iter().filter(|pair| what(pair)).count() * 2 > self.pairs.len()
    }

    fn too_noisy(&self) -> String {
        self.noise().map_or_else(String::new, |noise| {
            format!(
                "the machine is too noisy: the same load gave {:.0} to {:.0} requests/s",
                noise.low_rps, noise.high_rps
            )
        })
    }

    /// What it brought, in few words, for a sentence.
    pub(super) fn brought(&self, prediction: Prediction) -> String {
        let ratio = self.ratio().map_or_else(|| "no answers".to_owned(), |ratio| format!("{ratio:.2} times the rate"));
        match prediction {
            Prediction::FailuresEnd => {
                let (before, after) = (self.trouble(|pair| pair.0), self.trouble(|pair| pair.1));
                let percent = |part: fn(&Trouble) -> f64| (part(&after) * 100.0, part(&before) * 100.0);
                let (failed, failed_before) = percent(|trouble| trouble.failed_share);
                let (dropped, dropped_before) = percent(|trouble| trouble.overflows_per_answer);
                let failures = format!("{failed:.1} % failures instead of {failed_before:.1} %");
                let drops = format!("{dropped:.1} dropped connections per 100 answers instead of {dropped_before:.1}");
                match (before.failed_share >= TROUBLE_FAILED, before.overflows_per_s >= TROUBLE_OVERFLOWS_PER_S) {
                    (true, true) => format!("brought {failures}, and {drops}"),
                    (false, true) => format!("brought {drops}"),
                    (_, false) => format!("brought {failures}"),
                }
            }
            Prediction::FewUnread(_) => {
                let unread = |of: fn(&(Measured, Measured)) -> Option<f64>| {
                    let shares: Vec<f64> = self.pairs.iter().filter_map(of).collect();
                    median(&shares).unwrap_or_default() * 100.0
                };
                let (before, after) = (unread(|pair| pair.0.unread_share), unread(|pair| pair.1.unread_share));
                format!(
                    "brought {ratio}, with requests unread on {after:.0} % of the connections instead of {before:.0} %"
                )
            }
            _ => format!("brought {ratio}"),
        }
    }

    /// What came, with its numbers.
    pub(super) fn happened(&self, came: &Came) -> String {
        let rate = |of: fn(&(Measured, Measured)) -> f64| median(&self.pairs.iter().map(of).collect::<Vec<_>>());
        let told = match (self.ratio(), rate(|pair| pair.0.rate_rps), rate(|pair| pair.1.rate_rps)) {
            (Some(ratio), Some(before), Some(after)) => {
                let n = self.pairs.len();
                format!("{ratio:.2} times the rate ({after:.0} instead of {before:.0} requests/s; {n} rounds)")
            }
            _ => "it was not measured".to_owned(),
        };
        let failed = self.pairs.iter().any(|(one, other)| one.failed_share.max(other.failed_share) >= TROUBLE_FAILED);
        let told = if failed && !self.pairs.is_empty() {
            format!("{told}; {}", self.brought(Prediction::FailuresEnd).trim_start_matches("brought "))
        } else {
            told
        };
        match came {
            Came::Unclear(why) | Came::Impossible(why) => format!("{told}: {why}"),
            Came::True | Came::False => told,
        }
    }
}

impl Prediction {
    /// None where it is not the rate that tells.
    fn edges(self) -> Option<Edges> {
        let (confirms, refutes, above) = match self {
            Self::Rises(from, below) => (from, below, true),
            Self::Stays(up_to, above) => (up_to, above, false),
            Self::Falls(to) => (to, to, false),
            Self::Holds(at, below) => (at, below, true),
            Self::Relieves(at) => (at, at, true),
            Self::FailuresEnd | Self::FewUnread(_) => return None,
        };
        Some(Edges { confirms, refutes, above })
    }

    /// In words and numbers.
    pub(super) fn words(self) -> String {
        match self {
            Self::Rises(from, below) if from > below => {
                format!("at least {from:.2} times the rate; below {below:.2} it is wrong")
            }
            Self::Rises(from, _) => format!("at least {from:.2} times the rate"),
            Self::Stays(up_to, above) => format!("at most {up_to:.2} times the rate; above {above:.2} it is wrong"),
            Self::Falls(to) => format!("at most {to:.2} times the rate"),
            Self::Holds(at, below) => {
                format!("at least {at:.2} times the rate: it hardly falls; below {below:.2} it is wrong")
            }
            Self::Relieves(from) => {
                format!("at least {from:.2} times the rate, or a generator that is no longer the limit")
            }
            Self::FailuresEnd => format!("at most {:.0} % of the failures are left", TROUBLE_ENDED * 100.0),
            Self::FewUnread(most) => format!(
                "at least {AS_GOOD:.2} times the rate, and requests lie unread on less than {:.0} % of the connections",
                most * 100.0
            ),
        }
    }
}
