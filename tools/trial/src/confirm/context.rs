//! What a finished load says of the trials that are possible.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hotrow_diagnose::hypothesis::Context;
use hotrow_diagnose::probe::group::PERIODS_MIN;
use hotrow_diagnose::samples::{Role, Samples};
use hotrow_load::bottleneck::RATE_KEPT;
use hotrow_load::outcome::Outcome;
use hotrow_load::plan;
use hotrow_load::run::{CONNECTIONS_MAX, Config};
use hotrow_load::stats::CensoredNs;
use rustix::process::{Resource, getrlimit};

/// Open files of this process besides connections.
const FILES_SPARE: u64 = 64;
/// Factor by which the 99th percentile may exceed the median of quick responses.
const TAIL: u32 = 4;

/// Returns the context of a finished load, for planning trials.
pub fn context(config: &Config, outcome: &Outcome, samples: &Samples, local: bool) -> Context {
    let service = samples.with_role(Role::Service);
    let throttled = samples
        .with_role(Role::Generator)
        .any(|own| own.group.is_some_and(|g| g.throttled_periods > 0));
    let target_rps = match config.plan.model {
        plan::LoadModel::Closed => None,
        plan::LoadModel::Open { .. } => outcome.target_rate,
    };
    Context {
        connections: config.connections,
        connections_max: connections_max(),
        threads: config.threads,
        threads_max: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        target_rps,
        target_max_rps: None,
        answered_rps: outcome.throughput_rps(),
        kept: outcome.rate_ratio().is_some_and(|ratio| ratio >= RATE_KEPT),
        keepalive: config.keepalive,
        get: config.requests.as_head().is_some(),
        local,
        cpus: samples.cores.len().max(1),
        idle_cores: samples.idle_cores(),
        generator_busy: outcome.cpu_share(),
        generator_us_per_request: outcome.cpu_us_per_request().unwrap_or(0.0),
        generator_throttled: throttled,
        unread_share: service.filter_map(|process| process.unread_share).reduce(f64::max),
        answer_typical: typical_response_time(outcome),
        most_throttled: most_throttled(samples),
        quota: false,
    }
}

/// Returns the group that throttled a process of the service in the largest share of its periods;
/// `None` if none did.
fn most_throttled(samples: &Samples) -> Option<Arc<Path>> {
    let shares = samples.with_role(Role::Service).filter_map(|process| {
        let group = process
            .group
            .filter(|group| group.throttled_periods > 0 && group.periods >= PERIODS_MIN)?;
        Some((
            process.held_in.clone()?,
            group.throttled_periods as f64 / group.periods.max(1) as f64,
        ))
    });
    shares.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(group, _)| group)
}

/// Returns the median response time, or a part of the 99th percentile if that is longer.
fn typical_response_time(outcome: &Outcome) -> Duration {
    let latency = &outcome.total.latency;
    let median = latency.quantile(0.5).map_or(u64::MAX, CensoredNs::ns);
    let tail = latency.answered.value_at_quantile(0.99).unwrap_or_default() / u64::from(TAIL);
    Duration::from_nanos(median.max(tail))
}

/// Returns the number of connections that the limit on open files allows.
fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(FILES_SPARE);
    usize::try_from(files).unwrap_or(usize::MAX).min(CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use hotrow_diagnose::probe::group::GroupCounters;
    use hotrow_diagnose::samples::WatchedProcess;

    use super::*;

    #[test]
    fn the_most_throttled_group_is_chosen() {
        let process = |pid, role, throttled_periods| {
            let group =
                Some(GroupCounters { periods: 100, throttled_periods, ..GroupCounters::default() });
            let held_in = (throttled_periods > 0).then(|| PathBuf::from(format!("/{pid}")).into());
            WatchedProcess { pid, role, group, held_in, ..WatchedProcess::default() }
        };
        let of = |processes| most_throttled(&Samples { processes, ..Samples::default() });
        let service = |pid, throttled| process(pid, Role::Service, throttled);
        assert_eq!(
            of(vec![service(1, 5), service(2, 90), process(3, Role::Generator, 99)]),
            Some(Path::new("/2").into())
        );
        assert_eq!(of(vec![service(1, 0), process(3, Role::Generator, 99)]), None);
    }
}
