//! `[[setups]]`.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Problems, services};
use crate::experiment::file::{self, File};
use crate::experiment::{INSTANCES_MAX, Proxy, Setup, values};
use crate::nginx::{Balance, Form, WEIGHT_MAX};

/// Most idle connections to backends.
const UPSTREAM_KEEPALIVE_MAX: u32 = 10_000;

pub(super) fn setups(raw: &File, folder: &Path, problems: &Problems) -> Vec<Setup> {
    if raw.setups.is_empty() {
        problems.refuse("setups", "there is none; add [[setups]] with a name and a service");
    }
    let mut names = BTreeSet::new();
    for (i, setup) in raw.setups.iter().enumerate() {
        problems.take(format!("setups[{i}].name"), values::name(&setup.name));
        if !names.insert(&setup.name) {
            problems.refuse(format!("setups[{i}].name"), format!("{:?} is there twice; names must differ", setup.name));
        }
    }
    raw.setups.iter().enumerate().map(|(i, setup)| resolve(raw, i, setup, folder, problems)).collect()
}

fn resolve(raw: &File, i: usize, setup: &file::Setup, folder: &Path, problems: &Problems) -> Setup {
    let at = |key: &str| format!("setups[{i}].{key}");
    for (key, name) in [("service", Some(&setup.service)), ("database", setup.database.as_ref())] {
        if let Some(name) = name.filter(|name| !raw.services.contains_key(*name)) {
            let known: Vec<&str> = raw.services.keys().map(String::as_str).collect();
            problems.refuse(at(key), format!("there is no service {name:?}; there are {}", known.join(", ")));
        }
    }
    services::cores(at("cores"), setup.cores, problems);
    let weights = weights(i, setup, problems);
    let fixed = raw.services.get(&setup.service).and_then(|service| service.port);
    if let Some(port) = fixed.filter(|_| weights.len() > 1) {
        problems
            .refuse(at("instances"), format!("cannot be more than 1 of a service that always listens on port {port}"));
    }
    Setup {
        name: setup.name.clone(),
        service: setup.service.clone(),
        database: setup.database.clone(),
        weights,
        proxy: setup.proxy.as_ref().map(|proxy| resolve_proxy(i, proxy, folder, problems)),
        delay: problems.take_optional(at("delay"), setup.delay.as_ref(), values::positive_duration),
        args: setup.args.clone(),
        env: setup.env.clone(),
        vars: setup.vars.clone(),
        cores: setup.cores,
        needs_env: setup.needs_env.clone(),
    }
}

/// The weight of each instance.
fn weights(i: usize, setup: &file::Setup, problems: &Problems) -> Vec<u32> {
    let at = |key: &str| format!("setups[{i}].{key}");
    let given = setup.weights.as_ref().map(Vec::len);
    let instances = setup.instances.map_or(given.unwrap_or(1), |n| n as usize);
    if !(1..=INSTANCES_MAX as usize).contains(&instances) {
        problems.refuse(at("instances"), format!("must be between 1 and {INSTANCES_MAX}, not {instances}"));
        return vec![1];
    }
    let weighted = setup.proxy.as_ref().is_some_and(|proxy| proxy.balance == Some(Balance::Weights));
    if setup.proxy.is_none() && instances > 1 {
        problems.refuse(at("proxy"), format!("is missing; {instances} instances need one in front of them"));
    }
    if weighted != setup.weights.is_some() {
        let what = "weights and proxy.balance = \"weights\" go together: give both, or neither";
        problems.refuse(at("weights"), what);
    }
    let Some(weights) = &setup.weights else { return vec![1; instances] };
    if weights.len() != instances {
        let what = format!("must have one weight per instance: {instances}, not {}", weights.len());
        problems.refuse(at("weights"), what);
    }
    if let Some(wrong) = weights.iter().find(|weight| !(1..=WEIGHT_MAX).contains(*weight)) {
        problems.refuse(at("weights"), format!("must be between 1 and {WEIGHT_MAX}, not {wrong}"));
    }
    weights.clone()
}

fn resolve_proxy(i: usize, proxy: &file::Proxy, folder: &Path, problems: &Problems) -> Proxy {
    let at = |key: &str| format!("setups[{i}].proxy.{key}");
    let form = match (proxy.form, &proxy.template) {
        (Some(form), None) => form,
        (None, Some(_)) => Form::Tuned,
        (None, None) => {
            problems.refuse(at("form"), "is missing: \"original\" or \"tuned\"; or give a template");
            Form::Tuned
        }
        (Some(_), Some(_)) => {
            problems.refuse(at("form"), "cannot stand beside template, which is your own form");
            Form::Tuned
        }
    };
    if let Some(n) = proxy.upstream_keepalive.filter(|n| *n > UPSTREAM_KEEPALIVE_MAX) {
        problems
            .refuse(at("upstream_keepalive"), format!("must be at most {UPSTREAM_KEEPALIVE_MAX} connections, not {n}"));
    }
    let cache = problems.take_optional(at("cache"), proxy.cache.as_ref(), values::positive_duration);
    if cache.is_some_and(|cache| cache.subsec_nanos() != 0) {
        problems.refuse(at("cache"), "must be whole seconds; nginx counts no less");
    }
    Proxy {
        form,
        balance: proxy.balance.unwrap_or(Balance::RoundRobin),
        cache,
        upstream_keepalive: proxy.upstream_keepalive,
        access_log: proxy.access_log,
        tls: proxy.tls,
        template: proxy.template.as_ref().map(|name| folder.join(name)),
    }
}
