//! Tests of findings. A finding names a limit and what would move it. A test changes that, or
//! something that must *not* move it, and compares the rates. Pure: [`HypothesisTester::next`]
//! returns the next load and receives its outcome.
//!
//! Changed loads are compared only within a round: rounds of the unchanged and each changed load
//! follow each other, and the medians of the ratios within the rounds are evaluated. Each
//! prediction is stated before its trial, in words and numbers (`plan`). The differences among
//! unchanged loads are the noise; a smaller effect shows nothing (`effect`). After a refuted
//! hypothesis the next one is tested.

mod effect;
mod measurement;
mod plan;
mod trial;

use std::collections::VecDeque;

pub use self::effect::ROUNDS_MIN;
use self::effect::{Effect, PredictionResult};
use self::plan::{Combine, Expectation, Plan};
use crate::rules::finding::{Finding, LimitClass};

pub use self::measurement::{Noise, TrialMeasurement};
pub use self::plan::CONNECTIONS_RISE;

pub use self::trial::{
    Change, Conclusion, Context, HypothesisVerdict, TestStep, Trial, TrialLoad, TrialOutcome,
};

/// Most hypotheses tested in succession.
pub const HYPOTHESES_MAX: usize = 4;
/// Most rounds per hypothesis: what is unclear then is inconclusive.
pub const ROUNDS_MAX: usize = 5;
/// Likelihood ratio of a prediction that held: how much more often it holds where the hypothesis is
/// true than where it is false. It raises a confidence of 0.5 to 0.95 and one of 0.01 to 0.16
/// (Bayes' rule in odds).
const LIKELIHOOD_RATIO: f64 = 19.0;
/// A finding below this confidence is not confirmed, even if its prediction held: something more
/// likely explains that too.
const CONFIRMED_CONFIDENCE_MIN: f64 = 0.8;
/// Maximum confidence of a refuted finding.
const REFUTED_CONFIDENCE_MAX: f64 = 0.1;

/// Tests hypotheses, one after the other.
#[derive(Clone, Debug)]
pub struct HypothesisTester {
    context: Context,
    guesses: VecDeque<Finding>,
    /// The hypothesis being tested.
    hypothesis: Option<Hypothesis>,
    /// All measurements: those for one hypothesis may decide another.
    effects: Vec<Effect>,
    refuted: Vec<(Finding, String)>,
    trials: Vec<Trial>,
    noise: Option<Noise>,
    /// Reason why no further loads are possible.
    over: Option<String>,
}

#[derive(Clone, Debug)]
struct Hypothesis {
    finding: Finding,
    plan: Plan,
    rounds: usize,
    /// Remaining loads of the round.
    to_come: VecDeque<Option<Change>>,
    /// The unchanged load of this round.
    unchanged: Option<TrialMeasurement>,
}

/// The combined result of a hypothesis's trials.
enum CombinedResult {
    Settled(Conclusion, String),
    Unclear(String),
}

impl HypothesisTester {
    /// Tests these findings, the most certain first. There is always one: that no limit was found.
    #[must_use]
    pub fn new(findings: Vec<Finding>, context: Context) -> Self {
        let (guesses, hypothesis, noise, over) = (findings.into(), None, None, None);
        Self {
            context,
            guesses,
            hypothesis,
            effects: Vec::new(),
            refuted: Vec::new(),
            trials: Vec::new(),
            noise,
            over,
        }
    }

    /// Returns the hypothesis tested by the last requested load; `None` before the first.
    pub fn suspicion(&self) -> Option<LimitClass> {
        self.hypothesis.as_ref().map(|hypothesis| hypothesis.finding.class)
    }

