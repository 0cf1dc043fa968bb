//! `[[deployments]]`.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Problems, services};
use crate::experiment::file::{self, File};
use crate::experiment::{DeploymentSpec, INSTANCES_MAX, Proxy, ProxyKind, values};
use hotrow_proxies::haproxy;
use hotrow_proxies::nginx::{
    Balance, FAIL_TIMEOUT_MAX_S, Failover, GZIP_MAX, ProxyProfile, WEIGHT_MAX,
};

/// Most idle connections to backends.
const UPSTREAM_KEEPALIVE_MAX: u32 = 10_000;
/// Bounds of the load of an instance, in percent of the average.
const LOAD_BOUNDS: std::ops::RangeInclusive<u32> = 101..=10_000;

pub(super) fn deployments(raw: &File, folder: &Path, problems: &Problems) -> Vec<DeploymentSpec> {
    if raw.deployments.is_empty() {
        problems
            .refuse("deployments", "there is none; add [[deployments]] with a name and a service");
    }
    let mut names = BTreeSet::new();
    for (i, deployment) in raw.deployments.iter().enumerate() {
        problems.take(format!("deployments[{i}].name"), values::name(&deployment.name));
        if !names.insert(&deployment.name) {
            problems.refuse(
                format!("deployments[{i}].name"),
                format!("{:?} is defined twice; names must differ", deployment.name),
            );
        }
    }
    raw.deployments
        .iter()
        .enumerate()
        .map(|(i, deployment)| resolve(raw, i, deployment, folder, problems))
        .collect()
}

fn resolve(
    raw: &File,
    i: usize,
    deployment: &file::DeploymentSpec,
    folder: &Path,
    problems: &Problems,
) -> DeploymentSpec {
    let at = |key: &str| format!("deployments[{i}].{key}");
    for (key, name) in
        [("service", Some(&deployment.service)), ("database", deployment.database.as_ref())]
    {
        if let Some(name) = name.filter(|name| !raw.services.contains_key(*name)) {
            let known: Vec<&str> = raw.services.keys().map(String::as_str).collect();
            problems.refuse(
                at(key),
                format!("there is no service {name:?}; there are {}", known.join(", ")),
            );
        }
    }
    services::cores(at("cores"), deployment.cores, problems);
    let weights = weights(i, deployment, problems);
    let instances = weights.len();
    let fixed = raw.services.get(&deployment.service).and_then(|service| service.port);
    if let Some(port) = fixed.filter(|_| weights.len() > 1) {
        problems.refuse(
            at("instances"),
            format!("cannot be more than 1 of a service that always listens on port {port}"),
        );
    }
    if let Some(service) = raw.services.get(&deployment.service) {
        let (has_tls, has_unix) = (service.access.cacert.is_some(), service.access.unix.is_some());
        if deployment.proxy.is_some() && (has_tls || has_unix) {
            let what = "speaks cleartext over TCP to a service, and this one has access.cacert or \
                        access.unix";
            problems.refuse(at("proxy"), what);
        }
        if deployment.delay.is_some() && has_unix {
            problems.refuse(at("delay"), "is of TCP, and the service has access.unix");
        }
    }
    DeploymentSpec {
        name: deployment.name.clone(),
        service: deployment.service.clone(),
        database: deployment.database.clone(),
        spares: spares(i, deployment, weights.len(), problems),
        weights,
        proxy: deployment
            .proxy
            .as_ref()
            .map(|proxy| resolve_proxy(i, proxy, folder, instances, problems)),
        delay: problems.take_optional(
            at("delay"),
            deployment.delay.as_ref(),
            values::positive_duration,
        ),
        args: deployment.args.clone(),
        env: deployment.env.clone(),
        vars: deployment.vars.clone(),
        cores: deployment.cores,
        needs_env: deployment.needs_env.clone(),
    }
}

/// Returns the weight of each instance.
fn weights(i: usize, deployment: &file::DeploymentSpec, problems: &Problems) -> Vec<u32> {
    let at = |key: &str| format!("deployments[{i}].{key}");
    let given = deployment.weights.as_ref().map(Vec::len);
    let instances = deployment.instances.map_or(given.unwrap_or(1), |n| n as usize);
    if !(1..=INSTANCES_MAX as usize).contains(&instances) {
        problems.refuse(
            at("instances"),
            format!("must be between 1 and {INSTANCES_MAX}, not {instances}"),
        );
        return vec![1];
    }
    let weighted =
        deployment.proxy.as_ref().is_some_and(|proxy| proxy.balance == Some(Balance::Weights));
    if deployment.proxy.is_none() && instances > 1 {
        problems.refuse(
            at("proxy"),
            format!("is missing; {instances} instances need one in front of them"),
        );
    }
    if weighted != deployment.weights.is_some() {
        let what = "weights and proxy.balance = \"weights\" must be set together";
        problems.refuse(at("weights"), what);
    }
    let Some(weights) = &deployment.weights else { return vec![1; instances] };
    if weights.len() != instances {
        let what = format!("must have one weight per instance: {instances}, not {}", weights.len());
        problems.refuse(at("weights"), what);
    }
    let is_haproxy = deployment.proxy.as_ref().is_some_and(|p| p.kind == ProxyKind::Haproxy);
    let most = if is_haproxy { haproxy::WEIGHT_MAX } else { WEIGHT_MAX };
    if let Some(wrong) = weights.iter().find(|weight| !(1..=most).contains(*weight)) {
        problems.refuse(at("weights"), format!("must be between 1 and {most}, not {wrong}"));
    }
    weights.clone()
}

