//! The bottleneck of a row, by a vote of its rounds over the findings about the machine and the CPU
//! time of the tiers.
//!
//! CPU time is counted exactly, so its conclusions come first: a reached rate, an exhausted limit.
//! The findings cover the rest.
//!
//! Reference `report`: Bottleneck of a row
//!
//! [Probes](diagnosis.md#probes) sample twice: after the connections are open, and at four fifths.
//! The first that applies is a round's verdict, and that of most rounds the row's.
//!
//! - 1: *The generator*: the rate is a lower bound.
//! - 2: *Nothing*: the requested rate was reached.
//! - 3: *The CPU limit of …*: a service or proxy used at least 95 % of its limit, or a fifth of it
//!   while throttled in half of its periods. If only some backends did, the weights do not fit.
//! - 4: The most certain [finding](diagnosis.md#classes).
//! - 5: CPU time alone: *the CPUs of this machine* (90 % busy), *probably one core*, *its one
//!   connection* (try more), or *not the CPU*.

use super::bottleneck::{self, Bottleneck};
use super::summary::{RowSummary, Run};
use hotrow_report::numbers::{cores, percent};
use hotrow_results::{Finding, Row};

/// Short names of finding classes; others are named by their description.
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
/// Description when all CPUs were busy and the generator was limited because it found none free.
const CPUS_SHARED: &str =
    "the CPUs of this machine, shared with the generator: the rate is a lower bound";
/// Share of all CPUs used by deployment and generator below which another process used the rest.
/// Interrupt work takes less.
const MOST_OF_CPUS: f64 = 0.75;

/// Bottleneck of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowVerdict<'a> {
    /// In two or three words.
    pub(super) short: String,
    /// In more words.
    pub(super) words: String,
    /// Number of agreeing rounds and their confidence; empty if there is nothing to add.
    pub(super) agreement: String,
    /// Evidence from the round with the median rate of those that agree; `None` if CPU time alone
    /// decides.
    pub(super) seen: Option<&'a Finding>,
}

/// Verdict of one round.
struct Vote<'a> {
    rps: f64,
    /// Class by which votes are counted.
    class: &'a str,
    short: String,
    words: String,
    seen: Option<&'a Finding>,
}

/// Returns the verdict of most rounds; `None` without valid measurements.
pub(super) fn of<'a>(row: &RowSummary<'a>, cpus: u32) -> Option<RowVerdict<'a>> {
    let votes: Vec<Vote<'a>> = row.runs().iter().map(|run| vote(run, row.row, cpus)).collect();
    let most =
        votes.iter().max_by(|one, other| weight(one, &votes).total_cmp(&weight(other, &votes)))?;
    let mut agreed: Vec<&Vote<'a>> = votes.iter().filter(|vote| vote.class == most.class).collect();
    agreed.sort_by(|one, other| one.rps.total_cmp(&other.rps));
    let middle = agreed.get(agreed.len().saturating_sub(1) / 2)?;
    Some(RowVerdict {
        short: middle.short.clone(),
        words: middle.words.clone(),
        agreement: agreement(&agreed, &votes),
        seen: middle.seen,
    })
}

/// Counts agreeing rounds; their confidence breaks ties.
fn weight(vote: &Vote<'_>, votes: &[Vote<'_>]) -> f64 {
    let alike = votes.iter().filter(|other| other.class == vote.class);
    alike.map(|other| 1.0 + 0.001 * other.seen.map_or(0.0, |seen| seen.confidence)).sum()
}

fn agreement(agreed: &[&Vote<'_>], all: &[Vote<'_>]) -> String {
    let mut parts = Vec::new();
    if all.len() > 1 {
        let mut others: Vec<&str> = Vec::new();
        for vote in
            all.iter().filter(|vote| agreed.first().is_none_or(|first| first.class != vote.class))
        {
            if !others.contains(&vote.short.as_str()) {
                others.push(&vote.short);
            }
        }
        let others =
            if others.is_empty() { String::new() } else { format!("; else {}", others.join(", ")) };
        parts.push(format!("{} of {} rounds{others}", agreed.len(), all.len()));
    }
    let sure: Vec<f64> = agreed.iter().filter_map(|vote| Some(vote.seen?.confidence)).collect();
    if !sure.is_empty() {
        parts.push(format!("{} confidence", percent(sure.iter().sum::<f64>() / sure.len() as f64)));
    }
    parts.join(", ")
}

fn vote<'a>(run: &Run<'a>, row: &Row, cpus: u32) -> Vote<'a> {
    let by_cpu = bottleneck::bottleneck_of(run, row, cpus);
    let findings = &run.of.findings;
    let of_class = |class: &str| findings.iter().find(|finding| finding.class == class);
    // "No limit found" adds nothing to CPU time; findings of lower confidence than that are
    // ignored, and so are findings that CPU time refutes.
    let likely = findings.iter().take_while(|finding| finding.class != NONE_FOUND);
    let first = likely
        .into_iter()
        .find(|finding| finding.class != THROTTLED || bottleneck::any_limit_counts(run));
    let shared = of_class(ALL_CPUS)
        .filter(|all| of_class(GENERATOR).is_none_or(|own| all.confidence > own.confidence));
    let make = |seen: Option<&'a Finding>| Vote {
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
        (Bottleneck::Nothing { .. }, _) => make(None),
        (Bottleneck::OwnLimit { .. }, _) => make(of_class(THROTTLED)),
        (Bottleneck::Generator, _) => match shared {
            Some(finding) => by_finding(finding, &with_others(CPUS_SHARED, run, cpus)),
            None => make(of_class(GENERATOR)),
        },
        (Bottleneck::AllCpus { .. }, Some(finding)) if finding.class == ALL_CPUS => {
            make(Some(finding))
        }
        (_, Some(finding)) if finding.class == ALL_CPUS => {
            by_finding(finding, &with_others(&finding.description, run, cpus))
        }
        (_, Some(finding)) => by_finding(finding, &finding.description),
        (_, None) => make(None),
    }
}

/// Adds, if all CPUs were busy, whether other processes used them.
fn with_others(words: &str, run: &Run<'_>, cpus: u32) -> String {
    match run.cores(cpus).filter(|used| *used < f64::from(cpus) * MOST_OF_CPUS) {
        Some(used) => {
            format!(
                "{words}; deployment and generator used {} of {cpus} cores, other processes the \
                 rest",
                cores(used)
            )
        }
        None => words.to_owned(),
    }
}

fn short(finding: &Finding) -> String {
    let known = SHORT.iter().find(|(class, _)| *class == finding.class);
    known.map_or_else(|| finding.description.clone(), |(_, words)| (*words).to_owned())
}

#[cfg(test)]
mod tests;
