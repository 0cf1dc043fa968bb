//! Evidence about rates and the conclusions from all of it together. Plateaus outrank short steps.
//! The scores of plateaus at one rate are added by Stouffer's method: the sum of k independent
//! scores over √k is a score.

use super::trial::{Bound, MARGIN_BELOW, RateVerdict, SAME, Trial};
use crate::capacity::certainty::{SURE, SURE_MOST};

/// Most plateaus at one rate.
pub(super) const LOOKS_MAX: usize = 3;
/// Most times that short steps limited by the generator are forgotten, because a rate below them
/// was kept afterwards: the machine may have been busy for a moment. More would not end where the
/// generator is the limit.
const CLIMBS_MAX: usize = 3;

/// Evidence about one rate.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) rate_rps: f64,
    /// RateVerdict of a short step.
    said: Option<RateVerdict>,
    plateaus: Vec<Plateau>,
    /// True if it was tried as a lower end.
    below: bool,
    /// Its only plateau contradicts a short step that met the objective, for the first time in this
    /// search; it may have been an accident.
    accident: bool,
    /// Plateaus on which the generator was the bottleneck, and which therefore say nothing.
    generators: usize,
}

/// Result of a plateau.
#[derive(Clone, Copy, Debug)]
struct Plateau {
    /// Standard errors: below 0 if the objective was met; never of the opposite sign to the
    /// verdict.
    z: f64,
    /// True if the score was measured; otherwise it is assumed.
    known: bool,
}

/// Joint verdict of the plateaus at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlateauVerdict {
    /// There were none.
    Untried,
    /// They differ, or are too noisy.
    Undecided,
    Decided(RateVerdict),
}

/// Agreement of plateaus.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    /// Plateaus.
    pub plateaus: usize,
    /// Plateaus whose verdict was uncertain, or whose certainty is unknown.
    pub unsure: usize,
    /// Two rates in requests per second, if any: a plateau certainly met the objective at the
    /// first, and another certainly missed it at the second, which is not above the first. The
    /// target or its machine changed in between.
    pub contradiction: Option<(f64, f64)>,
}

/// All evidence.
#[derive(Clone, Debug, Default)]
pub(super) struct SearchEvidence {
    evidence: Vec<Evidence>,
    /// Times that the search climbed again; see [`CLIMBS_MAX`].
    climbs: usize,
}

impl SearchEvidence {
    pub(super) fn note(&mut self, trial: &Trial, verdict: RateVerdict, z: Option<f64>) {
        let same = |other: &Evidence| (other.rate_rps / trial.rate_rps - 1.0).abs() < SAME;
        let at = self.evidence.iter().position(same).unwrap_or_else(|| {
            self.evidence.push(Evidence::new(trial.rate_rps));
            self.evidence.len() - 1
        });
        let first = !self.evidence.iter().any(|e| e.accident);
        let evidence = &mut self.evidence[at];
        if !trial.is_plateau() {
            if evidence.firm() == PlateauVerdict::Untried {
                evidence.said = Some(verdict);
            }
            if verdict == RateVerdict::Kept {
                self.forget_generator_above(trial.rate_rps);
            }
            return;
        }
        evidence.below = trial.is_below();
        let measured = z.filter(|z| z.is_finite());
        // A plateau of unknown noise gets the largest score of a single plateau. A score may belong
        // to another objective than the missed one; it never contradicts the verdict.
        let z = match verdict {
            RateVerdict::GeneratorLimited | RateVerdict::Harmed => {
                evidence.generators += 1;
                return;
            }
            RateVerdict::Kept => measured.unwrap_or(-SURE_MOST).clamp(-SURE_MOST, 0.0),
            RateVerdict::Missed => measured.unwrap_or(SURE_MOST).clamp(0.0, SURE_MOST),
        };
        evidence.plateaus.push(Plateau { z, known: measured.is_some() });
        evidence.accident |= first && evidence.below && evidence.plateaus.len() == 1 && z > 0.0;
    }

