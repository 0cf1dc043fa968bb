//! `[services.NAME]`.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::time::Duration;

use super::Problems;
use crate::experiment::file::{self, File};
use crate::experiment::placeholder;
use crate::experiment::{Access, Count, Figure, Service, values};

const READY_WITHIN_DEFAULT: Duration = Duration::from_secs(30);
const PREPARE_WITHIN_DEFAULT: Duration = Duration::from_secs(300);
/// Most cores that one instance may be limited to.
pub(super) const CORES_MAX: f64 = 1024.0;
/// Smallest limit: with a period of 10 ms the kernel accepts at least 1 ms.
pub(super) const CORES_MIN: f64 = 0.1;

pub(super) fn services(raw: &File, problems: &Problems) -> BTreeMap<String, Service> {
    if raw.services.is_empty() {
        problems.refuse("services", "there is none; add [services.NAME] with a command");
    }
    raw.services
        .iter()
        .map(|(name, service)| (name.clone(), resolve(raw, name, service, problems)))
        .collect()
}

fn resolve(raw: &File, name: &str, service: &file::Service, problems: &Problems) -> Service {
    let at = |key: &str| format!("services.{name}.{key}");
    problems.take(format!("services.{name}"), values::name(name));
    if service.command.first().is_none_or(String::is_empty) {
        problems.refuse(
            at("command"),
            "must name a program, as in [\"./my-service\", \"--port\", \"{port}\"]",
        );
    }
    for (key, commands) in
        [("prepare", &service.prepare), ("needs_commands", &service.needs_commands)]
    {
        if commands.iter().any(|command| command.first().is_none_or(String::is_empty)) {
            problems.refuse(
                at(key),
                "must be a list of commands, each a list that begins with a program",
            );
        }
    }
    if service.port == Some(0) {
        problems.refuse(at("port"), "must be between 1 and 65535; leave it out for any free one");
    }
    placeholders(raw, name, service, problems);
    check_access(service, &at, problems);
    for (file, _) in service.files.iter().filter(|(file, _)| !is_plain(file)) {
        problems.refuse(
            at(&format!("files.{file}")),
            "must be a name within the service's folder: no leading slash, no ..",
        );
    }
    cores(at("cores"), service.cores, problems);
    for (key, path) in
        [("ready", &service.ready), ("count", &service.count), ("metrics", &service.metrics)]
    {
        if let Some(path) = path.as_ref().filter(|path| !path.starts_with('/')) {
            problems
                .refuse(at(key), format!("must be a path that begins with a slash, not {path:?}"));
        }
    }
    if service.ready.is_some() && !service.ready_command.is_empty() {
        problems.refuse(at("ready_command"), "cannot be combined with ready; give one of them");
    }
    if service.ready.is_none() && service.ready_on_admin {
        problems.refuse(at("ready_on_admin"), "needs ready, the path that is asked for there");
    }
    let count = match (&service.count, &service.count_metric) {
        (Some(_), Some(_)) => {
            problems.refuse(at("count_metric"), "cannot be combined with count; give one of them");
            None
        }
        (Some(path), None) => Some(Count::Path(path.clone())),
        (None, Some(series)) => Some(Count::Metric(series.clone())),
        (None, None) => None,
    };
    if service.metrics.is_none() && (service.count_metric.is_some() || !service.figures.is_empty())
    {
        problems.refuse(at("metrics"), "is missing; count_metric and figures are read there");
    }
    if service.reads_metric.is_some() && (service.metrics.is_none() || count.is_none()) {
        problems.refuse(at("reads_metric"), "needs metrics, and count_metric or count");
    }
    let within = |key: &str, text: &Option<String>, default| {
        problems.take_optional(at(key), text.as_ref(), values::positive_duration).unwrap_or(default)
    };
    Service {
        port: service.port,
        command: service.command.clone(),
        env: service.env.clone(),
        files: service.files.clone(),
        vars: service.vars.clone(),
        prepare: service.prepare.clone(),
        prepare_within: within("prepare_within", &service.prepare_within, PREPARE_WITHIN_DEFAULT),
        ready: service.ready.clone(),
        ready_on_admin: service.ready_on_admin,
        ready_command: service.ready_command.clone(),
        ready_within: within("ready_within", &service.ready_within, READY_WITHIN_DEFAULT),
        cores: service.cores,
        access: service.access.clone(),
        count,
        metrics: service.metrics.clone(),
        reads_metric: service.reads_metric.clone(),
        figures: service
            .figures
            .iter()
            .enumerate()
            .map(|(i, f)| figure(f, &at(&format!("figures[{i}]")), problems))
            .collect(),
        needs_commands: service.needs_commands.clone(),
    }
}

