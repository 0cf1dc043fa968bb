//! Counts of a model's system calls, in a separate run: `perf stat` if permitted, else `strace -c`,
//! which slows every call down.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::results::Calls;
use super::undo::Undo;

/// System calls that are counted; some are summed.
const NAMES: [&str; 5] = ["futex", "clone", "clone3", "mmap", "mprotect"];
/// Polling interval of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A counting program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Perf,
    Strace,
}

impl Counter {
    /// Finds the first program that works here, by a trial on `true`.
    ///
    /// # Errors
    /// The reasons why none works.
    pub(super) fn find() -> Result<Self, String> {
        let mut reasons = Vec::new();
        for counter in [Self::Perf, Self::Strace] {
            let mut command = counter.command();
            command.arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            match command.output() {
                Ok(output) if output.status.success() && counter.understood(&output.stderr) => {
                    return Ok(counter);
                }
                Ok(output) => reasons.push(format!(
                    "{} reports no counts here ({})",
                    counter.name(),
                    output.status
                )),
                Err(error) => reasons.push(format!("{}: {error}", counter.name())),
            }
        }
        Err(reasons.join("; "))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Strace => "strace",
        }
    }

    fn command(self) -> Command {
        let mut command = Command::new(self.name());
        match self {
            Self::Perf => {
                let events: Vec<String> =
                    NAMES.iter().map(|name| format!("syscalls:sys_enter_{name}")).collect();
                command.args(["stat", "-x", ",", "-e", &events.join(","), "--"])
            }
            Self::Strace => {
                command.args(["-f", "-qq", "-c", "-e", &format!("trace={}", NAMES.join(","))])
            }
        };
        command.env("LC_ALL", "C");
        command
    }

    fn understood(self, text: &[u8]) -> bool {
        let counts = self.parse(&String::from_utf8_lossy(text));
        // Even `true` maps memory.
        counts.get("mmap").is_some_and(|count| *count > 0)
    }

    /// Runs a program under the counter, for at most `limit`.
    pub(super) fn count(
        self,
        program: &Command,
        scale: f64,
        limit: Duration,
        stop: &AtomicBool,
        undo: &Undo,
    ) -> Calls {
        let not = |why: String| Calls::NotCounted { why };
        let mut command = self.command();
        command.arg(program.get_program()).args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = match undo.spawn(&mut command) {
            Ok(child) => child,
            Err(error) => return not(format!("{}: {error}", self.name())),
        };
        let Some(mut stderr) = child.stderr.take() else {
            return not("its output cannot be read".to_owned());
        };
        let reading = thread::spawn(move || {
            let mut text = Vec::new();
            // Output before a read error is parsed like any other.
            let _ = std::io::Read::read_to_end(&mut stderr, &mut text);
            text
        });
        let ended = wait(&mut child, limit, stop);
        undo.ended();
        let text = reading.join().unwrap_or_default();
        if let Err(why) = ended {
            return not(why);
        }
        let counts = self.parse(&String::from_utf8_lossy(&text));
        let of = |name: &str| counts.get(name).copied().unwrap_or_default();
        if counts.is_empty() {
            return not(format!("{} reported nothing", self.name()));
        }
        Calls::Counted {
            by: self.name().to_owned(),
            scale,
            futex: of("futex"),
            clone: of("clone") + of("clone3"),
            mmap: of("mmap"),
            mprotect: of("mprotect"),
        }
    }

    /// Parses the counter's output into counts by name.
    fn parse(self, text: &str) -> HashMap<String, u64> {
        let line = |line: &str| -> Option<(String, u64)> {
            match self {
                // `123,,syscalls:sys_enter_futex,456,100.00,,`
                Self::Perf => {
                    let mut cells = line.split(',');
                    let (count, _, event) = (cells.next()?, cells.next()?, cells.next()?);
                    Some((
                        event.strip_prefix("syscalls:sys_enter_")?.to_owned(),
                        count.trim().parse().ok()?,
                    ))
                }
                // `% time     seconds  usecs/call     calls    errors syscall`
                Self::Strace => {
                    let cells: Vec<&str> = line.split_ascii_whitespace().collect();
                    let name = cells.last().filter(|name| NAMES.contains(name))?;
                    Some(((*name).to_owned(), cells.get(3)?.parse().ok()?))
                }
            }
        };
        text.lines().filter_map(line).collect()
    }
}

/// Waits for the end; kills the program after `limit` or when `stop` is set.
fn wait(child: &mut Child, limit: Duration, stop: &AtomicBool) -> Result<(), String> {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("the counted run ended with {status}")),
            Ok(None) if Instant::now() < until && !stop.load(Ordering::Relaxed) => {
                thread::sleep(POLL_INTERVAL)
            }
            Ok(None) => {
                // The whole process group; it may have ended already.
                let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
                let _ = child.wait();
                return Err(format!(
                    "the counted run took more than {} s or was interrupted",
                    limit.as_secs()
                ));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    #[test]
    fn output_of_both_counters_is_parsed() {
        let perf = "12,,syscalls:sys_enter_futex,1234,100.00,,\n<not \
                    supported>,,syscalls:sys_enter_clone,0,100.00,,\n\
                    3,,syscalls:sys_enter_clone3,1,100.00,,\nother\n";
        let got = Counter::Perf.parse(perf);
        assert_eq!(
            (got.get("futex"), got.get("clone"), got.get("clone3")),
            (Some(&12), None, Some(&3))
        );
        let strace = "% time     seconds  usecs/call     calls    errors syscall\n\
                      ------ ----------- ----------- --------- --------- ----\n \
                      90.00    0.000081          10      1808         3 futex\n \
                      10.00    0.000081          10         8           mmap\n\
                      100.00    0.000081          10         8           total\n";
        let got = Counter::Strace.parse(strace);
        assert_eq!((got.get("futex"), got.get("mmap"), got.len()), (Some(&1_808), Some(&8), 2));
    }

    #[test]
    fn a_program_beyond_its_time_limit_is_killed() {
        let Ok(counter) = Counter::find() else { return };
        let mut program = Command::new("sleep");
        program.arg("60");
        let (stop, undo) = (AtomicBool::new(false), Undo::default());
        let counted = counter.count(&program, 1.0, Duration::from_millis(50), &stop, &undo);
        assert!(
            matches!(&counted, Calls::NotCounted { why } if why.contains("took more than")),
            "{counted:?}"
        );
        let counted =
            counter.count(&Command::new("true"), 1.0, Duration::from_secs(20), &stop, &undo);
        assert!(matches!(counted, Calls::Counted { mmap: 1.., clone: 0, .. }), "{counted:?}");
    }
}