    /// Lets the search climb again to rates at which short steps met the generator's limit.
    fn forget_generator_above(&mut self, rate_rps: f64) {
        let limited = |e: &&mut Evidence| {
            e.rate_rps > rate_rps
                && e.said == Some(RateVerdict::GeneratorLimited)
                && e.firm() == PlateauVerdict::Untried
        };
        let mut forgotten = false;
        if self.climbs < CLIMBS_MAX {
            for evidence in self.evidence.iter_mut().filter(limited) {
                evidence.said = None;
                forgotten = true;
            }
        }
        self.climbs += usize::from(forgotten);
    }

    /// Returns whether plateaus leave a rate undecided; short steps there are ignored.
    pub(super) fn is_undecided(&self, rate_rps: f64) -> bool {
        self.evidence.iter().any(|e| {
            (e.rate_rps / rate_rps - 1.0).abs() < SAME && e.firm() == PlateauVerdict::Undecided
        })
    }

    /// Returns the highest rate that plateaus met below the lowest one that they missed; 0 if there
    /// is none.
    pub(super) fn floor_rps(&self) -> f64 {
        let firm = |verdict| {
            self.evidence
                .iter()
                .filter(move |e| e.firm() == PlateauVerdict::Decided(verdict))
                .map(|e| e.rate_rps)
        };
        let missed = firm(RateVerdict::Missed).fold(f64::INFINITY, f64::min);
        firm(RateVerdict::Kept).filter(|rate| *rate < missed).fold(0.0, f64::max)
    }

    pub(super) fn floor(&self) -> Option<Bound> {
        let floor = self.floor_rps();
        (floor > 0.0).then_some(Bound { rate_rps: floor, firm: true, generator: false })
    }

    /// Returns the lowest rate that missed the objective and that no plateau contradicts.
    pub(super) fn top(&self) -> Option<Bound> {
        let floor = self.floor_rps();
        let above = self
            .evidence
            .iter()
            .filter(|e| e.rate_rps > floor && e.verdict().is_some_and(|v| v != RateVerdict::Kept));
        above.min_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps)).map(Evidence::bound)
    }

    /// Returns the highest rate below that which met it.
    pub(super) fn kept(&self) -> Option<Bound> {
        let top = self.top().map_or(f64::INFINITY, |top| top.rate_rps);
        let below = self
            .evidence
            .iter()
            .filter(|e| e.rate_rps < top && e.verdict() == Some(RateVerdict::Kept));
        below.max_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps)).map(Evidence::bound)
    }

    /// Returns the lowest rate above the floor at which plateaus did not meet the objective.
    pub(super) fn firm_top(&self) -> Option<Bound> {
        let floor = self.floor_rps();
        let missed = |e: &&Evidence| {
            matches!(e.firm(), PlateauVerdict::Decided(verdict) if verdict != RateVerdict::Kept)
                && e.rate_rps > floor
        };
        self.evidence
            .iter()
            .filter(missed)
            .min_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps))
            .map(Evidence::bound)
    }

    /// Returns the lowest rate above the floor that failed as a lower end.
    pub(super) fn failed_below(&self) -> Option<&Evidence> {
        let floor = self.floor_rps();
        let failed = self.evidence.iter().filter(|e| {
            e.below
                && e.rate_rps > floor
                && !matches!(e.firm(), PlateauVerdict::Decided(RateVerdict::Kept))
        });
        failed.min_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps))
    }

    /// Returns the number of those.
    pub(super) fn failures_below(&self) -> i32 {
        let floor = self.floor_rps();
        self.evidence.iter().filter(|e| e.below && e.rate_rps > floor).count() as i32
    }

    /// Returns the highest undecided rate that was tried as an upper end.
    pub(super) fn open_above(&self) -> Option<&Evidence> {
        let floor = self.floor_rps();
        let open = self
            .evidence
            .iter()
            .filter(|e| !e.below && e.rate_rps > floor && e.firm() == PlateauVerdict::Undecided);
        open.max_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps))
    }

    /// Returns the rate at which a plateau must confirm a short step: the same rate if nothing was
    /// missed above it, because no limit is near.
    pub(super) fn lower_end_rps(&self, kept: &Bound) -> f64 {
        if self.top().is_some() { kept.rate_rps / MARGIN_BELOW } else { kept.rate_rps }
    }

    /// Returns whether a plateau confirmed it.
    pub(super) fn is_confirmed(&self, kept: &Bound) -> bool {
        self.floor_rps() >= self.lower_end_rps(kept) * (1.0 - SAME)
    }

    pub(super) fn noise(&self) -> Noise {
        let all = || {
            self.evidence
                .iter()
                .flat_map(|e| e.plateaus.iter().map(|plateau| (e.rate_rps, *plateau)))
        };
        // An assumed score is not certain; only a measured one can contradict.
        let sure = || all().filter(|(_, plateau)| plateau.known && plateau.z.abs() >= SURE);
        let kept =
            sure().filter(|(_, plateau)| plateau.z < 0.0).map(|(rate, _)| rate).fold(0.0, f64::max);
        let missed = sure()
            .filter(|(_, plateau)| plateau.z > 0.0)
            .map(|(rate, _)| rate)
            .fold(f64::INFINITY, f64::min);
        Noise {
            plateaus: all().count(),
            unsure: all().count() - sure().count(),
            contradiction: (missed <= kept).then_some((kept, missed)),
        }
    }
}

