//! What each CPU did: `/proc/stat`.

use super::number;

/// The file.
pub const FILE: &str = "proc/stat";

/// Time of one CPU since the machine began, in ticks of 1/100 s (proc_stat(5)). Time of guests is in `user` and `nice`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Programs.
    pub user: u64,
    /// Programs of low priority.
    pub nice: u64,
    /// The kernel for programs.
    pub system: u64,
    /// Nothing to do.
    pub idle: u64,
    /// Nothing to do while something waited for a disk. Not reliable, says the kernel's documentation.
    pub iowait: u64,
    /// Interrupts.
    pub irq: u64,
    /// The kernel's work after interrupts, such as most of the network's.
    pub softirq: u64,
    /// Wanted to run, but the hypervisor ran another machine.
    pub steal: u64,
}

/// All that the file tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// The CPUs that are online, by number.
    pub cores: Vec<(u32, CpuTime)>,
    /// Switches between threads since the machine began.
    pub context_switches: u64,
    /// Threads that run or could.
    pub running: u64,
    /// Threads that wait for a disk or the like.
    pub blocked: u64,
}

/// Shares of a CPU's time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuShares {
    /// Work of any kind, programs and kernel.
    pub busy: f64,
    /// The part of `busy` that was interrupts and the work after them.
    pub interrupts: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    /// Idle while something waited for a disk.
    pub iowait: f64,
}

/// Reads the file's text.
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
    /// Sum of all, in ticks.
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

    /// What was added since `earlier`. `iowait` may go back (proc_stat(5)); then nothing was.
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

    /// As shares of the total; none of no time at all.
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
