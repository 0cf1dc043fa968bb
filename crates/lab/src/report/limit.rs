//! What limited a measurement, from the CPU that its tiers used. It cannot see locks, disks or networks: it says so.

use super::numbers::{cores, number, percent};
use super::summary::Run;
use crate::results::{Part, Row, Tier};

/// From this share of its limit on a process group is at it.
const AT_LIMIT: f64 = 0.95;
/// From this share of throttled periods on, too.
const THROTTLED: f64 = 0.5;
/// But not below this share of its limit: who hardly works may be held up whenever he does, and keeps nobody waiting.
const WORKS: f64 = 0.2;
/// From this share of all CPUs on they are busy. The rest goes to the kernel's work for interrupts, which belongs to nobody.
const ALL_BUSY: f64 = 0.9;
/// A process group that uses this much of one core and no more may have only one thread that works.
const ONE_CORE: std::ops::RangeInclusive<f64> = 0.93..=1.04;
/// A rate that was asked for was kept from this share on.
const RATE_KEPT: f64 = 0.99;

/// What limited a measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Limited {
    /// The generator: the service may do more.
    Generator,
    /// Nothing: the rate that was asked for was kept.
    Nothing { asked: f64 },
    /// The CPU limits of process groups: all of a tier, or some while others had room.
    OwnLimit { part: Part, names: Vec<String>, used: f64, of: f64, all: bool },
    /// All CPUs of the machine.
    AllCpus { used: f64, of: u32 },
    /// One core, of a process group that has no limit.
    OneCore { part: Part, name: String },
    /// A single connection, on which each request waits for the answer before it.
    OneConnection { used: f64, of: u32 },
    /// Something that is not the CPU.
    NotTheCpu { used: f64, of: u32 },
    /// No CPU was sampled.
    Unknown,
}

/// Judges one measurement of a row on a machine with `cpus`.
pub(super) fn judge(run: &Run<'_>, row: &Row, cpus: u32) -> Limited {
    let window_s = run.load.window_s;
    if run.load.generator_limited {
        return Limited::Generator;
    }
    if let Some(asked) = row.rate.filter(|asked| run.load.rps >= asked * RATE_KEPT) {
        return Limited::Nothing { asked };
    }
    let tiers = &run.of.tiers;
    let Some(used) = run.cores(|_| true) else { return Limited::Unknown };
    for part in [Part::Service, Part::Proxy, Part::Database] {
        let of_part: Vec<&Tier> = tiers.iter().filter(|tier| tier.part == part).collect();
        let full = at_limit(&of_part, window_s);
        if !full.is_empty() {
            return Limited::OwnLimit {
                part,
                names: full.iter().map(|tier| tier.name.clone()).collect(),
                used: full.iter().map(|tier| tier.cpu_s / window_s).sum(),
                of: full.iter().filter_map(|tier| tier.limit_cores).sum(),
                all: full.len() == of_part.len(),
            };
        }
    }
    if used >= f64::from(cpus) * ALL_BUSY {
        return Limited::AllCpus { used, of: cpus };
    }
    let one = tiers
        .iter()
        .find(|tier| tier.part != Part::Generator && cpus > 1 && ONE_CORE.contains(&(tier.cpu_s / window_s)));
    match one {
        Some(tier) => Limited::OneCore { part: tier.part, name: tier.name.clone() },
        None if row.connections == 1 && row.rate.is_none() => Limited::OneConnection { used, of: cpus },
        None => Limited::NotTheCpu { used, of: cpus },
    }
}

/// Cores in use of all, in per cent.
fn share(used: f64, of: u32) -> String {
    percent(used / f64::from(of.max(1)))
}

/// Cores in use of those that limits allow. Who is held up whenever he works may use less on average.
fn at_most(used: f64, of: f64) -> String {
    let held_up = if used < of * AT_LIMIT { ", held up whenever it works" } else { "" };
    format!("{} of {} cores{held_up}", cores(used), cores(of))
}