    /// Returns the next step, given the outcome of the last requested load.
    pub fn next(&mut self, outcome: Option<TrialOutcome>) -> TestStep {
        if let Some(outcome) = outcome {
            self.record_outcome(outcome);
        }
        loop {
            let Some(mut hypothesis) = self.hypothesis.take().or_else(|| self.next_hypothesis())
            else {
                return TestStep::Done(Box::new(self.all_refuted()));
            };
            if self.over.is_none()
                && let Some(change) = hypothesis.to_come.front().copied()
            {
                let pace = hypothesis.plan.pace;
                self.hypothesis = Some(hypothesis);
                return TestStep::Load { change, pace };
            }
            let judgement = self.judge(&hypothesis.plan);
            match judgement {
                CombinedResult::Settled(Conclusion::Refuted, why) => {
                    self.note(&hypothesis);
                    self.follow_up(&hypothesis);
                    self.refuted.push((hypothesis.finding, why));
                }
                CombinedResult::Settled(conclusion, why) => {
                    return self.done(hypothesis, conclusion, why);
                }
                CombinedResult::Unclear(_)
                    if hypothesis.rounds < ROUNDS_MAX && self.over.is_none() =>
                {
                    hypothesis.rounds += 1;
                    hypothesis.to_come = self.round(&hypothesis.plan);
                    self.hypothesis = Some(hypothesis);
                }
                CombinedResult::Unclear(why) => {
                    let why = self.over.clone().unwrap_or(why);
                    return self.done(hypothesis, Conclusion::Inconclusive, why);
                }
            }
        }
    }

    /// Describes a requested load as text.
    pub fn words(&self, change: Option<Change>) -> String {
        change.map_or_else(
            || "the same load again".to_owned(),
            |change| change_text(change, &self.context),
        )
    }

    fn record_outcome(&mut self, outcome: TrialOutcome) {
        let Some(hypothesis) = &mut self.hypothesis else { return };
        let pace = hypothesis.plan.pace;
        let change = hypothesis.to_come.pop_front().flatten();
        match (outcome, change) {
            (TrialOutcome::Over(why), _) | (TrialOutcome::Impossible(why), None) => {
                self.over = Some(why)
            }
            (TrialOutcome::Measured(measured), None) => hypothesis.unchanged = Some(measured),
            (TrialOutcome::Measured(changed), Some(change)) => {
                // A round begins with the unchanged load.
                let Some(unchanged) = hypothesis.unchanged else { return };
                effect_of(&mut self.effects, change, pace).pairs.push((unchanged, changed));
            }
            (TrialOutcome::Impossible(why), Some(change)) => {
                effect_of(&mut self.effects, change, pace).impossible = Some(why);
            }
        }
    }

    fn next_hypothesis(&mut self) -> Option<Hypothesis> {
        let tested = self.refuted.len();
        let finding = self
            .guesses
            .pop_front()
            .filter(|_| tested < HYPOTHESES_MAX)
            .or_else(|| self.no_limit_reached())?;
        let plan = plan::plan(finding.class, &self.context);
        Some(Hypothesis { finding, plan, rounds: 0, to_come: VecDeque::new(), unchanged: None })
    }

    /// With a kept rate and only refuted hypotheses, no limit may have been reached.
    fn no_limit_reached(&self) -> Option<Finding> {
        let asked = self.context.target_rps.filter(|_| self.context.kept)?;
        let known = self.refuted.iter().any(|(finding, _)| finding.class == LimitClass::NoneFound);
        let shown = format!("{asked:.0} requests/s were asked for and kept");
        (!known && !self.refuted.is_empty())
            .then(|| raised(LimitClass::NoneFound, shown, &self.context))
    }

    /// Returns the loads of the next round: the unchanged one, and each unclear change.
    fn round(&self, plan: &Plan) -> VecDeque<Option<Change>> {
        let open = |expectation: &&Expectation| {
            matches!(self.result(expectation, plan), PredictionResult::Unclear(_))
        };
        let changes =
            plan.expectations.iter().filter(open).map(|expectation| Some(expectation.change));
        [None].into_iter().chain(changes).collect()
    }

    fn effect(&self, change: Change, pace: TrialLoad) -> Option<&Effect> {
        self.effects.iter().find(|effect| effect.change == change && effect.pace == pace)
    }

    fn result(&self, expectation: &Expectation, plan: &Plan) -> PredictionResult {
        match self.effect(expectation.change, plan.pace) {
            Some(effect) => effect.result(expectation.prediction, plan.generator_may_be_full),
            None => PredictionResult::Unclear("it was not tried".to_owned()),
        }
    }

