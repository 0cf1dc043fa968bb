//! What is watched during a load, and the options that select it: processes, and the database
//! behind the service.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use hotrow_diagnose::samples::Role;
use hotrow_diagnose::{cgroup, listeners, process};
use hotrow_transport::target::Address;
use hotrow_trial::observe::Observer;

const PROC: &str = "/proc";
/// Mount point of cgroups, for relative paths.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Options that select the watched processes.
#[derive(Debug, Default, Args)]
pub struct WatchArgs {
    /// Watch this process and its descendants; may be repeated
    #[arg(long, value_name = "PID", group = "watched")]
    pid: Vec<u32>,
    /// Watch the process that listens on this port of this machine [default: the URL's, if on this
    /// machine]
    #[arg(long, value_name = "PORT", group = "watched")]
    port: Option<u16>,
    /// Watch the processes of this cgroup
    #[arg(long, value_name = "PATH", group = "watched")]
    cgroup: Option<PathBuf>,
    /// This process and its descendants are a proxy in front of the service; may be repeated
    #[arg(long, value_name = "PID")]
    proxy_pid: Vec<u32>,
    /// Ask the database behind the service what its sessions wait for: postgres:, mysql:, mariadb:
    /// or mongodb:
    #[arg(long, value_name = "URL", env = "HOTROW_DB_URL", hide_env_values = true)]
    db_url: Option<DatabaseUrl>,
}

/// A database's connection string, which may contain a password.
#[derive(Clone)]
struct DatabaseUrl(String);

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl FromStr for DatabaseUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

/// Finds the processes that the options name, or that listen on the target's port, and connects to
/// the database that they name.
/// # Errors
/// Returns the missing process, group or listener as text, or the database's error.
pub fn watch(args: &WatchArgs, address: &Address) -> Result<Observer, String> {
    let here = address.is_local();
    let (mut pids, mut words) = chosen(args, address, here)?;
    if let Some(proxies) = numbers(Path::new(PROC), "--proxy-pid", &args.proxy_pid)? {
        let in_front = with_descendants(&args.proxy_pid);
        // The process on the URL's port is usually the proxy, and not a service as well. A process
        // named as a service is one, even if the proxy started it.
        let named = |pid: &u32| args.pid.contains(pid) && !args.proxy_pid.contains(pid);
        pids.retain(|pid| named(pid) || !in_front.contains(pid));
        words = match pids.as_slice() {
            [] => format!("the proxy, process {proxies}; --pid names the service behind it"),
            _ => format!("{words}, behind the proxy, process {proxies}"),
        };
    }
    let proxies = args.proxy_pid.iter().map(|pid| (*pid, Role::Proxy));
    let watched: Vec<(u32, Role)> =
        proxies.chain(pids.iter().map(|pid| (*pid, Role::Service))).collect();
    let mut observer = Observer::new(&watched, here, words);
    if let Some(DatabaseUrl(url)) = &args.db_url {
        let probe = hotrow_activity::connect(url).map_err(|error| {
            format!("--db-url (or HOTROW_DB_URL): the database cannot be asked: {error}")
        })?;
        observer.database = Some(probe);
    }
    Ok(observer)
}

/// Describes the processes of an option; `None` where it was not given.
fn numbers(proc: &Path, option: &str, pids: &[u32]) -> Result<Option<String>, String> {
    for pid in pids {
        let gone = |_| format!("{option} {pid}: there is no such process, or it is not visible");
        if process::stat(proc, *pid).map_err(gone)?.kernel {
            return Err(format!("{option} {pid}: it is a kernel thread and serves no requests"));
        }
    }
    let words: Vec<String> = pids.iter().map(u32::to_string).collect();
    Ok((!words.is_empty()).then(|| words.join(", ")))
}

fn with_descendants(pids: &[u32]) -> Vec<u32> {
    let all = process::all(Path::new(PROC)).unwrap_or_default();
    let below = pids.iter().flat_map(|pid| process::descendants(&all, *pid)).map(|stat| stat.pid);
    pids.iter().copied().chain(below).collect()
}

