//! What loads said of rates, and what follows from all of them together. What plateaus say counts more than what short steps
//! say; plateaus at one rate are added up, each by its standard errors (Stouffer's method: the sum of k independent
//! scores over √k is a score).

use super::{Bound, MARGIN_BELOW, SAME, Trial, Verdict};
use crate::capacity::certainty::{SURE, SURE_MOST};

/// Most plateaus at one rate.
pub(super) const LOOKS_MAX: usize = 3;

/// What is known of one rate.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) rate_rps: f64,
    /// What a short step said.
    said: Option<Verdict>,
    plateaus: Vec<Plateau>,
    /// It was tried as a lower end.
    below: bool,
    /// Its only plateau contradicts what short steps kept, for the first time in this search: it may have been an accident.
    accident: bool,
    /// Plateaus on which the generator was the limit, so that they said nothing.
    generators: usize,
}

/// What a plateau said.
#[derive(Clone, Copy, Debug)]
struct Plateau {
    /// In standard errors: below 0 where the objective was kept, never on the other side than its verdict.
    z: f64,
    /// Whether that was measured; believed otherwise.
    known: bool,
}

/// What plateaus at a rate say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Firm {
    /// There was none.
    Untried,
    /// They differ, or are too noisy.
    Undecided,
    Said(Verdict),
}

/// How far plateaus agree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    /// Plateaus.
    pub plateaus: usize,
    /// Those of them that were not sure of what they said, or of which that is not known.
    pub unsure: usize,
    /// A rate at which a plateau was sure that the objective is kept, and one not above it at which another was as sure that it is
    /// missed, in requests per second: the target, or its machine, changed meanwhile.
    pub contradiction: Option<(f64, f64)>,
}

/// All that is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Vec<Evidence>);

impl Known {
    pub(super) fn note(&mut self, trial: &Trial, verdict: Verdict, z: Option<f64>) {
        let same = |other: &Evidence| (other.rate_rps / trial.rate_rps - 1.0).abs() < SAME;
        let at = self.0.iter().position(same).unwrap_or_else(|| {
            self.0.push(Evidence::new(trial.rate_rps));
            self.0.len() - 1
        });
        let first = !self.0.iter().any(|e| e.accident);
        let evidence = &mut self.0[at];
        if !trial.is_plateau() {
            if evidence.firm() == Firm::Untried {
                evidence.said = Some(verdict);
            }
            return;
        }
        evidence.below = trial.is_below();
        let measured = z.filter(|z| z.is_finite());
        // Where nothing is known of its noise it is believed, as far as any single one is. A score may be that of another objective than
        // the one that was missed: it never says the contrary.
        let z = match verdict {
            Verdict::GeneratorLimited | Verdict::Harmed => {
                evidence.generators += 1;
                return;
            }
            Verdict::Kept => measured.unwrap_or(-SURE_MOST).clamp(-SURE_MOST, 0.0),
            Verdict::Missed => measured.unwrap_or(SURE_MOST).clamp(0.0, SURE_MOST),
        };
        evidence.plateaus.push(Plateau { z, known: measured.is_some() });
        evidence.accident |= first && evidence.below && evidence.plateaus.len() == 1 && z > 0.0;
    }

    /// Whether plateaus at a rate do not decide it. What a short step would say there is not heard.
    pub(super) fn is_undecided(&self, rate_rps: f64) -> bool {
        self.0.iter().any(|e| (e.rate_rps / rate_rps - 1.0).abs() < SAME && e.firm() == Firm::Undecided)
    }

    /// The highest rate that plateaus kept, below the lowest that they missed; 0 when there is none.
    pub(super) fn floor_rps(&self) -> f64 {
        let firm = |verdict| self.0.iter().filter(move |e| e.firm() == Firm::Said(verdict)).map(|e| e.rate_rps);
        let missed = firm(Verdict::Missed).fold(f64::INFINITY, f64::min);
        firm(Verdict::Kept).filter(|rate| *rate < missed).fold(0.0, f64::max)
    }

    pub(super) fn floor(&self) -> Option<Bound> {
        let floor = self.floor_rps();
        (floor > 0.0).then_some(Bound { rate_rps: floor, firm: true, generator: false })
    }

