//! CPU times and ancestry of processes: `/proc/PID/stat`.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::Duration;

/// One tick of the times in this file: always 1/100 s for programs (USER_HZ is 100 on every
/// architecture that Rust's std supports).
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// The bit of `flags` that marks kernel threads (include/linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;

/// The parsed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its id.
    pub pid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// True if it is a kernel thread.
    pub kernel: bool,
    /// `R`, `S`, `D`, `T`, …; `Z` has ended and was not reaped by its parent.
    pub state: char,
    /// Its parent.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// CPU time of its threads, user and system.
    pub cpu: Duration,
    /// CPU time of reaped children, and of the children that they had reaped.
    pub children_cpu: Duration,
    /// Start time, in ticks since boot; together with the id it identifies a process uniquely.
    pub began_ticks: u64,
    /// Resident memory, in pages.
    pub rss_pages: u64,
}

impl Stat {
    /// Returns whether it has ended.
    pub fn ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Returns its name as ps(1) shows it: kernel threads in brackets.
    pub fn shown_name(&self) -> String {
        if self.kernel { format!("[{}]", self.name) } else { self.name.clone() }
    }
}

/// Reads one process. `proc` is `/proc`, or a copy of it in a test.
///
/// # Errors
/// Fails when there is none, or its file is invalid.
pub fn stat(proc: &Path, pid: u32) -> io::Result<Stat> {
    // Names may contain any bytes.
    let bytes = std::fs::read(proc.join(pid.to_string()).join("stat"))?;
    let text = String::from_utf8_lossy(&bytes);
    let unexpected =
        || io::Error::new(io::ErrorKind::InvalidData, format!("{pid}/stat holds {text:?}"));
    parse(&text).ok_or_else(unexpected)
}

/// Returns all processes, without those that end during the read.
///
/// # Errors
/// Fails when the folder cannot be read.
pub fn all(proc: &Path) -> io::Result<Vec<Stat>> {
    let entries = std::fs::read_dir(proc)?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(|pid| stat(proc, pid).ok()).collect())
}

/// Returns the descendants of `root` among `all`, without itself, in the order of `all`.
pub fn descendants(all: &[Stat], root: u32) -> Vec<&Stat> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat.pid);
    }
    let (mut found, mut next) = (HashSet::new(), vec![root]);
    while let Some(parent) = next.pop() {
        // Entries read one after the other may refer to each other's reused ids: each is followed
        // once.
        next.extend(
            children
                .remove(&parent)
                .unwrap_or_default()
                .into_iter()
                .filter(|pid| found.insert(*pid)),
        );
    }
    found.remove(&root);
    all.iter().filter(|stat| found.contains(&stat.pid)).collect()
}

/// Parses `pid (name) state ppid pgrp session …` (proc_pid_stat(5)); the name may contain blanks
/// and brackets.
fn parse(text: &str) -> Option<Stat> {
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    // Starts at the third field of the manual's numbering.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let id = |field: usize| number(field).and_then(|n| u32::try_from(n).ok());
    let ticks = |field: usize| {
        number(field).map(|n| TICK.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX)))
    };
    Some(Stat {
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        kernel: number(9)? & PF_KTHREAD != 0,
        state: fields.first()?.chars().next()?,
        parent: id(4)?,
        group: id(5)?,
        session: id(6)?,
        cpu: ticks(14)?.saturating_add(ticks(15)?),
        children_cpu: ticks(16)?.saturating_add(ticks(17)?),
        began_ticks: number(22)?,
        rss_pages: number(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "42 (a (b) c) S 1 40 39 0 -1 4194560 1 2 3 4 150 50 7 3 20 0 1 0 987654 \
                        1000000 321 18446744073709551615 0\n";

    #[test]
    fn fields_are_read_whatever_the_name_holds() {
        let stat = parse(LINE).unwrap();
        assert_eq!((stat.pid, stat.name.as_str(), stat.state), (42, "a (b) c", 'S'));
        assert_eq!((stat.kernel, stat.shown_name()), (false, stat.name.clone()));
        let thread =
            parse("15 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0 0 0 0 37 0 0 20 0 1 0 4 0 0 0")
                .unwrap();
        assert_eq!((thread.kernel, thread.shown_name().as_str()), (true, "[ksoftirqd/0]"));
        assert_eq!((stat.parent, stat.group, stat.session), (1, 40, 39));
        assert_eq!(
            (stat.cpu, stat.children_cpu),
            (Duration::from_secs(2), Duration::from_millis(100))
        );
        assert_eq!((stat.began_ticks, stat.rss_pages), (987_654, 321));
        for text in ["", "42 (a", "42 (a) S 1 2", "x (a) S 1 40 39", &LINE.replace("321", "-1")] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_folder_without_the_process_is_an_error() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(proc.path().join("42")).unwrap();
        std::fs::create_dir_all(proc.path().join("net")).unwrap();
        assert_eq!(stat(proc.path(), 42).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(proc.path().join("42/stat"), "nonsense").unwrap();
        assert_eq!(stat(proc.path(), 42).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(all(proc.path()).unwrap().is_empty());
        std::fs::write(proc.path().join("42/stat"), LINE).unwrap();
        assert_eq!(all(proc.path()).unwrap().len(), 1);
    }

    #[test]
    fn descendants_are_found_in_any_order_and_circles_end() {
        let stat = |pid, parent| Stat { pid, parent, ..parse(LINE).unwrap() };
        let all =
            [stat(5, 4), stat(4, 2), stat(2, 1), stat(3, 1), stat(1, 0), stat(9, 8), stat(8, 9)];
        let found = |root| descendants(&all, root).iter().map(|s| s.pid).collect::<Vec<_>>();
        assert_eq!(found(2), [5, 4]);
        assert_eq!(found(1), [5, 4, 2, 3]);
        assert_eq!(found(8), [9]);
        assert!(found(7).is_empty());
    }

    #[test]
    fn this_process_is_there() {
        let stats = all(Path::new("/proc")).unwrap();
        let this = stats.iter().find(|s| s.pid == std::process::id()).unwrap();
        assert!(!this.ended() && this.rss_pages > 0 && this.began_ticks > 0, "{this:?}");
        assert!(descendants(&stats, this.parent).contains(&this));
    }
}