/// Returns the number of instances, the last ones, that only events start.
fn spares(
    i: usize,
    deployment: &file::DeploymentSpec,
    instances: usize,
    problems: &Problems,
) -> usize {
    let spares = deployment.spares as usize;
    let at = format!("deployments[{i}].spares");
    if spares >= instances && spares > 0 {
        problems.refuse(
            at.clone(),
            format!("must leave at least one of {instances} instances, not {spares}"),
        );
    }
    if spares > 0 && deployment.proxy.as_ref().is_some_and(|proxy| proxy.backups.is_some()) {
        problems.refuse(at, "cannot be combined with proxy.backups");
    }
    spares
}

fn resolve_proxy(
    i: usize,
    proxy: &file::Proxy,
    folder: &Path,
    instances: usize,
    problems: &Problems,
) -> Proxy {
    let at = |key: &str| format!("deployments[{i}].proxy.{key}");
    check_haproxy(proxy, &at, problems);
    let profile = match (proxy.profile, &proxy.template) {
        _ if proxy.kind == ProxyKind::Haproxy => ProxyProfile::Tuned,
        (Some(profile), None) => profile,
        (None, Some(_)) => ProxyProfile::Tuned,
        (None, None) => {
            problems.refuse(
                at("profile"),
                "is missing: \"published\" or \"tuned\"; or give a template",
            );
            ProxyProfile::Tuned
        }
        (Some(_), Some(_)) => {
            problems.refuse(
                at("profile"),
                "cannot be combined with template, which is a complete configuration",
            );
            ProxyProfile::Tuned
        }
    };
    if let Some(n) = proxy.upstream_keepalive.filter(|n| *n > UPSTREAM_KEEPALIVE_MAX) {
        problems.refuse(
            at("upstream_keepalive"),
            format!("must be at most {UPSTREAM_KEEPALIVE_MAX} connections, not {n}"),
        );
    }
    if let Some(level) = proxy.gzip.filter(|level| !(1..=GZIP_MAX).contains(level)) {
        problems.refuse(at("gzip"), format!("must be between 1 and {GZIP_MAX}, not {level}"));
    }
    if proxy.response_rate == Some(0) {
        problems.refuse(at("response_rate"), "must be above zero bytes per second");
    }
    let cache =
        problems.take_optional(at("cache"), proxy.cache.as_ref(), values::positive_duration);
    if cache.is_some_and(|cache| cache.subsec_nanos() != 0) {
        problems.refuse(at("cache"), "must be whole seconds; nginx has no finer unit");
    }
    Proxy {
        kind: proxy.kind,
        load_bound: proxy.load_bound,
        profile,
        balance: proxy.balance.unwrap_or(Balance::RoundRobin),
        gzip: proxy.gzip,
        response_rate: proxy.response_rate,
        failover: failover(proxy, instances, &at, problems),
        cache,
        upstream_keepalive: proxy.upstream_keepalive,
        access_log: proxy.access_log,
        tls: proxy.tls,
        template: proxy.template.as_ref().map(|name| folder.join(name)),
    }
}

/// Refuses keys that only the other program has.
fn check_haproxy(proxy: &file::Proxy, at: &dyn Fn(&str) -> String, problems: &Problems) {
    if let Some(percent) = proxy.load_bound {
        if proxy.kind != ProxyKind::Haproxy || proxy.balance != Some(Balance::HashOnId) {
            let what = "needs kind = \"haproxy\" and balance = \"hash_on_id\"";
            problems.refuse(at("load_bound"), what);
        }
        if !LOAD_BOUNDS.contains(&percent) {
            problems.refuse(
                at("load_bound"),
                format!(
                    "must be between {} and {} percent of the average, not {percent}",
                    LOAD_BOUNDS.start(),
                    LOAD_BOUNDS.end()
                ),
            );
        }
    }
    if proxy.kind == ProxyKind::Nginx {
        return;
    }
    for (key, is_set) in [
        ("profile", proxy.profile.is_some()),
        ("template", proxy.template.is_some()),
        ("gzip", proxy.gzip.is_some()),
        ("response_rate", proxy.response_rate.is_some()),
        ("max_fails", proxy.max_fails.is_some()),
        ("fail_timeout", proxy.fail_timeout.is_some()),
        ("backups", proxy.backups.is_some()),
        ("cache", proxy.cache.is_some()),
        ("upstream_keepalive", proxy.upstream_keepalive.is_some()),
        ("access_log", proxy.access_log),
        ("tls", proxy.tls),
    ] {
        if is_set {
            let what = "is a setting of nginx; of HAProxy: balance, load_bound and retry";
            problems.refuse(at(key), what);
        }
    }
}

/// Returns the handling of failed backends.
fn failover(
    proxy: &file::Proxy,
    instances: usize,
    at: &dyn Fn(&str) -> String,
    problems: &Problems,
) -> Failover {
    let backups = proxy.backups.unwrap_or(0) as usize;
    if backups >= instances && backups > 0 {
        problems.refuse(
            at("backups"),
            format!("must leave at least one of {instances} instances, not {backups}"),
        );
    }
    if backups > 0 && proxy.balance.is_some_and(|balance| !balance.allows_backups()) {
        problems.refuse(at("backups"), "cannot be combined with this balance; nginx refuses it");
    }
    let timeout = problems.take_optional(
        at("fail_timeout"),
        proxy.fail_timeout.as_ref(),
        values::positive_duration,
    );
    let most = u64::from(FAIL_TIMEOUT_MAX_S);
    if timeout.is_some_and(|time| time.subsec_nanos() != 0 || time.as_secs() > most) {
        problems.refuse(at("fail_timeout"), format!("must be whole seconds, at most {most}"));
    }
    Failover {
        max_fails: proxy.max_fails,
        fail_timeout_s: timeout.and_then(|time| u32::try_from(time.as_secs()).ok()),
        backups,
        retry: proxy.retry.unwrap_or(true),
    }
}
