//! Looking at the machine while a measurement is made, and what that says of its limit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use hotrow_diagnose::process;
use hotrow_diagnose::rules::finding::Finding;
use hotrow_diagnose::samples::{Role, Samples};
use hotrow_load::outcome::Outcome;
use hotrow_load::plan::Extent;

use super::standing::Standing;
use crate::results::{self, Part};
use crate::watch::{Begin, Watch};

const PROC: &str = "/proc";
/// Connections are opened in this part of a measurement, all at once; that is not what limits the rest.
const OPENING: f64 = 0.05;
/// The same where a number of requests ends it.
const OPENING_OF_REQUESTS: Duration = Duration::from_millis(100);
/// The generator's name in a report.
pub(super) const GENERATOR: &str = "hotrow load";

/// A look at all processes of a set-up, and at the generator.
pub(super) struct Looking {
    watch: Watch,
    /// What each process is called in a report, where its id means nothing.
    names: BTreeMap<u32, String>,
}

impl Looking {
    /// Looks at the processes that a set-up has now: after a warm-up, those that it started for its connections too.
    pub(super) fn at(standing: &Standing) -> Self {
        let all = process::all(Path::new(PROC)).unwrap_or_default();
        let mut watched = Vec::new();
        let mut names = BTreeMap::from([(std::process::id(), GENERATOR.to_owned())]);
        for member in &standing.members {
            let (pid, name) = (member.process.pid, &member.process.name);
            watched.push((pid, role(member.part)));
            names.insert(pid, name.clone());
            for child in process::descendants(&all, pid) {
                watched.push((child.pid, role(member.part)));
                names.entry(child.pid).or_insert_with(|| format!("a process of {name}"));
            }
        }
        // The members first: where there are more than can be watched, their children are left out.
        let members: BTreeSet<u32> = standing.members.iter().map(|member| member.process.pid).collect();
        watched.sort_by_key(|(pid, _)| !members.contains(pid));
        let mut watch = Watch::new(&watched, true, String::new());
        // Nobody sees it while it goes on, and every look takes a little from what is measured.
        watch.glances = false;
        Self { watch, names }
    }

    /// Loads, and looks meanwhile; nothing was seen of a load that ended at once.
    pub(super) fn during<T>(&mut self, extent: Extent, load: impl FnOnce(&Begin<'_>) -> T) -> (T, Option<Samples>) {
        // A number of requests may end it before its time.
        let length = extent.duration.filter(|_| extent.requests.is_none());
        let opening = length.map_or(OPENING_OF_REQUESTS, |length| length.mul_f64(OPENING));
        self.watch.during(opening, length.map(|length| length.saturating_sub(opening)), load)
    }

    /// CPU time that looking took.
    pub(super) fn cpu(&self) -> Duration {
        self.watch.cpu
    }

    /// What was seen says this, the most certain first.
    pub(super) fn findings(&self, seen: Samples, outcome: &Outcome) -> Vec<results::Finding> {
        self.watch.judge(seen, outcome).iter().map(|finding| kept(finding, &self.names)).collect()
    }
}

fn role(part: Part) -> Role {
    match part {
        Part::Service => Role::Service,
        Part::Proxy => Role::Proxy,
        Part::Database => Role::Database,
        Part::Generator => Role::Generator,
    }
}

fn kept(finding: &Finding, names: &BTreeMap<u32, String>) -> results::Finding {
    results::Finding {
        class: format!("{:?}", finding.class),
        words: finding.class.words().to_owned(),
        confidence: (finding.confidence * 1e3).round() / 1e3,
        evidence: finding.evidence.iter().map(|words| named(words, names)).collect(),
        counterfactual: named(&finding.counterfactual, names),
    }
}

/// "process 4711 waits" as "date-2 waits".
fn named(words: &str, names: &BTreeMap<u32, String>) -> String {
    const PROCESS: &str = "process ";
    let mut parts = words.split(PROCESS);
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (pid, rest) = part.split_at(end);
        match pid.parse().ok().and_then(|pid: u32| names.get(&pid)) {
            Some(name) => told.extend([name.as_str(), rest]),
            None => told.extend([PROCESS, part]),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_called_by_their_names() {
        let names = BTreeMap::from([(47, "date-2".to_owned()), (4711, "a process of nginx".to_owned())]);
        let told = |words| named(words, &names);
        assert_eq!(told("the group of process 47 was held up"), "the group of date-2 was held up");
        assert_eq!(told("process 4711 (Proxy) uses 1 of process 47"), "a process of nginx (Proxy) uses 1 of date-2");
        for unchanged in ["process 4712 waits", "the process waits", "process 99999999999", "process ", ""] {
            assert_eq!(told(unchanged), unchanged);
        }
    }
}
