//! Is a suspicion true? A finding names a limit and what moves it; this changes that, or something that must *not* move it,
//! and looks at the rate. Pure: [`Prover::next`] says what to load next and hears how it went.
//!
//! A changed load is never compared with one of another minute: rounds of the unchanged load and each changed one follow each other,
//! and the medians of the ratios within the rounds are judged. Each prediction is made before its trial, in words and numbers
//! (`plan`). What the unchanged loads differ by among themselves is the noise; an effect that is not larger proves nothing
//! (`effect`). A refuted suspicion leads to the next.

mod effect;
mod plan;
mod words;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::effect::{Came, Effect};
pub use self::effect::{Measured, Noise};
pub use self::plan::CONNECTIONS_RISE;
use self::plan::{Combine, Expectation, Plan};
use crate::rules::finding::{Class, Finding};

/// Most suspicions that are tested, one after the other.
pub const GUESSES_MAX: usize = 4;
/// Fewest rounds that say anything.
pub const ROUNDS_MIN: usize = 2;
/// Most rounds for one suspicion: what is not clear then is not testable here.
pub const ROUNDS_MAX: usize = 5;
/// How sure a confirmed finding is at least, and a refuted one at most.
const CONFIRMED_LEAST: f64 = 0.95;
/// See [`CONFIRMED_LEAST`].
const REFUTED_MOST: f64 = 0.1;

/// What was loaded, what was seen meanwhile, and what can be changed about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Connections.
    pub connections: usize,
    /// Most connections that can be opened from here.
    pub connections_max: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Threads of it that can run at once: the CPUs that it may use.
    pub threads_max: usize,
    /// Requests per second that were asked for; none in a closed loop.
    pub asked_rps: Option<f64>,
    /// No more than this may be asked for, in requests per second.
    pub asked_most_rps: Option<f64>,
    /// Whether the asked rate was kept; false in a closed loop.
    pub kept: bool,
    /// Whether connections are kept for further requests.
    pub keepalive: bool,
    /// Whether every request is a GET.
    pub get: bool,
    /// Whether the target is on this machine.
    pub local: bool,
    /// CPUs of this machine.
    pub cpus: usize,
    /// CPUs that were idle meanwhile, added up; none where it was not seen.
    pub idle_cores: Option<f64>,
    /// Share of a CPU that the generator's busiest thread used, 0 to 1.
    pub generator_busy: f64,
    /// CPU time of the generator for a request, in µs.
    pub generator_us_per_request: f64,
    /// Whether a cgroup's share of CPU holds the generator up.
    pub generator_throttled: bool,
    /// Share of the connections on which a request lay unread, 0 to 1; none where it was not seen.
    pub unread_share: Option<f64>,
    /// Half of the answers came within this time, and nearly all within a few times it.
    pub answer_typical: Duration,
    /// The folder of the cgroup whose share of CPU held the target up most; none where none did.
    pub most_throttled: Option<Arc<Path>>,
    /// Whether the target's share of CPU may be changed.
    pub quota: bool,
}

/// What a trial changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// So many connections.
    Connections(usize),
    /// So many threads of the generator.
    GeneratorThreads(usize),
    /// The generator needs so much more CPU time for each request, as a share of what it needs.
    BurnGenerator(f64),
    /// So many CPUs are taken away from everybody, in short slices.
    BurnCpus(f64),
    /// The target's share of CPU, times this.
    Quota(f64),
    /// Answers without their bodies.
    Head,
    /// Connections are kept.
    Keepalive,
    /// The asked rate, times this.
    Rate(f64),
}

/// When requests of a trial are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as answers come: so any limit is reached, whatever rate was asked for.
    Closed,
    /// As they were.
    AsLoaded,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Load, and tell how it went.
    Load {
        /// What is changed; none: the unchanged load.
        change: Option<Change>,
        /// When requests are sent.
        pace: Pace,
    },
    /// All is said.
    Done(Box<Verdict>),
}

/// How a load went.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// It was measured.
    Measured(Measured),
    /// This change cannot be made, and why.
    Impossible(String),
    /// There will be no further loads, and why.
    Over(String),
}

/// What trials say of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// What was predicted came.
    Confirmed,
    /// It did not.
    Refuted,
    /// Neither could be shown.
    NotTestable,
}