fn chosen(args: &WatchArgs, address: &Address, here: bool) -> Result<(Vec<u32>, String), String> {
    let proc = Path::new(PROC);
    // All of them: workers that are no descendants of the first would look like competitors.
    let listener = |port| {
        let found = listeners::all_on_port(proc, port);
        (!found.is_empty()).then_some(found)
    };
    let named = |found: Vec<listeners::Listener>| {
        let words: Vec<String> =
            found.iter().map(|one| format!("{} ({})", one.pid, one.name)).collect();
        (found.iter().map(|one| one.pid).collect(), format!("process {}", words.join(", ")))
    };
    if let Some(pids) = numbers(proc, "--pid", &args.pid)? {
        return Ok((args.pid.clone(), format!("process {pids}")));
    }
    if let Some(port) = args.port {
        let no_listener =
            || format!("--port {port}: no visible process listens there; try as root");
        return listener(port).map(named).ok_or_else(no_listener);
    }
    if let Some(group) = &args.cgroup {
        let folder =
            if group.is_absolute() { group.clone() } else { PathBuf::from(CGROUPS).join(group) };
        let pids = cgroup::processes(&folder).map_err(|e| {
            format!("--cgroup {} is no cgroup: its cgroup.procs: {e}", folder.display())
        })?;
        return match pids.as_slice() {
            [] => Err(format!("--cgroup {}: no process is in it", folder.display())),
            [_] => Ok((pids, format!("the process of the group {}", folder.display()))),
            _ => Ok((
                pids.clone(),
                format!("{} processes of the group {}", pids.len(), folder.display()),
            )),
        };
    }
    Ok(match address {
        Address::Tcp(address) if here => match listener(address.port()) {
            Some(found) => named(found),
            None => (
                Vec::new(),
                format!("the machine; the listener on port {} is not visible", address.port()),
            ),
        },
        Address::Unix(_) => {
            (Vec::new(), "the machine; --pid names the process behind the socket".to_owned())
        }
        Address::Tcp(_) => (
            Vec::new(),
            "only what TCP and timing show: the target is not on this machine".to_owned(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::process::{Child, Command};

    use super::*;

    /// A process that is killed at the end of the test.
    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Self {
            Self(Command::new("sleep").arg("600").spawn().expect("sleep(1)"))
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_proxy_is_watched_as_one_and_as_no_service() {
        let proxy_process = Sleeper::new();
        let service_process = Sleeper::new();
        let proxy = proxy_process.0.id();
        let service = service_process.0.id();
        let elsewhere = Address::Tcp(SocketAddr::from(([192, 0, 2, 1], 80)));
        let seen = |pid: Vec<u32>| {
            let args = WatchArgs { pid, proxy_pid: vec![proxy], ..WatchArgs::default() };
            let watch = watch(&args, &elsewhere).expect("both are there");
            (watch.with_role(Role::Proxy), watch.with_role(Role::Service), watch.words)
        };
        let both = format!("process {service}, behind the proxy, process {proxy}");
        assert_eq!(seen(vec![service]), (vec![proxy], vec![service], both));
        let alone = format!("the proxy, process {proxy}; --pid names the service behind it");
        assert_eq!(seen(vec![proxy]), (vec![proxy], Vec::new(), alone));
        // The process that listens on the target's port is found without being named.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let args = WatchArgs { proxy_pid: vec![proxy], ..WatchArgs::default() };
        let here = Address::Tcp(listener.local_addr().expect("bound"));
        let words = watch(&args, &here).expect("both are there").words;
        // Processes of other tests are descendants too.
        let behind = format!("behind the proxy, process {proxy}");
        assert!(words.starts_with("process ") && words.contains(&behind), "{words}");
    }

    #[test]
    fn a_missing_proxy_is_refused() {
        let args = WatchArgs { proxy_pid: vec![u32::MAX], ..WatchArgs::default() };
        let refused = watch(&args, &Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 80))));
        let words = refused.err().expect("there is no such process");
        assert_eq!(words, "--proxy-pid 4294967295: there is no such process, or it is not visible");
    }

    /// The case of an entry point that is the proxy and starts the service.
    #[test]
    fn a_service_that_the_proxy_started_is_the_service() {
        let service = Sleeper::new();
        let proxy = std::process::id();
        let service = service.0.id();
        let args = WatchArgs { pid: vec![service], proxy_pid: vec![proxy], ..WatchArgs::default() };
        let elsewhere = Address::Tcp(SocketAddr::from(([192, 0, 2, 1], 80)));
        let watch = watch(&args, &elsewhere).expect("both are there");
        assert_eq!(watch.with_role(Role::Service), vec![service]);
    }

    #[test]
    fn kernel_threads_are_refused() {
        // Process 2 is the parent of all kernel threads, where they are visible.
        let kernel = process::stat(Path::new(PROC), 2).is_ok_and(|stat| stat.kernel);
        let refused = numbers(Path::new(PROC), "--pid", &[2]);
        assert!(!kernel || refused.is_err_and(|words| words.contains("a kernel thread")));
    }
}
