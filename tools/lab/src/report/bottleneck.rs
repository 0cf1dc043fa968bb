//! The bottleneck of a measurement, from the CPU time of its tiers. Locks, disks and networks are
//! not visible here.

use super::summary::Run;
use hotrow_report::numbers::{cores, number, percent};
use hotrow_results::{Row, Tier, TierKind};

/// Share of its CPU limit from which a process group is at the limit.
const AT_LIMIT: f64 = 0.95;
/// Share of throttled periods from which it is, too.
const THROTTLED: f64 = 0.5;
/// Smallest share of its limit for that: a mostly idle group may be throttled in its bursts without
/// delaying others.
const WORKS: f64 = 0.2;
/// Share of all CPUs from which they are busy. The rest is interrupt work, which no process is
/// charged for.
const ALL_BUSY: f64 = 0.9;
/// Cores of a process group that probably has a single busy thread.
const ONE_CORE: std::ops::RangeInclusive<f64> = 0.93..=1.04;
/// Share of the requested rate from which it was reached.
const RATE_KEPT: f64 = 0.99;

/// Bottleneck of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bottleneck {
    /// The generator; the service may do more.
    Generator,
    /// None: the requested rate was reached.
    Nothing { asked: f64 },
    /// CPU limits of process groups: all of a tier, or some while others had room.
    OwnLimit { kind: TierKind, names: Vec<String>, used: f64, of: f64, all: bool },
    /// All CPUs of the machine.
    AllCpus { used: f64, of: u32 },
    /// One core, of a process group without limit.
    OneCore { kind: TierKind, name: String },
    /// A single connection, on which each request waits for the previous response.
    OneConnection { used: f64, of: u32 },
    /// Something other than the CPU.
    NotTheCpu { used: f64, of: u32 },
    /// No CPU was sampled.
    Unknown,
}

/// Determines the bottleneck of one measurement on a machine with `cpus`.
pub(super) fn bottleneck_of(run: &Run<'_>, row: &Row, cpus: u32) -> Bottleneck {
    if run.load.generator_limited {
        return Bottleneck::Generator;
    }
    if let Some(asked) = row.rate.filter(|asked| run.load.rps >= asked * RATE_KEPT) {
        return Bottleneck::Nothing { asked };
    }
    let tiers = &run.of.tiers;
    let Some(used) = run.cores(cpus) else { return Bottleneck::Unknown };
    for kind in [TierKind::Service, TierKind::Proxy, TierKind::Database] {
        let of_part: Vec<&Tier> = tiers.iter().filter(|tier| tier.kind == kind).collect();
        let full = at_limit(&of_part, run);
        if !full.is_empty() {
            return Bottleneck::OwnLimit {
                kind,
                names: full.iter().map(|tier| tier.name.clone()).collect(),
                used: full.iter().map(|tier| run.tier_cores(tier)).sum(),
                of: full.iter().filter_map(|tier| tier.limit_cores).sum(),
                all: full.len() == of_part.len(),
            };
        }
    }
    if used >= f64::from(cpus) * ALL_BUSY {
        return Bottleneck::AllCpus { used, of: cpus };
    }
    let one = tiers.iter().find(|tier| {
        tier.kind != TierKind::Generator && cpus > 1 && ONE_CORE.contains(&run.tier_cores(tier))
    });
    match one {
        Some(tier) => Bottleneck::OneCore { kind: tier.kind, name: tier.name.clone() },
        None if row.connections == 1 && row.rate.is_none() => {
            Bottleneck::OneConnection { used, of: cpus }
        }
        None => Bottleneck::NotTheCpu { used, of: cpus },
    }
}

/// Formats the cores in use as a percentage.
fn share(used: f64, of: u32) -> String {
    percent(used / f64::from(of.max(1)))
}

/// Formats the cores in use of the limit. A group throttled in its bursts may use less on average.
fn at_most(used: f64, of: f64) -> String {
    let held_up = if used < of * AT_LIMIT { ", throttled in its bursts" } else { "" };
    format!("{} of {} cores{held_up}", cores(used), cores(of))
}