/// One trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// The suspicion that it tested.
    pub class: Class,
    /// What was changed, in words.
    pub change: String,
    /// What the suspicion predicted, in words and numbers.
    pub predicted: String,
    /// What came.
    pub happened: String,
    /// What that says of the suspicion.
    pub proof: Proof,
    /// What was changed.
    pub made: Change,
    /// The median of the rounds' ratios of changed to unchanged rate; none without a rate to compare with.
    pub times: Option<f64>,
}

/// What limits, as far as it could be tested.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The limit. When all suspicions were refuted, the first of them: then nothing is named.
    pub finding: Finding,
    /// What trials say of it.
    pub proof: Proof,
    /// Why, in a sentence.
    pub why: String,
    /// All trials, in their order.
    pub tried: Vec<Tried>,
    /// What equal loads differed by; none without two of them.
    pub noise: Option<Noise>,
    /// Connections of the unchanged load.
    pub connections: usize,
}

/// Tests suspicions, one after the other.
#[derive(Clone, Debug)]
pub struct Prover {
    scene: Scene,
    guesses: VecDeque<Finding>,
    /// The suspicion that is being tested.
    guess: Option<Guess>,
    /// All that was measured: what one suspicion asked for may answer another.
    effects: Vec<Effect>,
    refuted: Vec<(Finding, String)>,
    tried: Vec<Tried>,
    noise: Option<Noise>,
    /// Why there are no further loads.
    over: Option<String>,
}

#[derive(Clone, Debug)]
struct Guess {
    finding: Finding,
    plan: Plan,
    rounds: usize,
    /// Loads of the round that are still to come.
    to_come: VecDeque<Option<Change>>,
    /// The unchanged load of this round.
    unchanged: Option<Measured>,
}

/// What the trials of one suspicion say together.
enum Judgement {
    Settled(Proof, String),
    Unclear(String),
}

impl Prover {
    /// Tests these, the most certain first. There is always one: that no limit was found.
    #[must_use]
    pub fn new(findings: Vec<Finding>, scene: Scene) -> Self {
        let (guesses, guess, noise, over) = (findings.into(), None, None, None);
        Self { scene, guesses, guess, effects: Vec::new(), refuted: Vec::new(), tried: Vec::new(), noise, over }
    }

    /// The suspicion that the load tests which was asked for last; none before the first.
    #[must_use]
    pub fn suspicion(&self) -> Option<Class> {
        self.guess.as_ref().map(|guess| guess.finding.class)
    }

    /// What to do next, after the load that was asked for last went as `heard` says.
    pub fn next(&mut self, heard: Option<Heard>) -> Step {
        if let Some(heard) = heard {
            self.hear(heard);
        }
        loop {
            let Some(mut guess) = self.guess.take().or_else(|| self.next_guess()) else {
                return Step::Done(Box::new(self.all_refuted()));
            };
            if self.over.is_none()
                && let Some(change) = guess.to_come.front().copied()
            {
                let pace = guess.plan.pace;
                self.guess = Some(guess);
                return Step::Load { change, pace };
            }
            let judgement = self.judge(&guess.plan);
            match judgement {
                Judgement::Settled(Proof::Refuted, why) => {
                    self.note(&guess);
                    self.lead_on(&guess);
                    self.refuted.push((guess.finding, why));
                }
                Judgement::Settled(proof, why) => return self.done(guess, proof, why),
                Judgement::Unclear(_) if guess.rounds < ROUNDS_MAX && self.over.is_none() => {
                    guess.rounds += 1;
                    guess.to_come = self.round(&guess.plan);
                    self.guess = Some(guess);
                }
                Judgement::Unclear(why) => {
                    let why = self.over.clone().unwrap_or(why);
                    return self.done(guess, Proof::NotTestable, why);
                }
            }
        }
    }

    /// A load that was asked for, in words.
    #[must_use]
    pub fn words(&self, change: Option<Change>) -> String {
        change.map_or_else(|| "the same load again".to_owned(), |change| words::change(change, &self.scene))
    }

