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

/// The processor model.
pub const CPUINFO_FILE: &str = "proc/cpuinfo";
/// Fields with the model name, in order of preference: x86 has the first, Arm only numbers, others
/// one of the rest.
const MODEL_FIELDS: [&str; 5] = ["model name", "Model", "cpu model", "uarch", "CPU part"];
/// Longest accepted name, in bytes.
const MODEL_BYTES_MAX: usize = 200;

/// Returns the name of the first processor; `None` when absent.
pub fn parse_model(text: &str) -> Option<String> {
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|(field, value)| field.trim() == name && !value.trim().is_empty())
            .map(|(_, value)| value.trim())
    };
    let name = MODEL_FIELDS.iter().find_map(|name| field(name))?;
    (name.len() <= MODEL_BYTES_MAX).then(|| name.to_owned())
}

/// Load and number of threads.
pub const LOADAVG_FILE: &str = "proc/loadavg";

/// The relevant fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadAverage {
    /// Runnable or I/O-blocked threads; exponentially decaying mean of one minute.
    pub one_minute: f64,
    /// Currently runnable threads.
    pub running: u64,
    /// Threads of the machine, the kernel's included; in a container too.
    pub threads: u64,
}

/// Parses `0.20 0.18 0.12 1/80 11206`.
pub fn parse_load(text: &str) -> Option<LoadAverage> {
    let mut words = text.split_ascii_whitespace();
    let one_minute: f64 = number(&mut words)?;
    let (running, threads) = words.nth(2)?.split_once('/')?;
    one_minute.is_finite().then_some(())?;
    Some(LoadAverage { one_minute, running: running.parse().ok()?, threads: threads.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_name_is_taken() {
        let x86 = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Xeon @ 2.0GHz\nflags : a \
                   b\n\nprocessor : 1\n";
        let arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU part\t: 0xd0c\n";
        assert_eq!(parse_model(x86).as_deref(), Some("Xeon @ 2.0GHz"));
        assert_eq!(parse_model(arm).as_deref(), Some("0xd0c"));
        assert_eq!(parse_model("processor : 0\nmodel name :\n"), None);
        assert_eq!(parse_model(&format!("model name : {}", "x".repeat(MODEL_BYTES_MAX + 1))), None);
    }
}
