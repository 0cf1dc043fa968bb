//! Observation of the machine during a measurement, and the resulting findings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use hotrow_diagnose::process;
use hotrow_diagnose::rules::finding::Finding;
use hotrow_diagnose::samples::{Role, Samples};
use hotrow_load::outcome::Outcome;
use hotrow_load::plan::StopCondition;

use super::deployment::Deployment;
use hotrow_results::{self as results, TierKind};
use hotrow_trial::observe::{LoadStart, Observer};

const PROC: &str = "/proc";
/// Share of a measurement in which connections are opened at once; it does not represent the rest.
const OPENING: f64 = 0.05;
/// The same if a number of requests ends the measurement.
const OPENING_OF_REQUESTS: Duration = Duration::from_millis(100);
/// The generator's name in a report.
pub(super) const GENERATOR: &str = "hotrow load";

/// Observation of all processes of a deployment and of the generator.
pub(super) struct Observation {
    observer: Observer,
    /// Names of processes for reports, where ids mean nothing.
    names: BTreeMap<u32, String>,
}

impl Observation {
    /// Observes the current processes of a deployment; after a warm-up these include the ones
    /// started for its connections.
    pub(super) fn at(deployment: &Deployment) -> Self {
        let all = process::all(Path::new(PROC)).unwrap_or_default();
        let mut watched = Vec::new();
        let mut names = BTreeMap::from([(std::process::id(), GENERATOR.to_owned())]);
        for member in &deployment.members {
            let (pid, name) = (member.process.pid, &member.process.name);
            watched.push((pid, role(member.kind)));
            names.insert(pid, name.clone());
            for child in process::descendants(&all, pid) {
                watched.push((child.pid, role(member.kind)));
                names.entry(child.pid).or_insert_with(|| format!("a process of {name}"));
            }
        }
        // The main processes first: beyond the limit, their children are omitted.
        let members: BTreeSet<u32> =
            deployment.members.iter().map(|member| member.process.pid).collect();
        watched.sort_by_key(|(pid, _)| !members.contains(pid));
        let mut observer = Observer::new(&watched, true, String::new());
        // No live display needs it, and every sample costs a little CPU time.
        observer.live_samples = false;
        Self { observer, names }
    }

    /// Runs a load under observation; a load that ended at once has no samples.
    pub(super) fn during<T>(
        &mut self,
        extent: StopCondition,
        load: impl FnOnce(&LoadStart<'_>) -> T,
    ) -> (T, Option<Samples>) {
        // A number of requests may end it early.
        let length = extent.duration.filter(|_| extent.requests.is_none());
        let opening = length.map_or(OPENING_OF_REQUESTS, |length| length.mul_f64(OPENING));
        self.observer.during(opening, length.map(|length| length.saturating_sub(opening)), load)
    }

    /// Returns the CPU time of the observation.
    pub(super) fn cpu(&self) -> Duration {
        self.observer.cpu
    }

    /// Returns the findings, the most certain first.
    pub(super) fn findings(&self, seen: Samples, outcome: &Outcome) -> Vec<results::Finding> {
        self.observer
            .findings(seen, outcome)
            .iter()
            .map(|finding| finding_result(finding, &self.names))
            .collect()
    }
}

fn role(kind: TierKind) -> Role {
    match kind {
        TierKind::Service => Role::Service,
        TierKind::Proxy => Role::Proxy,
        TierKind::Database => Role::Database,
        TierKind::Generator => Role::Generator,
    }
}

fn finding_result(finding: &Finding, names: &BTreeMap<u32, String>) -> results::Finding {
    results::Finding {
        class: format!("{:?}", finding.class),
        description: finding.class.words().to_owned(),
        confidence: (finding.confidence * 1e3).round() / 1e3,
        evidence: finding.evidence.iter().map(|words| named(words, names)).collect(),
        counterfactual: named(&finding.counterfactual, names),
    }
}

/// Replaces process ids by names: "process 4711 waits" becomes "date-2 waits".
fn named(words: &str, names: &BTreeMap<u32, String>) -> String {
    const PROCESS: &str = "process ";
    let mut parts = words.split(PROCESS);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for kind in parts {
        let end = kind.find(|c: char| !c.is_ascii_digit()).unwrap_or(kind.len());
        let (pid, rest) = kind.split_at(end);
        match pid.parse().ok().and_then(|pid: u32| names.get(&pid)) {
            Some(name) => text.extend([name.as_str(), rest]),
            None => text.extend([PROCESS, kind]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_ids_are_replaced_by_names() {
        let names =
            BTreeMap::from([(47, "date-2".to_owned()), (4711, "a process of nginx".to_owned())]);
        let text = |words| named(words, &names);
        assert_eq!(
            text("the group of process 47 was throttled"),
            "the group of date-2 was throttled"
        );
        assert_eq!(
            text("process 4711 (Proxy) uses 1 of process 47"),
            "a process of nginx (Proxy) uses 1 of date-2"
        );
        for unchanged in
            ["process 4712 waits", "the process waits", "process 99999999999", "process ", ""]
        {
            assert_eq!(text(unchanged), unchanged);
        }
    }
}