/// Returns the groups of a tier that used up their limits; if none did, those throttled for most of
/// their active time.
fn at_limit<'a>(tiers: &[&'a Tier], run: &Run<'_>) -> Vec<&'a Tier> {
    let chosen = |keep: &dyn Fn(&Tier) -> bool| {
        tiers.iter().copied().filter(|tier| keep(tier)).collect::<Vec<_>>()
    };
    let full = chosen(&|tier| {
        tier.limit_cores.is_some_and(|limit| run.tier_cores(tier) >= limit * AT_LIMIT)
    });
    if !full.is_empty() {
        return full;
    }
    chosen(&|tier| tier.throttled.is_some_and(|share| share >= THROTTLED) && works(tier, run))
}

/// Returns whether a group used enough of its limit for throttling to matter.
fn works(tier: &Tier, run: &Run<'_>) -> bool {
    tier.limit_cores.is_none_or(|limit| run.tier_cores(tier) >= limit * WORKS)
}

/// Returns whether any CPU limit can be the bottleneck, by its usage.
pub(super) fn any_limit_counts(run: &Run<'_>) -> bool {
    let mut limited = run.of.tiers.iter().filter(|tier| tier.limit_cores.is_some()).peekable();
    // Limits set by the service itself or outside the lab are not known here.
    limited.peek().is_none() || limited.any(|tier| works(tier, run))
}

/// Returns the name of a tier for a sentence.
pub(super) fn tier_name(kind: TierKind) -> &'static str {
    match kind {
        TierKind::Service => "service",
        TierKind::Proxy => "proxy",
        TierKind::Database => "database",
        TierKind::Generator => "generator",
    }
}

impl Bottleneck {
    /// Returns the corresponding class of findings, or a name of its own.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::Generator => "Generator",
            Self::Nothing { .. } => "Nothing",
            Self::OwnLimit { .. } => "Throttled",
            Self::AllCpus { .. } => "AllCpus",
            Self::OneCore { kind: TierKind::Proxy, .. } => "Proxy",
            Self::OneCore { .. } => "OneThread",
            Self::OneConnection { .. } => "OneConnection",
            Self::NotTheCpu { .. } => "NotTheCpu",
            Self::Unknown => "Unknown",
        }
    }

    /// Describes it in two or three words.
    pub(super) fn short(&self) -> String {
        match self {
            Self::Generator => "the generator".to_owned(),
            Self::Nothing { .. } => "nothing".to_owned(),
            Self::OwnLimit { kind, all: true, .. } => {
                format!("CPU limit of the {}", tier_name(*kind))
            }
            Self::OwnLimit { names, .. } => format!("CPU limit of {}", names.join(", ")),
            Self::AllCpus { .. } => "all CPUs".to_owned(),
            Self::OneCore { kind, .. } => format!("one core of the {}", tier_name(*kind)),
            Self::OneConnection { .. } => "its one connection".to_owned(),
            Self::NotTheCpu { .. } => "not the CPU".to_owned(),
            Self::Unknown => "unknown".to_owned(),
        }
    }

    /// Describes it for a table.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Generator => "the generator: the rate is a lower bound".to_owned(),
            Self::Nothing { asked } => {
                format!("nothing: it reached the requested {} requests/s", number(*asked))
            }
            Self::OwnLimit { kind, used, of, all: true, .. } => {
                format!("the CPU limit of the {} ({})", tier_name(*kind), at_most(*used, *of))
            }
            Self::OwnLimit { names, used, of, .. } => {
                format!(
                    "the CPU limit of {} ({}), while others of its tier had room",
                    names.join(", "),
                    at_most(*used, *of)
                )
            }
            Self::AllCpus { used, of } => {
                format!("the CPUs of this machine ({} of {of} cores in use)", cores(*used))
            }
            Self::OneCore { kind, name } => {
                format!(
                    "probably one core: the {} {name} used just one, as one busy thread does",
                    tier_name(*kind)
                )
            }
            Self::OneConnection { used, of } => {
                format!(
                    "its one connection, which waits for each answer ({} of the CPUs in use)",
                    share(*used, *of)
                )
            }
            Self::NotTheCpu { used, of } => format!("not the CPU ({} in use)", share(*used, *of)),
            Self::Unknown => "unknown: no CPU was sampled".to_owned(),
        }
    }
}
