//! Settings that limit nothing but cost speed or make measurements unreliable.

use super::goal::Goal;
use super::limit_verdict::{Commands, LimitVerdict, Rule, Sufficiency};
use super::limits::Limits;
use crate::probe::cpu::CpuTime;
use crate::root::{ProbeResult, read_optional, read_value};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("CPU governor", governor),
    ("transparent huge pages", huge_pages),
    ("clock source", clock_source),
    ("virtualisation", virtualisation),
];

/// Clocks that a program reads without a system call.
const FAST_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource"];
/// Share of stolen time from which measurements suffer.
const STEAL_SHARE: f64 = 0.01;

fn governor(limits: &Limits, _: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    // Most virtual machines have no governor: the host sets the frequency.
    let Some(governor) = read_optional(&limits.governor)? else { return Ok(None) };
    let fine = governor == "performance";
    let mut verdict = LimitVerdict::quality(
        "CPU governor",
        governor.clone(),
        if fine { Sufficiency::Yes } else { Sufficiency::Tight },
    );
    if !fine {
        verdict.raise = Commands {
            now: vec!["cpupower frequency-set -g performance".to_owned()],
            permanent: vec![
                "GOVERNOR=performance    # in /etc/default/cpufrequtils, or a tuned profile"
                    .to_owned(),
            ],
        };
    }
    let why = "others change the frequency with the load: latencies at low load are longer, and \
               runs differ"
        .to_owned();
    Ok(Some(verdict.because(why, "Documentation/admin-guide/pm/cpufreq.rst")))
}

fn huge_pages(limits: &Limits, _: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let Some(text) = read_optional(&limits.huge_pages)? else { return Ok(None) };
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text.as_str(), |(word, _)| word);
    let enough = if chosen == "always" { Sufficiency::Tight } else { Sufficiency::Yes };
    let mut verdict = LimitVerdict::quality("transparent huge pages", chosen.to_owned(), enough);
    if enough == Sufficiency::Tight {
        verdict.raise = Commands {
            now: vec!["echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".to_owned()],
            permanent: vec![
                "transparent_hugepage=madvise    # on the kernel's command line".to_owned(),
            ],
        };
    }
    let why =
        "with always, memory comes and is gathered in pieces of 2 MiB: more of it, and pauses"
            .to_owned();
    Ok(Some(verdict.because(why, "Documentation/admin-guide/mm/transhuge.rst")))
}

fn clock_source(limits: &Limits, _: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let current = read_value(&limits.clock_source)?;
    let fine = FAST_CLOCKS.contains(&current.as_str());
    let mut verdict = LimitVerdict::quality(
        "clock source",
        current.clone(),
        if fine { Sufficiency::Yes } else { Sufficiency::Tight },
    );
    let available = read_optional(&limits.clock_sources)?.map_or("", String::as_str);
    let better = FAST_CLOCKS
        .iter()
        .find(|clock| available.split_ascii_whitespace().any(|name| name == **clock));
    match better {
        Some(better) if !fine => {
            let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            verdict.raise = Commands {
                now: vec![format!("echo {better} > {file}")],
                permanent: vec![format!("clocksource={better}    # on the kernel's command line")],
            };
            verdict.note = Some(
                "the kernel left it for a reason, as it found it unsteady: see dmesg | grep -i \
                 clock"
                    .to_owned(),
            );
        }
        _ => {}
    }
    let why =
        "other clocks are read through a system call, around a microsecond each, twice for every \
         request"
            .to_owned();
    Ok(Some(verdict.because(why, "vdso(7); Documentation/timers/timekeeping.rst")))
}

fn virtualisation(limits: &Limits, _: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let (hypervisor, stat) = (*read_value(&limits.hypervisor)?, read_value(&limits.cpu_times)?);
    let total = stat.cores.iter().fold(0_u64, |sum, (_, time)| sum.saturating_add(time.total()));
    let stolen = stat
        .cores
        .iter()
        .fold(0_u64, |sum, (_, time): &(u32, CpuTime)| sum.saturating_add(time.steal));
    let share = stolen as f64 / total.max(1) as f64;
    let enough = if share > STEAL_SHARE { Sufficiency::Tight } else { Sufficiency::Yes };
    let kind = if hypervisor { "virtual machine" } else { "none seen" };
    let mut verdict = LimitVerdict::quality(
        "virtualisation",
        format!("{kind}, {:.1} % of CPU time stolen", share * 100.0),
        enough,
    );
    if enough == Sufficiency::Tight {
        verdict.raise.now.push("a host with fewer neighbours, or CPUs of its own".to_owned());
    }
    let formula =
        format!("{stolen} of {total} ticks since the machine began went to other machines");
    Ok(Some(verdict.because(formula, "proc_stat(5), steal")))
}