    fn judge(&self, plan: &Plan) -> CombinedResult {
        let result: Vec<PredictionResult> =
            plan.expectations.iter().map(|expectation| self.result(expectation, plan)).collect();
        let shown =
            |wanted: fn(&PredictionResult) -> bool| self.describe_results(plan, &result, wanted);
        let unclear = result.iter().find_map(|result| match result {
            PredictionResult::Unclear(why) => Some(why.clone()),
            _ => None,
        });
        let impossible = result.iter().find_map(|result| match result {
            PredictionResult::Impossible(why) => Some(why.clone()),
            _ => None,
        });
        let (any_true, any_false) =
            (result.contains(&PredictionResult::True), result.contains(&PredictionResult::False));
        let when_true = || {
            let (conclusion, words) = &plan.when_true;
            CombinedResult::Settled(
                *conclusion,
                [shown(|result| *result == PredictionResult::True), words.clone()].join(": "),
            )
        };
        let refuted = || {
            CombinedResult::Settled(
                Conclusion::Refuted,
                shown(|result| *result == PredictionResult::False),
            )
        };
        match (plan.combine, unclear, impossible) {
            (Combine::All, ..) if any_false => refuted(),
            (Combine::Any, ..) if any_true => when_true(),
            (_, Some(why), _) => CombinedResult::Unclear(why),
            (Combine::All, None, Some(why)) => {
                CombinedResult::Settled(Conclusion::Inconclusive, why)
            }
            (Combine::All, None, None) if any_true => when_true(),
            (Combine::Any, None, _) if any_false => refuted(),
            (_, None, Some(why)) => CombinedResult::Settled(Conclusion::Inconclusive, why),
            (_, None, None) => {
                CombinedResult::Settled(Conclusion::Inconclusive, plan.when_true.1.clone())
            }
        }
    }

    /// Describes the trials with a given result.
    fn describe_results(
        &self,
        plan: &Plan,
        result: &[PredictionResult],
        wanted: fn(&PredictionResult) -> bool,
    ) -> String {
        let those = plan.expectations.iter().zip(result).filter(|(_, result)| wanted(result));
        let words = those.filter_map(|(expectation, _)| {
            let effect = self.effect(expectation.change, plan.pace)?;
            Some(format!(
                "{} {}",
                change_text(expectation.change, &self.context),
                effect.effect_text(expectation.prediction)
            ))
        });
        words.collect::<Vec<_>>().join(", and ")
    }

    /// Records the trials of a hypothesis.
    fn note(&mut self, hypothesis: &Hypothesis) {
        for expectation in &hypothesis.plan.expectations {
            let Some(effect) = self.effect(expectation.change, hypothesis.plan.pace) else {
                continue;
            };
            let result =
                effect.result(expectation.prediction, hypothesis.plan.generator_may_be_full);
            let trials = Trial {
                class: hypothesis.finding.class,
                change: change_text(expectation.change, &self.context),
                predicted: expectation.prediction.words(),
                observed: effect.observed(&result),
                conclusion: match result {
                    PredictionResult::True => Conclusion::Confirmed,
                    PredictionResult::False => Conclusion::Refuted,
                    PredictionResult::Unclear(_) | PredictionResult::Impossible(_) => {
                        Conclusion::Inconclusive
                    }
                },
                change_made: expectation.change,
                times: effect.ratio(),
            };
            let noise = effect.noise();
            self.trials.push(trials);
            self.noise = Noise::worse(self.noise, noise);
        }
    }

    /// A trial that refutes one hypothesis may raise another, which is tested next.
    fn follow_up(&mut self, hypothesis: &Hypothesis) {
        for expectation in &hypothesis.plan.expectations {
            let result = self.result(expectation, &hypothesis.plan);
            let Some(class) = plan::leads_to(expectation, &result, &self.context) else { continue };
            let known = |finding: &Finding| finding.class == class;
            if hypothesis.finding.class == class
                || self.refuted.iter().any(|(finding, _)| known(finding))
            {
                continue;
            }
            let at = self.guesses.iter().position(known);
            let finding = at.and_then(|at| self.guesses.remove(at));
            let shown = self.describe_results(&hypothesis.plan, &[result], |_| true);
            self.guesses.push_front(finding.unwrap_or_else(|| raised(class, shown, &self.context)));
        }
    }

