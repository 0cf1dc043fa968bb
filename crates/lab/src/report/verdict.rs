//! What limited a row: what its rounds say together, of what the machine showed and of the CPU time of the tiers.
//!
//! CPU time is counted exactly, so what it proves comes first: a rate that was kept, a limit that was used up. What it cannot tell,
//! the findings do.

use super::limit::{self, Limited};
use super::numbers::{cores, percent};
use super::summary::{RowSummary, Run};
use crate::results::{Finding, Row};

/// Names of classes that are told otherwise than by their own words; the others are told by those.
const SHORT: [(&str, &str); 12] = [
    ("AllCpus", "all CPUs"),
    ("OneThread", "one thread"),
    (THROTTLED, "CPU limit"),
    ("Steal", "the hypervisor"),
    ("Bandwidth", "bandwidth"),
    ("PacketLoss", "lost packets"),
    ("External", "something external"),
    ("KernelTable", "a kernel table"),
    ("Lock", "a lock"),
    ("Competitor", "another process"),
    (GENERATOR, "the generator"),
    ("Proxy", "the proxy"),
];
const ALL_CPUS: &str = "AllCpus";
const THROTTLED: &str = "Throttled";
const GENERATOR: &str = "Generator";
const NONE_FOUND: &str = "NoneFound";
/// All CPUs were busy, and the generator says that it was the limit: that it found none free.
const CPUS_SHARED: &str = "the CPUs of this machine, of which the generator took its part: the rate is a lower bound";
/// Below this share of all CPUs for what was measured, something else had the rest. The kernel's work for interrupts is less.
const MOST_OF_CPUS: f64 = 0.75;

/// What limited a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict<'a> {
    /// In two or three words.
    pub(super) short: String,
    /// In some more.
    pub(super) words: String,
    /// How many rounds say so and how sure they are; empty when there is nothing to say about it.
    pub(super) standing: String,
    /// What it was seen by in the round with the middle rate of those that say so; none when CPU time alone tells it.
    pub(super) seen: Option<&'a Finding>,
}

/// What one round says.
struct Vote<'a> {
    rps: f64,
    /// Votes of one class are counted together.
    class: &'a str,
    short: String,
    words: String,
    seen: Option<&'a Finding>,
}

/// The verdict that most rounds come to; none of a row without measurements that count.
pub(super) fn of<'a>(row: &RowSummary<'a>, cpus: u32) -> Option<Verdict<'a>> {
    let votes: Vec<Vote<'a>> = row.runs().iter().map(|run| vote(run, row.row, cpus)).collect();
    let most = votes.iter().max_by(|one, other| weight(one, &votes).total_cmp(&weight(other, &votes)))?;
    let mut agreed: Vec<&Vote<'a>> = votes.iter().filter(|vote| vote.class == most.class).collect();
    agreed.sort_by(|one, other| one.rps.total_cmp(&other.rps));
    let middle = agreed.get(agreed.len().saturating_sub(1) / 2)?;
    Some(Verdict {
        short: middle.short.clone(),
        words: middle.words.clone(),
        standing: standing(&agreed, &votes),
        seen: middle.seen,
    })
}

/// Rounds that say the same count; between as many, how sure they are.
fn weight(vote: &Vote<'_>, votes: &[Vote<'_>]) -> f64 {
    let alike = votes.iter().filter(|other| other.class == vote.class);
    alike.map(|other| 1.0 + 0.001 * other.seen.map_or(0.0, |seen| seen.confidence)).sum()
}

fn standing(agreed: &[&Vote<'_>], all: &[Vote<'_>]) -> String {
    let mut parts = Vec::new();
    if all.len() > 1 {
        let mut others: Vec<&str> = Vec::new();
        for vote in all.iter().filter(|vote| agreed.first().is_none_or(|first| first.class != vote.class)) {
            if !others.contains(&vote.short.as_str()) {
                others.push(&vote.short);
            }
        }
        let others = if others.is_empty() { String::new() } else { format!("; else {}", others.join(", ")) };
        parts.push(format!("{} of {} rounds{others}", agreed.len(), all.len()));
    }
    let sure: Vec<f64> = agreed.iter().filter_map(|vote| Some(vote.seen?.confidence)).collect();
    if !sure.is_empty() {
        parts.push(format!("{} sure", percent(sure.iter().sum::<f64>() / sure.len() as f64)));
    }
    parts.join(", ")
}

fn vote<'a>(run: &Run<'a>, row: &Row, cpus: u32) -> Vote<'a> {
    let by_cpu = limit::judge(run, row, cpus);
    let findings = &run.of.findings;
    let of_class = |class: &str| findings.iter().find(|finding| finding.class == class);
    // That no limit was found adds nothing to what CPU time tells; what is less sure than that is not named, and what CPU time refutes is
    // none.
    let likely = findings.iter().take_while(|finding| finding.class != NONE_FOUND);
    let first = likely.into_iter().find(|finding| finding.class != THROTTLED || limit::any_limit_counts(run));
    let shared = of_class(ALL_CPUS).filter(|all| of_class(GENERATOR).is_none_or(|own| all.confidence > own.confidence));
    let told = |seen: Option<&'a Finding>| Vote {
        rps: run.load.rps,
        class: by_cpu.class(),
        short: by_cpu.short(),
        words: by_cpu.words(),
        seen,
    };
    let by_finding = |finding: &'a Finding, words: &str| Vote {
        rps: run.load.rps,
        class: &finding.class,
        short: short(finding),
        words: words.to_owned(),
        seen: Some(finding),
    };
    match (&by_cpu, first) {
        (Limited::Nothing { .. }, _) => told(None),
        (Limited::OwnLimit { .. }, _) => told(of_class(THROTTLED)),
        (Limited::Generator, _) => match shared {
            Some(finding) => by_finding(finding, &with_others(CPUS_SHARED, run, cpus)),
            None => told(of_class(GENERATOR)),
        },
        (Limited::AllCpus { .. }, Some(finding)) if finding.class == ALL_CPUS => told(Some(finding)),
        (_, Some(finding)) if finding.class == ALL_CPUS => by_finding(finding, &with_others(&finding.words, run, cpus)),
        (_, Some(finding)) => by_finding(finding, &finding.words),
        (_, None) => told(None),
    }
}

/// When all CPUs were busy: whether what was measured kept them so.
fn with_others(words: &str, run: &Run<'_>, cpus: u32) -> String {
    match run.cores(|_| true).filter(|used| *used < f64::from(cpus) * MOST_OF_CPUS) {
        Some(used) => {
            format!("{words}; set-up and generator used {} of {cpus} cores, something else the rest", cores(used))
        }
        None => words.to_owned(),
    }
}

fn short(finding: &Finding) -> String {
    let known = SHORT.iter().find(|(class, _)| *class == finding.class);
    known.map_or_else(|| finding.words.clone(), |(_, words)| (*words).to_owned())
}

#[cfg(test)]
mod tests;