/// Those of a tier that used their limits up; where none did, those that were held up most of the time that they worked.
fn at_limit<'a>(tiers: &[&'a Tier], window_s: f64) -> Vec<&'a Tier> {
    let chosen = |keep: &dyn Fn(&Tier) -> bool| tiers.iter().copied().filter(|tier| keep(tier)).collect::<Vec<_>>();
    let full = chosen(&|tier| tier.limit_cores.is_some_and(|limit| tier.cpu_s / window_s >= limit * AT_LIMIT));
    if !full.is_empty() {
        return full;
    }
    chosen(&|tier| tier.throttled.is_some_and(|share| share >= THROTTLED) && works(tier, window_s))
}

/// Whether a tier used enough of its limit to be kept from more by it.
fn works(tier: &Tier, window_s: f64) -> bool {
    tier.limit_cores.is_none_or(|limit| tier.cpu_s / window_s >= limit * WORKS)
}

/// Whether any limit can have held a run up, by what was used of it.
pub(super) fn any_limit_counts(run: &Run<'_>) -> bool {
    let mut limited = run.of.tiers.iter().filter(|tier| tier.limit_cores.is_some()).peekable();
    // What limits itself, or was limited by others than the lab, is not known here.
    limited.peek().is_none() || limited.any(|tier| works(tier, run.load.window_s))
}

/// The name of a tier in a sentence.
pub(super) fn tier_name(part: Part) -> &'static str {
    match part {
        Part::Service => "service",
        Part::Proxy => "proxy",
        Part::Database => "database",
        Part::Generator => "generator",
    }
}

impl Limited {
    /// The class of the findings that say the same; where there is none, a name of its own.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::Generator => "Generator",
            Self::Nothing { .. } => "Nothing",
            Self::OwnLimit { .. } => "Throttled",
            Self::AllCpus { .. } => "AllCpus",
            Self::OneCore { part: Part::Proxy, .. } => "Proxy",
            Self::OneCore { .. } => "OneThread",
            Self::OneConnection { .. } => "OneConnection",
            Self::NotTheCpu { .. } => "NotTheCpu",
            Self::Unknown => "Unknown",
        }
    }

    /// In two or three words.
    pub(super) fn short(&self) -> String {
        match self {
            Self::Generator => "the generator".to_owned(),
            Self::Nothing { .. } => "nothing".to_owned(),
            Self::OwnLimit { part, all: true, .. } => format!("CPU limit of the {}", tier_name(*part)),
            Self::OwnLimit { names, .. } => format!("CPU limit of {}", names.join(", ")),
            Self::AllCpus { .. } => "all CPUs".to_owned(),
            Self::OneCore { part, .. } => format!("one core of the {}", tier_name(*part)),
            Self::OneConnection { .. } => "its one connection".to_owned(),
            Self::NotTheCpu { .. } => "not the CPU".to_owned(),
            Self::Unknown => "unknown".to_owned(),
        }
    }

    /// In a few words for a table.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Generator => "the generator: the rate is a lower bound".to_owned(),
            Self::Nothing { asked } => {
                format!("nothing: it kept the {} requests/s that were asked for", number(*asked))
            }
            Self::OwnLimit { part, used, of, all: true, .. } => {
                format!("the CPU limit of the {} ({})", tier_name(*part), at_most(*used, *of))
            }
            Self::OwnLimit { names, used, of, .. } => {
                format!(
                    "the CPU limit of {} ({}), while others of its tier had room",
                    names.join(", "),
                    at_most(*used, *of)
                )
            }
            Self::AllCpus { used, of } => format!("the CPUs of this machine ({} of {of} cores in use)", cores(*used)),
            Self::OneCore { part, name } => {
                format!("probably one core: the {} {name} used just one, as one busy thread does", tier_name(*part))
            }
            Self::OneConnection { used, of } => {
                format!("its one connection, which waits for each answer ({} of the CPUs in use)", share(*used, *of))
            }
            Self::NotTheCpu { used, of } => format!("not the CPU ({} in use)", share(*used, *of)),
            Self::Unknown => "unknown: no CPU was sampled".to_owned(),
        }
    }
}
