//! Building blocks of plants: processes, groups with limits, network namespaces. All are removed on
//! drop; leftovers of a killed run are removed at the next start.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hotrow_diagnose::cgroup::{self, Version};

use super::plan::{PLAN, Plan};
use super::server::LISTENING;

/// Prefix of the names of kernel objects, followed by this process's id and a number.
const PREFIX: &str = "hotrow-matrix-";
/// The kernel's default period of a CPU limit.
const PERIOD_US: u64 = 100_000;
/// Longest wait for an empty group.
const EMPTY_WAIT: Duration = Duration::from_secs(5);
/// Arguments that run the body of a planted process.
const PLANTED: [&str; 5] =
    ["--exact", "planted_service", "--ignored", "--nocapture", "--test-threads=1"];

/// A unique name, short enough for a network interface.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A process that is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    /// Its listening address, if any.
    pub(crate) address: Option<SocketAddr>,
}

impl Process {
    /// Starts this program again with a plan, in a group and a namespace if any.
    pub(crate) fn start(
        plan: &Plan,
        group: Option<&Group>,
        namespace: Option<&Namespace>,
    ) -> Result<Self, String> {
        let program = std::env::current_exe()
            .map_err(|e| format!("the test's own program is not known: {e}"))?;
        let mut command = wrapped(&program, group, namespace);
        let plan_text = serde_json::to_string(plan).expect("a plan is plain data");
        command.args(PLANTED).env(PLAN, plan_text).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child =
            command.spawn().map_err(|e| format!("a planted process does not start: {e}"))?;
        let mut process = Self { child, address: None };
        if matches!(plan, Plan::Service(_)) {
            process.address = Some(process.listening()?);
        }
        Ok(process)
    }