    /// The lowest rate that was not kept, and that no plateau contradicts.
    pub(super) fn top(&self) -> Option<Bound> {
        let floor = self.floor_rps();
        let above = self.0.iter().filter(|e| e.rate_rps > floor && e.verdict().is_some_and(|v| v != Verdict::Kept));
        above.min_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps)).map(Evidence::bound)
    }

    /// The highest rate that was kept below that.
    pub(super) fn kept(&self) -> Option<Bound> {
        let top = self.top().map_or(f64::INFINITY, |top| top.rate_rps);
        let below = self.0.iter().filter(|e| e.rate_rps < top && e.verdict() == Some(Verdict::Kept));
        below.max_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps)).map(Evidence::bound)
    }

    /// The lowest rate above the floor at which plateaus did not keep the objective.
    pub(super) fn firm_top(&self) -> Option<Bound> {
        let floor = self.floor_rps();
        let missed =
            |e: &&Evidence| matches!(e.firm(), Firm::Said(verdict) if verdict != Verdict::Kept) && e.rate_rps > floor;
        self.0.iter().filter(missed).min_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps)).map(Evidence::bound)
    }

    /// The lowest rate above the floor that was to be a lower end, and is none.
    pub(super) fn failed_below(&self) -> Option<&Evidence> {
        let floor = self.floor_rps();
        let failed =
            self.0.iter().filter(|e| e.below && e.rate_rps > floor && !matches!(e.firm(), Firm::Said(Verdict::Kept)));
        failed.min_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps))
    }

    /// How many there are of them.
    pub(super) fn failures_below(&self) -> i32 {
        let floor = self.floor_rps();
        self.0.iter().filter(|e| e.below && e.rate_rps > floor).count() as i32
    }

    /// The highest rate that was to be an upper end, and is not decided.
    pub(super) fn open_above(&self) -> Option<&Evidence> {
        let floor = self.floor_rps();
        let open = self.0.iter().filter(|e| !e.below && e.rate_rps > floor && e.firm() == Firm::Undecided);
        open.max_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps))
    }

    /// Where a plateau has to keep what a short step kept: just there where nothing was missed above it, for no limit is near.
    pub(super) fn lower_end_rps(&self, kept: &Bound) -> f64 {
        if self.top().is_some() { kept.rate_rps / MARGIN_BELOW } else { kept.rate_rps }
    }

    /// Whether a plateau did.
    pub(super) fn is_confirmed(&self, kept: &Bound) -> bool {
        self.floor_rps() >= self.lower_end_rps(kept) * (1.0 - SAME)
    }

    pub(super) fn noise(&self) -> Noise {
        let all = || self.0.iter().flat_map(|e| e.plateaus.iter().map(|plateau| (e.rate_rps, *plateau)));
        // What is believed is not sure: only what was measured can contradict.
        let sure = || all().filter(|(_, plateau)| plateau.known && plateau.z.abs() >= SURE);
        let kept = sure().filter(|(_, plateau)| plateau.z < 0.0).map(|(rate, _)| rate).fold(0.0, f64::max);
        let missed = sure().filter(|(_, plateau)| plateau.z > 0.0).map(|(rate, _)| rate).fold(f64::INFINITY, f64::min);
        Noise {
            plateaus: all().count(),
            unsure: all().count() - sure().count(),
            contradiction: (missed <= kept).then_some((kept, missed)),
        }
    }
}

impl Evidence {
    fn new(rate_rps: f64) -> Self {
        Self { rate_rps, said: None, plateaus: Vec::new(), below: false, accident: false, generators: 0 }
    }

    /// The plateaus' scores in one.
    fn z(&self) -> f64 {
        self.plateaus.iter().map(|plateau| plateau.z).sum::<f64>() / (self.plateaus.len() as f64).sqrt()
    }

    fn firm(&self) -> Firm {
        match self.plateaus.as_slice() {
            [] => match self.generators {
                0 => Firm::Untried,
                // The machine may have been busy with something else.
                1 => Firm::Undecided,
                _ => Firm::Said(Verdict::GeneratorLimited),
            },
            [_] if self.accident => Firm::Undecided,
            _ if self.z() <= -SURE => Firm::Said(Verdict::Kept),
            _ if self.z() >= SURE => Firm::Said(Verdict::Missed),
            _ => Firm::Undecided,
        }
    }

    /// What a short step or plateaus say of it; none where plateaus are not sure.
    fn verdict(&self) -> Option<Verdict> {
        match self.firm() {
            Firm::Untried => self.said,
            Firm::Undecided => None,
            Firm::Said(verdict) => Some(verdict),
        }
    }

    /// Whether one more plateau may decide it: as a lower end a plateau may have failed by accident; after two, a third is worth
    /// its time where it would be enough if it were like them, or where they contradict each other.
    pub(super) fn wants_another(&self) -> bool {
        let looks = self.plateaus.len();
        if looks + self.generators >= LOOKS_MAX || self.firm() != Firm::Undecided {
            return false;
        }
        if looks == 0 {
            return true;
        }
        // Above 0 in the direction that is hoped for.
        let hoped = if self.below { -self.z() } else { self.z() };
        let sure = |sign: f64| self.plateaus.iter().any(|plateau| plateau.z * sign >= SURE);
        let enough = hoped * ((looks + 1) as f64 / looks as f64).sqrt() >= SURE;
        enough || (looks == 1 && (self.below || hoped > 0.0)) || (sure(1.0) && sure(-1.0))
    }

    fn bound(&self) -> Bound {
        let generator = self.verdict() == Some(Verdict::GeneratorLimited);
        Bound { rate_rps: self.rate_rps, firm: self.firm() != Firm::Untried, generator }
    }
}