    fn hear(&mut self, heard: Heard) {
        let Some(guess) = &mut self.guess else { return };
        let (pace, change) = (guess.plan.pace, guess.to_come.pop_front().flatten());
        match (heard, change) {
            (Heard::Over(why), _) | (Heard::Impossible(why), None) => self.over = Some(why),
            (Heard::Measured(measured), None) => guess.unchanged = Some(measured),
            (Heard::Measured(changed), Some(change)) => {
                // A round begins with the unchanged load.
                let Some(unchanged) = guess.unchanged else { return };
                effect_of(&mut self.effects, change, pace).pairs.push((unchanged, changed));
            }
            (Heard::Impossible(why), Some(change)) => {
                effect_of(&mut self.effects, change, pace).impossible = Some(why);
            }
        }
    }

    fn next_guess(&mut self) -> Option<Guess> {
        let tested = self.refuted.len();
        let finding = self.guesses.pop_front().filter(|_| tested < GUESSES_MAX).or_else(|| self.none_is_left())?;
        let plan = plan::plan(finding.class, &self.scene);
        Some(Guess { finding, plan, rounds: 0, to_come: VecDeque::new(), unchanged: None })
    }

    /// A rate that was kept, and whose suspicions are all refuted, may have met no limit at all.
    fn none_is_left(&self) -> Option<Finding> {
        let asked = self.scene.asked_rps.filter(|_| self.scene.kept)?;
        let known = self.refuted.iter().any(|(finding, _)| finding.class == Class::NoneFound);
        let shown = format!("{asked:.0} requests/s were asked for and kept");
        (!known && !self.refuted.is_empty()).then(|| words::raised(Class::NoneFound, shown, &self.scene))
    }

    /// The loads of the next round: the unchanged one, and whatever is not clear yet.
    fn round(&self, plan: &Plan) -> VecDeque<Option<Change>> {
        let open = |expectation: &&Expectation| matches!(self.came(expectation, plan), Came::Unclear(_));
        let changes = plan.expectations.iter().filter(open).map(|expectation| Some(expectation.change));
        [None].into_iter().chain(changes).collect()
    }

    fn effect(&self, change: Change, pace: Pace) -> Option<&Effect> {
        self.effects.iter().find(|effect| effect.change == change && effect.pace == pace)
    }

    fn came(&self, expectation: &Expectation, plan: &Plan) -> Came {
        match self.effect(expectation.change, plan.pace) {
            Some(effect) => effect.came(expectation.prediction, plan.generator_may_be_full),
            None => Came::Unclear("it was not tried".to_owned()),
        }
    }

    fn judge(&self, plan: &Plan) -> Judgement {
        let came: Vec<Came> = plan.expectations.iter().map(|expectation| self.came(expectation, plan)).collect();
        let shown = |wanted: fn(&Came) -> bool| self.told(plan, &came, wanted);
        let unclear = came.iter().find_map(|came| match came {
            Came::Unclear(why) => Some(why.clone()),
            _ => None,
        });
        let impossible = came.iter().find_map(|came| match came {
            Came::Impossible(why) => Some(why.clone()),
            _ => None,
        });
        let (any_true, any_false) = (came.contains(&Came::True), came.contains(&Came::False));
        let when_true = || {
            let (proof, words) = &plan.when_true;
            Judgement::Settled(*proof, [shown(|came| *came == Came::True), words.clone()].join(": "))
        };
        let refuted = || Judgement::Settled(Proof::Refuted, shown(|came| *came == Came::False));
        match (plan.combine, unclear, impossible) {
            (Combine::All, ..) if any_false => refuted(),
            (Combine::Any, ..) if any_true => when_true(),
            (_, Some(why), _) => Judgement::Unclear(why),
            (Combine::All, None, Some(why)) => Judgement::Settled(Proof::NotTestable, why),
            (Combine::All, None, None) if any_true => when_true(),
            (Combine::Any, None, _) if any_false => refuted(),
            (_, None, Some(why)) => Judgement::Settled(Proof::NotTestable, why),
            (_, None, None) => Judgement::Settled(Proof::NotTestable, plan.when_true.1.clone()),
        }
    }