    /// Wraps an external program that listens at this address.
    pub(crate) fn of(child: Child, address: SocketAddr) -> Self {
        Self { child, address: Some(address) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn listening(&mut self) -> Result<SocketAddr, String> {
        let out = self.child.stdout.take().ok_or("a planted process has no output")?;
        let mut lines = BufReader::new(out).lines();
        // The test harness may print before it, even on the same line.
        let found = lines.find_map(|line| {
            let line = line.ok()?;
            line.split_once(LISTENING).map(|(_, address)| address.to_owned())
        });
        let address = found.ok_or("a planted service ended before it listened")?;
        // Further output is discarded, so that it cannot block the process.
        std::thread::spawn(move || lines.for_each(drop));
        address.trim().parse().map_err(|e| format!("{address:?} is no address: {e}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command that first enters a group and a namespace. Its process id stays the same.
pub(crate) fn wrapped(
    program: &Path,
    group: Option<&Group>,
    namespace: Option<&Namespace>,
) -> Command {
    let mut words: Vec<String> = Vec::new();
    if let Some(group) = group {
        let enter = format!("echo $$ > '{}/cgroup.procs' && exec \"$@\"", group.folder.display());
        words.extend(["sh".to_owned(), "-c".to_owned(), enter, "sh".to_owned()]);
    }
    if let Some(namespace) = namespace {
        words.extend(["ip", "netns", "exec", &namespace.name].map(str::to_owned));
    }
    words.push(program.display().to_string());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("PATH", path());
    command
}

/// Returns a PATH that includes the folder of `ip` and `tc`.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// A group of processes with a limit.
pub(crate) struct Group {
    folder: PathBuf,
}

/// The limits of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// CPUs.
    Cores(f64),
    /// Writes per second to the disk with these numbers.
    Writes { disk: (u32, u32), per_s: u64 },
}

impl Limit {
    fn controller(self) -> [&'static str; 2] {
        match self {
            Self::Cores(_) => ["cpu", "cpu"],
            Self::Writes { .. } => ["io", "blkio"],
        }
    }

    /// Returns the files of the limit with their contents.
    fn settings(self, version: Version) -> Vec<(&'static str, String)> {
        match (self, version) {
            (Self::Cores(cores), Version::V2) => {
                vec![("cpu.max", format!("{} {PERIOD_US}", (cores * PERIOD_US as f64) as u64))]
            }
            (Self::Cores(cores), Version::V1) => vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", ((cores * PERIOD_US as f64) as u64).to_string()),
            ],
            (Self::Writes { disk: (major, minor), per_s }, Version::V2) => {
                vec![("io.max", format!("{major}:{minor} wiops={per_s}"))]
            }
            (Self::Writes { disk: (major, minor), per_s }, Version::V1) => {
                vec![("blkio.throttle.write_iops_device", format!("{major}:{minor} {per_s}"))]
            }
        }
    }
}

impl Group {
    /// Creates a group below this process's own or, as v2 requires, beside it.
    ///
    /// # Errors
    /// Returns the reason for a failure.
    pub(crate) fn new(limit: Limit) -> Result<Self, String> {
        let hierarchies = cgroup::hierarchies(Path::new("/")).map_err(|e| e.to_string())?;
        let name = unique();
        let mut reasons = Vec::new();
        for hierarchy in hierarchies {
            let wanted = limit.controller()[usize::from(hierarchy.version == Version::V1)];
            let beside =
                hierarchy.own.parent().filter(|parent| parent.starts_with(&hierarchy.mount));
            for parent in [Some(hierarchy.own.as_path()), beside].into_iter().flatten() {
                if !hierarchy.controllers.iter().any(|controller| controller == wanted) {
                    continue;
                }
                if hierarchy.version == Version::V2 {
                    let _ =
                        std::fs::write(parent.join("cgroup.subtree_control"), format!("+{wanted}"));
                }
                let group = Self { folder: parent.join(&name) };
                match group.make(limit, hierarchy.version) {
                    Ok(()) => return Ok(group),
                    Err(why) => reasons.push(format!("{}: {why}", parent.display())),
                }
            }
        }
        if reasons.is_empty() {
            reasons.push("no hierarchy has that controller".to_owned());
        }
        Err(format!("no group can be created that limits {limit:?}: {}", reasons.join("; ")))
    }

    fn make(&self, limit: Limit, version: Version) -> std::io::Result<()> {
        std::fs::create_dir(&self.folder)?;
        for (file, text) in limit.settings(version) {
            // Does not create the file: in a cgroup hierarchy the kernel has created it.
            let mut file = std::fs::OpenOptions::new().write(true).open(self.folder.join(file))?;
            std::io::Write::write_all(&mut file, text.as_bytes())?;
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let until = Instant::now() + EMPTY_WAIT;
        // A killed process counts until the kernel has removed it.
        while self.folder.exists()
            && std::fs::remove_dir(&self.folder).is_err()
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A network namespace.
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    /// Creates a namespace with a loopback interface.
    ///
    /// # Errors
    /// Returns the reason for a failure.
    pub(crate) fn new() -> Result<Self, String> {
        let namespace = Self { name: unique() };
        command(&["ip", "netns", "add", &namespace.name])?;
        namespace.inside(&["ip", "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Runs a command in the namespace.
    pub(crate) fn inside(&self, words: &[&str]) -> Result<(), String> {
        command(&[&["ip", "netns", "exec", &self.name], words].concat())
    }

    /// Connects the namespace with that of this process, with a rate limit on what it sends.
    /// Returns the address of its end.
    pub(crate) fn connect(&self, mbit_per_s: u32) -> Result<Ipv4Addr, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // In the range that RFC 2544 reserves for tests: a block per test process, and in it four
        // addresses per link, because the kernel removes an old link with a delay.
        let block = (std::process::id() % 256) as u8;
        let first = (number % 64 * 4) as u8;
        let near = Ipv4Addr::new(198, 18, block, first + 1);
        let far = Ipv4Addr::new(198, 18, block, first + 2);
        let outside = format!("hm{}-{number}", std::process::id());
        command(&[
            "ip", "link", "add", &outside, "type", "veth", "peer", "name", "eth0", "netns",
            &self.name,
        ])?;
        command(&["ip", "address", "add", &format!("{near}/30"), "dev", &outside])?;
        command(&["ip", "link", "set", &outside, "up"])?;
        self.inside(&["ip", "address", "add", &format!("{far}/30"), "dev", "eth0"])?;
        self.inside(&["ip", "link", "set", "eth0", "up"])?;
        let rate = format!("{mbit_per_s}mbit");
        let limit = [
            "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", &rate, "burst", "64kb",
            "latency", "100ms",
        ];
        self.inside(&[&["tc"], &limit[..]].concat())?;
        Ok(far)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The namespace's links are removed with it.
        let _ = command(&["ip", "netns", "delete", &self.name]);
    }
}

fn command(words: &[&str]) -> Result<(), String> {
    let describe = |why: String| format!("{}: {why}", words.join(" "));
    let output = Command::new(words[0]).args(&words[1..]).env("PATH", path()).output();
    let output = output.map_err(|e| describe(e.to_string()))?;
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(describe(errors)) }
}

/// Removes groups and namespaces of killed runs.
pub(crate) fn clear_leftovers() {
    let left = |folder: &Path| -> Vec<(PathBuf, String)> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let named =
            entries.map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned()));
        named
            .filter(|(_, name)| {
                owner(name).is_some_and(|pid| !Path::new("/proc").join(pid).exists())
            })
            .collect()
    };
    for (_, name) in left(Path::new("/run/netns")) {
        let _ = command(&["ip", "netns", "delete", &name]);
    }
    for hierarchy in cgroup::hierarchies(Path::new("/")).unwrap_or_default() {
        let parents = [Some(hierarchy.own.as_path()), hierarchy.own.parent()];
        for (folder, _) in parents.into_iter().flatten().flat_map(left) {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Returns the id of the process that created an object of this name.
fn owner(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)?.split('-').next()
}

/// Returns the device numbers of the disk of a folder; `None` if it is on no disk.
pub(crate) fn disk_of(folder: &Path) -> Option<(u32, u32)> {
    let device = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(folder).ok()?);
    let major = rustix::fs::major(device);
    let minor = rustix::fs::minor(device);
    let whole = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    // Limits apply to whole disks, not to partitions.
    let whole = if whole.join("partition").exists() {
        whole.canonicalize().ok()?.parent()?.to_owned()
    } else {
        whole
    };
    let text = std::fs::read_to_string(whole.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