    fn done(&mut self, hypothesis: Hypothesis, conclusion: Conclusion, why: String) -> TestStep {
        self.note(&hypothesis);
        let (mut finding, mut conclusion, mut why) = (hypothesis.finding, conclusion, why);
        if conclusion == Conclusion::Confirmed {
            let before = finding.confidence;
            finding.confidence = raised_confidence(before);
            if finding.confidence < CONFIRMED_CONFIDENCE_MIN {
                conclusion = Conclusion::Inconclusive;
                why = format!(
                    "{why}; but it was only {:.0} % sure before, so that something else may show \
                     the same",
                    before * 100.0
                );
            }
        }
        let (trials, noise) = (std::mem::take(&mut self.trials), self.noise);
        let connections = self.context.connections;
        TestStep::Done(Box::new(HypothesisVerdict {
            finding,
            conclusion,
            why,
            trials,
            noise,
            connections,
        }))
    }

    fn all_refuted(&mut self) -> HypothesisVerdict {
        let connections = self.context.connections;
        let mut refuted = std::mem::take(&mut self.refuted).into_iter();
        let (trials, noise) = (std::mem::take(&mut self.trials), self.noise);
        let Some((mut finding, why)) = refuted.next() else {
            let why = "there was no suspicion to test".to_owned();
            return HypothesisVerdict {
                finding: no_finding(),
                conclusion: Conclusion::Inconclusive,
                why,
                trials,
                noise,
                connections,
            };
        };
        finding.confidence = finding.confidence.min(REFUTED_CONFIDENCE_MAX);
        let others = refuted
            .map(|(finding, why)| format!("; {} was refuted too ({why})", finding.class.words()));
        let why = others.fold(why, |sum, other| sum + &other);
        HypothesisVerdict {
            finding,
            conclusion: Conclusion::Refuted,
            why,
            trials,
            noise,
            connections,
        }
    }
}

fn effect_of(effects: &mut Vec<Effect>, change: Change, pace: TrialLoad) -> &mut Effect {
    let at = effects.iter().position(|effect| effect.change == change && effect.pace == pace);
    let at = at.unwrap_or_else(|| {
        effects.push(Effect { change, pace, pairs: Vec::new(), impossible: None });
        effects.len() - 1
    });
    &mut effects[at]
}

/// Returns the confidence after a prediction that held.
fn raised_confidence(before: f64) -> f64 {
    let odds = LIKELIHOOD_RATIO * before / (1.0 - before).max(f64::MIN_POSITIVE);
    odds / (1.0 + odds)
}

/// Confidence of a hypothesis that only a trial raised.
const RAISED: f64 = 0.5;

/// Describes a change.
fn change_text(change: Change, context: &Context) -> String {
    match change {
        Change::Connections(n) => format!("{n} connections instead of {}", context.connections),
        Change::GeneratorThreads(n) => {
            format!("{n} threads of the generator instead of {}", context.threads)
        }
        Change::BurnGenerator(share) => {
            format!("{:.0} % more CPU time for each request in the generator", share * 100.0)
        }
        Change::BurnCpus(cores) => {
            format!("{cores:.2} of the {} CPUs taken away in short slices", context.cpus)
        }
        Change::Quota(part) => {
            format!("{:.0} % less of the cgroup's CPU quota", (1.0 - part) * 100.0)
        }
        Change::Head => "HEAD instead of GET (responses without bodies)".to_owned(),
        Change::Keepalive => "connections that are kept".to_owned(),
        Change::RateCap(rps) => format!("at most {rps:.0} requests/s"),
        Change::Rate(times) => format!("{times:.1} times the asked rate"),
    }
}

/// Returns a hypothesis that a trial raised, with its effect.
fn raised(class: LimitClass, shown: String, context: &Context) -> Finding {
    let counterfactual = match class {
        LimitClass::TooFewConnections => {
            format!("more than {} connections raise the rate", context.connections)
        }
        LimitClass::AllCpus => "more CPUs, or less CPU time per request, raise the rate".to_owned(),
        _ => "ask for more: a higher rate, or more connections".to_owned(),
    };
    Finding { class, confidence: RAISED, evidence: vec![shown], counterfactual }
}

/// Returns the placeholder for a test without a hypothesis.
fn no_finding() -> Finding {
    let counterfactual = "look at the machine while it is loaded".to_owned();
    Finding { class: LimitClass::NoneFound, confidence: 0.0, evidence: Vec::new(), counterfactual }
}

#[cfg(test)]
mod tests;