    /// What came of those trials that went in one way, in words.
    fn told(&self, plan: &Plan, came: &[Came], wanted: fn(&Came) -> bool) -> String {
        let those = plan.expectations.iter().zip(came).filter(|(_, came)| wanted(came));
        let words = those.filter_map(|(expectation, _)| {
            let effect = self.effect(expectation.change, plan.pace)?;
            Some(format!(
                "{} {}",
                words::change(expectation.change, &self.scene),
                effect.brought(expectation.prediction)
            ))
        });
        words.collect::<Vec<_>>().join(", and ")
    }

    /// Writes down what was tried for a suspicion.
    fn note(&mut self, guess: &Guess) {
        for expectation in &guess.plan.expectations {
            let Some(effect) = self.effect(expectation.change, guess.plan.pace) else { continue };
            let came = effect.came(expectation.prediction, guess.plan.generator_may_be_full);
            let tried = Tried {
                class: guess.finding.class,
                change: words::change(expectation.change, &self.scene),
                predicted: expectation.prediction.words(),
                happened: effect.happened(&came),
                proof: match came {
                    Came::True => Proof::Confirmed,
                    Came::False => Proof::Refuted,
                    Came::Unclear(_) | Came::Impossible(_) => Proof::NotTestable,
                },
                made: expectation.change,
                times: effect.ratio(),
            };
            let noise = effect.noise();
            self.tried.push(tried);
            self.noise = Noise::worse(self.noise, noise);
        }
    }

    /// A trial that refutes one suspicion may raise another, which comes next: what it says is fresh.
    fn lead_on(&mut self, guess: &Guess) {
        for expectation in &guess.plan.expectations {
            let came = self.came(expectation, &guess.plan);
            let Some(class) = plan::leads_to(expectation, &came, &self.scene) else { continue };
            let known = |finding: &Finding| finding.class == class;
            if guess.finding.class == class || self.refuted.iter().any(|(finding, _)| known(finding)) {
                continue;
            }
            let at = self.guesses.iter().position(known);
            let finding = at.and_then(|at| self.guesses.remove(at));
            let shown = self.told(&guess.plan, &[came], |_| true);
            self.guesses.push_front(finding.unwrap_or_else(|| words::raised(class, shown, &self.scene)));
        }
    }

    fn done(&mut self, guess: Guess, proof: Proof, why: String) -> Step {
        self.note(&guess);
        let mut finding = guess.finding;
        if proof == Proof::Confirmed {
            finding.confidence = finding.confidence.max(CONFIRMED_LEAST);
        }
        let (tried, noise) = (std::mem::take(&mut self.tried), self.noise);
        let connections = self.scene.connections;
        Step::Done(Box::new(Verdict { finding, proof, why, tried, noise, connections }))
    }

    fn all_refuted(&mut self) -> Verdict {
        let connections = self.scene.connections;
        let mut refuted = std::mem::take(&mut self.refuted).into_iter();
        let (tried, noise) = (std::mem::take(&mut self.tried), self.noise);
        let Some((mut finding, why)) = refuted.next() else {
            let why = "there was no suspicion to test".to_owned();
            return Verdict { finding: words::nothing(), proof: Proof::NotTestable, why, tried, noise, connections };
        };
        finding.confidence = finding.confidence.min(REFUTED_MOST);
        let others = refuted.map(|(finding, why)| format!("; {} was refuted too ({why})", finding.class.words()));
        let why = others.fold(why, |sum, other| sum + &other);
        Verdict { finding, proof: Proof::Refuted, why, tried, noise, connections }
    }
}

impl Verdict {
    /// How many times the rate more connections brought; none where no trial settled that.
    #[must_use]
    pub fn more_connections_brought(&self) -> Option<f64> {
        let settled = self.tried.iter().filter(|tried| tried.proof != Proof::NotTestable);
        settled
            .filter(|tried| matches!(tried.made, Change::Connections(n) if n > self.connections))
            .find_map(|tried| tried.times)
    }
}

impl Proof {
    /// In a word or two.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::NotTestable => "not testable",
        }
    }
}

fn effect_of(effects: &mut Vec<Effect>, change: Change, pace: Pace) -> &mut Effect {
    let at = effects.iter().position(|effect| effect.change == change && effect.pace == pace);
    let at = at.unwrap_or_else(|| {
        effects.push(Effect { change, pace, pairs: Vec::new(), impossible: None });
        effects.len() - 1
    });
    &mut effects[at]
}

#[cfg(test)]
mod tests;