/// Refuses ways to a service that contradict each other.
fn check_access(service: &file::Service, at: &dyn Fn(&str) -> String, problems: &Problems) {
    let Access { cacert, cert, key, unix, .. } = &service.access;
    if cert.is_some() != key.is_some() {
        problems.refuse(at("access.cert"), "must be set together with access.key");
    }
    if cert.is_some() && cacert.is_none() {
        problems.refuse(at("access.cert"), "needs access.cacert: it is a certificate for TLS");
    }
    if cacert.is_some() && unix.is_some() {
        problems.refuse(at("access.unix"), "cannot be combined with access.cacert");
    }
    // These questions are asked in cleartext, over TCP and without a credential.
    let is_open = service.access == Access::default();
    if !is_open && service.ready.is_some() && !service.ready_on_admin {
        problems.refuse(at("ready"), "needs ready_on_admin = true beside access");
    }
    if unix.is_some() && service.ready.is_none() && service.ready_command.is_empty() {
        problems.refuse(at("access.unix"), "needs ready with ready_on_admin, or ready_command");
    }
    if !is_open && service.count.is_some() {
        problems.refuse(at("count"), "cannot be combined with access; use count_metric");
    }
}

fn figure(figure: &file::Figure, at: &str, problems: &Problems) -> Figure {
    if figure.of.is_empty() {
        problems.refuse(format!("{at}.of"), "must name at least one series of the metrics");
    }
    Figure {
        name: figure.name.clone(),
        unit: figure.unit.clone(),
        of: figure.of.clone(),
        over: figure.over.clone(),
        at_end: figure.at_end,
    }
}

/// Refuses a CPU limit that the kernel cannot apply.
pub(super) fn cores(at: String, cores: Option<f64>, problems: &Problems) {
    if let Some(cores) = cores.filter(|cores| !(CORES_MIN..=CORES_MAX).contains(cores)) {
        problems
            .refuse(at, format!("must be between {CORES_MIN} and {CORES_MAX} cores, not {cores}"));
    }
}

/// Returns whether a file name stays within its folder.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Refuses placeholders without a value in a service and its deployments.
fn placeholders(raw: &File, name: &str, service: &file::Service, problems: &Problems) {
    let of_deployments =
        || raw.deployments.iter().enumerate().filter(|(_, deployment)| deployment.service == name);
    let mut texts: Vec<(String, &str)> = Vec::new();
    let at = |key: &str| format!("services.{name}.{key}");
    let commands =
        std::iter::once(&service.command).chain(&service.prepare).chain([&service.ready_command]);
    texts.extend(commands.flatten().map(|text| (at("command"), text.as_str())));
    texts.extend(service.env.iter().map(|(key, text)| (at(&format!("env.{key}")), text.as_str())));
    texts.extend(service.access.paths().map(|text| (at("access"), text)));
    texts.extend(
        service.files.iter().map(|(key, text)| (at(&format!("files.{key}")), text.as_str())),
    );
    texts
        .extend(service.vars.iter().map(|(key, text)| (at(&format!("vars.{key}")), text.as_str())));
    for (i, deployment) in of_deployments() {
        texts.extend(
            deployment.args.iter().map(|text| (format!("deployments[{i}].args"), text.as_str())),
        );
        texts.extend(
            deployment
                .env
                .iter()
                .map(|(key, text)| (format!("deployments[{i}].env.{key}"), text.as_str())),
        );
        for key in deployment.vars.keys().filter(|key| !service.vars.contains_key(*key)) {
            problems.refuse(
                format!("deployments[{i}].vars.{key}"),
                format!(
                    "is not a variable of the service {name:?}; give it a value in \
                     services.{name}.vars"
                ),
            );
        }
    }
    for (path, text) in texts {
        for unknown in placeholder::names(text)
            .filter(|word| !placeholder::KNOWN.contains(word) && !service.vars.contains_key(*word))
        {
            let known = placeholder::KNOWN.map(|name| format!("{{{name}}}")).join(" ");
            problems.refuse(
                path.clone(),
                format!(
                    "{{{unknown}}} is not known; the lab fills {known} and services.{name}.vars"
                ),
            );
        }
    }
}
