//! CPU times: `/proc/stat`.

use super::number;

/// The file's path.
pub const FILE: &str = "proc/stat";

/// Time of one CPU since boot, in ticks of 1/100 s (proc_stat(5)). `user` and `nice` include guest
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// User mode.
    pub user: u64,
    /// User mode at low priority.
    pub nice: u64,
    /// Kernel mode on behalf of programs.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle with an outstanding disk request. Not reliable, according to the kernel's
    /// documentation.
    pub iowait: u64,
    /// Interrupts.
    pub irq: u64,
    /// Deferred interrupt work, including most of the network's.
    pub softirq: u64,
    /// Runnable while the hypervisor ran another machine.
    pub steal: u64,
}

/// The parsed file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// Online CPUs by number.
    pub cores: Vec<(u32, CpuTime)>,
    /// Context switches since boot.
    pub context_switches: u64,
    /// Runnable threads.
    pub running: u64,
    /// Threads blocked on I/O.
    pub blocked: u64,
}

/// Shares of a CPU's time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuShares {
    /// Work of any kind, user and kernel.
    pub busy: f64,
    /// The part of `busy` in interrupts and deferred interrupt work.
    pub interrupts: f64,
    /// Stolen by the hypervisor.
    pub steal: f64,
    /// Idle with an outstanding disk request.
    pub iowait: f64,
}

/// Parses the file.
#[must_use]
pub fn parse(text: &str) -> Option<CpuStat> {
    let mut stat = CpuStat::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("ctxt") => stat.context_switches = number(&mut words)?,
            Some("procs_running") => stat.running = number(&mut words)?,
            Some("procs_blocked") => stat.blocked = number(&mut words)?,
            Some(name) => {
                let cpu = name.strip_prefix("cpu").and_then(|cpu| cpu.parse().ok());
                if let Some(cpu) = cpu {
                    stat.cores.push((cpu, time(&mut words)?));
                }
            }
            None => {}
        }
    }
    (!stat.cores.is_empty()).then_some(stat)
}

fn time<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<CpuTime> {
    let mut next = || number(words);
    Some(CpuTime {
        user: next()?,
        nice: next()?,
        system: next()?,
        idle: next()?,
        iowait: next()?,
        irq: next()?,
        softirq: next()?,
        steal: next()?,
    })
}

impl CpuTime {
    /// Returns the sum of all times, in ticks.
    #[must_use]
    pub fn total(&self) -> u64 {
        let idle = self.idle.saturating_add(self.iowait);
        self.busy().saturating_add(idle).saturating_add(self.steal)
    }

    fn busy(&self) -> u64 {
        [self.user, self.nice, self.system, self.irq, self.softirq]
            .iter()
            .fold(0, |sum, part| sum.saturating_add(*part))
    }

    /// Returns the increase since `earlier`. `iowait` may decrease (proc_stat(5)); it then counts
    /// as 0.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            nice: self.nice.saturating_sub(earlier.nice),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// Returns shares of the total; `None` for a total of zero.
    #[must_use]
    pub fn shares(&self) -> Option<CpuShares> {
        let total = self.total();
        let share = |part: u64| part as f64 / total as f64;
        (total > 0).then(|| CpuShares {
            busy: share(self.busy()),
            interrupts: share(self.irq.saturating_add(self.softirq)),
            steal: share(self.steal),
            iowait: share(self.iowait),
        })
    }
}
