//! The matrix of loads and deployments, with published figures.

use std::collections::BTreeSet;

use super::Problems;
use crate::experiment::file::File;
use crate::experiment::words::{balancing_text, caching_text, duration_text, proxy_text};
use crate::experiment::{DeploymentSpec, Event, EventKind, Load, Overrides, Planned, ROWS_MAX};
use hotrow_results::Row;

/// The rows of an experiment.
pub(super) struct Rows {
    /// Ids of all rows in the file.
    pub(super) all: BTreeSet<String>,
    /// Rows selected by the command line.
    pub(super) planned: Vec<Planned>,
}

impl Rows {
    /// Returns the refusal of an id that no row has.
    pub(super) fn unknown(&self, id: &str) -> String {
        format!(
            "there is no row {id:?}; a row is DEPLOYMENT/LOAD/CONNECTIONS, as in {:?}",
            self.example()
        )
    }

    /// Returns an existing id as an example.
    pub(super) fn example(&self) -> &str {
        self.all.first().map_or("direct/date/6", String::as_str)
    }
}

pub(super) fn rows(
    raw: &File,
    deployments: &[DeploymentSpec],
    loads: &[Load],
    overrides: &Overrides,
    problems: &Problems,
) -> Rows {
    names(raw, deployments, overrides, problems);
    let mut rows = Rows { all: BTreeSet::new(), planned: Vec::new() };
    for (deployment_index, deployment) in deployments.iter().enumerate() {
        for (load_index, load) in loads.iter().enumerate().filter(|(_, load)| !load.background) {
            let only = &raw.loads[load_index].deployments;
            if only.as_ref().is_some_and(|only| !only.contains(&deployment.name)) {
                continue;
            }
            if let Some(why) = impossible_event(deployment, load) {
                problems.refuse(format!("loads[{load_index}].events"), why);
            }
            for connections in &load.connections {
                let row = row(raw, deployment_index, deployment, load, *connections);
                // Ids repeat only with names or connections that were refused already.
                rows.all.insert(row.id.clone());
                if overrides.only.is_empty() || overrides.only.contains(&deployment.name) {
                    rows.planned.push(Planned {
                        row,
                        deployment: deployment_index,
                        load: load_index,
                    });
                }
            }
        }
    }
    if rows.all.len() > ROWS_MAX {
        let what = format!(
            "deployments × loads × connections are {} rows; the limit is {ROWS_MAX}",
            rows.all.len()
        );
        problems.refuse("", what);
    }
    if rows.planned.is_empty()
        && !rows.all.is_empty()
        && overrides.only.iter().all(|name| known(deployments, name))
    {
        problems.refuse("--only", "no load uses these deployments, so nothing would be measured");
    }
    published(raw, &mut rows, problems);
    rows
}

/// Returns why a load's events cannot happen in a deployment.
fn impossible_event(deployment: &DeploymentSpec, load: &Load) -> Option<String> {
    let instances = deployment.weights.len();
    let first_spare = instances.saturating_sub(deployment.spares);
    let mut runs: Vec<bool> = (0..instances).map(|at| at < first_spare).collect();
    for Event { instance, kind, .. } in &load.events {
        let name = &deployment.name;
        let place = (*instance as usize).checked_sub(1).and_then(|at| runs.get_mut(at));
        let Some(is_running) = place else {
            return Some(format!(
                "{name} has no instance {instance}; it has {instances}, counted from 1"
            ));
        };
        match (kind, *is_running) {
            (EventKind::Kill, false) => {
                return Some(format!(
                    "kill instance {instance} of {name}, which does not run then"
                ));
            }
            (EventKind::Start, true) => {
                return Some(format!(
                    "start instance {instance} of {name}, which runs then; only instances that \
                     were killed, and spares, can be started"
                ));
            }
            (EventKind::Kill, true) => *is_running = false,
            (EventKind::Start, false) => *is_running = true,
        }
    }
    None
}

fn known(deployments: &[DeploymentSpec], name: &str) -> bool {
    deployments.iter().any(|deployment| deployment.name == name)
}

/// Refuses unknown names of deployments.
fn names(raw: &File, deployments: &[DeploymentSpec], overrides: &Overrides, problems: &Problems) {
    let known: Vec<&str> = deployments.iter().map(|deployment| deployment.name.as_str()).collect();
    let check = |path: String, name: &String| {
        if !known.contains(&name.as_str()) {
            problems.refuse(
                path,
                format!("there is no deployment {name:?}; there are {}", known.join(", ")),
            );
        }
    };
    for (i, load) in raw.loads.iter().enumerate() {
        load.deployments
            .iter()
            .flatten()
            .for_each(|name| check(format!("loads[{i}].deployments"), name));
    }
    overrides.only.iter().for_each(|name| check("--only".to_owned(), name));
}

fn row(
    raw: &File,
    deployment_index: usize,
    deployment: &DeploymentSpec,
    load: &Load,
    connections: u32,
) -> Row {
    let mut conditions: Vec<(String, String)> =
        raw.deployments[deployment_index].conditions.clone().into_iter().collect();
    let service = raw.services.get(&deployment.service);
    if let Some(cores) = deployment.cores.or_else(|| service.and_then(|service| service.cores)) {
        conditions.push(("CPU per instance".to_owned(), format!("{cores} cores")));
    }
    if let Some(delay) = deployment.delay {
        conditions.push(("round trip".to_owned(), duration_text(delay)));
    }
    if !load.events.is_empty() {
        let words =
            |event: &Event| format!("{} after {} %", event.words(), (event.at * 100.0).round());
        let words: Vec<String> = load.events.iter().map(words).collect();
        conditions.push(("events".to_owned(), words.join(", ")));
    }
    if let Some(background) = &load.background_load {
        conditions.push(("background load".to_owned(), background.clone()));
    }
    Row {
        id: format!("{}/{}/{connections}", deployment.name, load.name),
        deployment: deployment.name.clone(),
        load: load.name.clone(),
        request: format!("{} {}", load.method, load.path),
        proxy: proxy_text(deployment),
        caching: caching_text(deployment),
        balancing: balancing_text(deployment),
        connections,
        keepalive: load.keepalive,
        rate: load.rate.map(hotrow_load::plan::Rate::mean),
        fault: !load.events.is_empty(),
        conditions,
        published_rps: None,
        published_more: Vec::new(),
    }
}

fn published(raw: &File, rows: &mut Rows, problems: &Problems) {
    let mut seen = BTreeSet::new();
    for (i, figure) in raw.published.iter().enumerate() {
        let id = format!("{}/{}/{}", figure.deployment, figure.load, figure.connections);
        if !rows.all.contains(&id) {
            problems.refuse(
                format!("published[{i}]"),
                format!("there is no row {id:?}; one is {:?}", rows.example()),
            );
        }
        if figure.rps.is_some_and(|rps| !rps.is_finite() || rps <= 0.0) {
            problems.refuse(format!("published[{i}].rps"), "must be above zero");
        }
        if let Some(planned) = rows.planned.iter_mut().find(|planned| planned.row.id == id) {
            planned.row.published_rps = figure.rps;
            planned.row.published_more = figure.more.clone().into_iter().collect();
        }
        if !seen.insert(id.clone()) {
            problems.refuse(
                format!("published[{i}]"),
                format!("the row {id:?} has a published figure already"),
            );
        }
    }
}
