//! The matrix: which load is measured on which set-up, and what the original reached there.

use std::collections::BTreeSet;

use super::Problems;
use crate::experiment::file::File;
use crate::experiment::{Load, Overrides, Planned, ROWS_MAX, Setup, words};
use crate::results::Row;

/// The rows of an experiment.
pub(super) struct Rows {
    /// Ids of all that the file describes.
    pub(super) all: BTreeSet<String>,
    /// Those that the command line wants.
    pub(super) planned: Vec<Planned>,
}

impl Rows {
    /// An id, to show how one looks.
    pub(super) fn example(&self) -> &str {
        self.all.first().map_or("direct/date/6", String::as_str)
    }
}

pub(super) fn rows(raw: &File, setups: &[Setup], loads: &[Load], overrides: &Overrides, problems: &Problems) -> Rows {
    names(raw, setups, overrides, problems);
    let mut rows = Rows { all: BTreeSet::new(), planned: Vec::new() };
    for (setup_index, setup) in setups.iter().enumerate() {
        for (load_index, load) in loads.iter().enumerate().filter(|(_, load)| !load.background) {
            let only = &raw.loads[load_index].setups;
            if only.as_ref().is_some_and(|only| !only.contains(&setup.name)) {
                continue;
            }
            for connections in &load.connections {
                let row = row(raw, setup_index, setup, load, *connections);
                if !rows.all.insert(row.id.clone()) {
                    problems
                        .refuse(format!("loads[{load_index}].connections"), format!("{connections} is there twice"));
                }
                if overrides.only.is_empty() || overrides.only.contains(&setup.name) {
                    rows.planned.push(Planned { row, setup: setup_index, load: load_index });
                }
            }
        }
    }
    if rows.all.len() > ROWS_MAX {
        let what = format!(
            "set-ups times loads times connections are {} rows; at most {ROWS_MAX} can be measured",
            rows.all.len()
        );
        problems.refuse("", what);
    }
    if rows.planned.is_empty() && !rows.all.is_empty() && overrides.only.iter().all(|name| known(setups, name)) {
        problems.refuse("--only", "no load is for these set-ups; nothing would be measured");
    }
    originals(raw, &mut rows, problems);
    rows
}

fn known(setups: &[Setup], name: &str) -> bool {
    setups.iter().any(|setup| setup.name == name)
}

/// Names of set-ups, wherever they are said, must be those of set-ups.
fn names(raw: &File, setups: &[Setup], overrides: &Overrides, problems: &Problems) {
    let known: Vec<&str> = setups.iter().map(|setup| setup.name.as_str()).collect();
    let check = |path: String, name: &String| {
        if !known.contains(&name.as_str()) {
            problems.refuse(path, format!("there is no set-up {name:?}; there are {}", known.join(", ")));
        }
    };
    for (i, load) in raw.loads.iter().enumerate() {
        load.setups.iter().flatten().for_each(|name| check(format!("loads[{i}].setups"), name));
    }
    overrides.only.iter().for_each(|name| check("--only".to_owned(), name));
}

fn row(raw: &File, setup_index: usize, setup: &Setup, load: &Load, connections: u32) -> Row {
    let mut conditions: Vec<(String, String)> = raw.setups[setup_index].conditions.clone().into_iter().collect();
    let service = raw.services.get(&setup.service);
    if let Some(cores) = setup.cores.or_else(|| service.and_then(|service| service.cores)) {
        conditions.push(("CPU per instance".to_owned(), format!("{cores} cores")));
    }
    if let Some(delay) = setup.delay {
        conditions.push(("round trip".to_owned(), words::length(delay)));
    }
    if let Some(beside) = &load.beside {
        conditions.push(("beside it".to_owned(), beside.clone()));
    }
    Row {
        id: format!("{}/{}/{connections}", setup.name, load.name),
        setup: setup.name.clone(),
        load: load.name.clone(),
        request: format!("{} {}", load.method, load.path),
        proxy: words::proxy(setup),
        caching: words::caching(setup),
        balancing: words::balancing(setup),
        connections,
        keepalive: load.keepalive,
        rate: load.rate.map(hotrow_load::plan::Rate::mean),
        conditions,
        original_rps: None,
        original_more: Vec::new(),
    }
}

fn originals(raw: &File, rows: &mut Rows, problems: &Problems) {
    let mut seen = BTreeSet::new();
    for (i, original) in raw.originals.iter().enumerate() {
        let id = format!("{}/{}/{}", original.setup, original.load, original.connections);
        if !rows.all.contains(&id) {
            problems.refuse(format!("originals[{i}]"), format!("there is no row {id:?}; one is {:?}", rows.example()));
        }
        if original.rps.is_some_and(|rps| !rps.is_finite() || rps <= 0.0) {
            problems.refuse(format!("originals[{i}].rps"), "must be above zero");
        }
        if let Some(planned) = rows.planned.iter_mut().find(|planned| planned.row.id == id) {
            planned.row.original_rps = original.rps;
            planned.row.original_more = original.more.clone().into_iter().collect();
        }
        if !seen.insert(id.clone()) {
            problems.refuse(format!("originals[{i}]"), format!("the row {id:?} has an original already"));
        }
    }
}