impl Evidence {
    fn new(rate_rps: f64) -> Self {
        Self {
            rate_rps,
            said: None,
            plateaus: Vec::new(),
            below: false,
            accident: false,
            generators: 0,
        }
    }

    /// Returns the joint score of the plateaus.
    fn z(&self) -> f64 {
        self.plateaus.iter().map(|plateau| plateau.z).sum::<f64>()
            / (self.plateaus.len() as f64).sqrt()
    }

    fn firm(&self) -> PlateauVerdict {
        match self.plateaus.as_slice() {
            [] => match self.generators {
                0 => PlateauVerdict::Untried,
                // The machine may have been busy with something else.
                1 => PlateauVerdict::Undecided,
                _ => PlateauVerdict::Decided(RateVerdict::GeneratorLimited),
            },
            [_] if self.accident => PlateauVerdict::Undecided,
            _ if self.z() <= -SURE => PlateauVerdict::Decided(RateVerdict::Kept),
            _ if self.z() >= SURE => PlateauVerdict::Decided(RateVerdict::Missed),
            _ => PlateauVerdict::Undecided,
        }
    }

    /// Returns the verdict of a short step or of the plateaus; `None` if the plateaus are
    /// uncertain.
    fn verdict(&self) -> Option<RateVerdict> {
        match self.firm() {
            PlateauVerdict::Untried => self.said,
            PlateauVerdict::Undecided => None,
            PlateauVerdict::Decided(verdict) => Some(verdict),
        }
    }

    /// Returns whether one more plateau may decide it. At a lower end one plateau may have failed
    /// by accident. After two, a third is worth its time if it would suffice when like them, or if
    /// they contradict each other.
    pub(super) fn wants_another(&self) -> bool {
        let looks = self.plateaus.len();
        if looks + self.generators >= LOOKS_MAX || self.firm() != PlateauVerdict::Undecided {
            return false;
        }
        if looks == 0 {
            return true;
        }
        // Positive in the hoped-for direction.
        let hoped = if self.below { -self.z() } else { self.z() };
        let sure = |sign: f64| self.plateaus.iter().any(|plateau| plateau.z * sign >= SURE);
        let enough = hoped * ((looks + 1) as f64 / looks as f64).sqrt() >= SURE;
        enough || (looks == 1 && (self.below || hoped > 0.0)) || (sure(1.0) && sure(-1.0))
    }

    fn bound(&self) -> Bound {
        let generator = self.verdict() == Some(RateVerdict::GeneratorLimited);
        Bound { rate_rps: self.rate_rps, firm: self.firm() != PlateauVerdict::Untried, generator }
    }
}
