//! Whose processes are looked at while a target is loaded, and the options that choose them.

use std::path::{Path, PathBuf};

use clap::Args;
use hotrow_diagnose::samples::Role;
use hotrow_diagnose::{cgroup, listeners, process};
use hotrow_lab::watch::Watch;
use hotrow_load::target::Address;

const PROC: &str = "/proc";
/// Where cgroups lie, for a path that is not absolute.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Who is watched.
#[derive(Debug, Default, Args)]
pub struct WatchArgs {
    /// Watch this process, and those that descend from it; may be repeated
    #[arg(long, value_name = "PID", group = "watched")]
    pid: Vec<u32>,
    /// Watch the process that listens on this port of this machine [default: the URL's, where that is this machine]
    #[arg(long, value_name = "PORT", group = "watched")]
    port: Option<u16>,
    /// Watch the processes of this cgroup
    #[arg(long, value_name = "PATH", group = "watched")]
    cgroup: Option<PathBuf>,
    /// This process, and those that descend from it, are a proxy in front of the service; may be repeated
    #[arg(long, value_name = "PID")]
    proxy_pid: Vec<u32>,
}

/// Finds the processes that the arguments name, or that listen where the requests go.
///
/// # Errors
/// What was named and is not there, in words.
pub fn watch(args: &WatchArgs, address: &Address) -> Result<Watch, String> {
    let here = address.is_local();
    let (mut pids, mut words) = chosen(args, address, here)?;
    if let Some(proxies) = numbers(Path::new(PROC), "--proxy-pid", &args.proxy_pid)? {
        let in_front = with_descendants(&args.proxy_pid);
        // Who listens on the URL's port is the proxy, most often: it is no service too. Who was named as one is, though the proxy started it.
        let named = |pid: &u32| args.pid.contains(pid) && !args.proxy_pid.contains(pid);
        pids.retain(|pid| named(pid) || !in_front.contains(pid));
        words = match pids.as_slice() {
            [] => format!("the proxy, process {proxies}; --pid names the service behind it"),
            _ => format!("{words}, behind the proxy, process {proxies}"),
        };
    }
    let proxies = args.proxy_pid.iter().map(|pid| (*pid, Role::Proxy));
    let watched: Vec<(u32, Role)> = proxies.chain(pids.iter().map(|pid| (*pid, Role::Service))).collect();
    Ok(Watch::new(&watched, here, words))
}

/// Processes as an option names them, in words; none where it was not given.
fn numbers(proc: &Path, option: &str, pids: &[u32]) -> Result<Option<String>, String> {
    for pid in pids {
        let gone = |_| format!("{option} {pid}: there is no such process, or it may not be seen");
        if process::stat(proc, *pid).map_err(gone)?.kernel {
            return Err(format!("{option} {pid}: it is a thread of the kernel, which serves no requests"));
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
    let listener = |port| listeners::on_port(proc, port);
    let named = |found: listeners::Listener| (vec![found.pid], format!("process {} ({})", found.pid, found.name));
    if let Some(pids) = numbers(proc, "--pid", &args.pid)? {
        return Ok((args.pid.clone(), format!("process {pids}")));
    }
    if let Some(port) = args.port {
        let nobody = || format!("--port {port}: nobody listens there, or whoever does may not be seen; try as root");
        return listener(port).map(named).ok_or_else(nobody);
    }
    if let Some(group) = &args.cgroup {
        let folder = if group.is_absolute() { group.clone() } else { PathBuf::from(CGROUPS).join(group) };
        let pids = cgroup::processes(&folder)
            .map_err(|e| format!("--cgroup {} is no cgroup: its cgroup.procs: {e}", folder.display()))?;
        return match pids.as_slice() {
            [] => Err(format!("--cgroup {}: no process is in it", folder.display())),
            [_] => Ok((pids, format!("the process of the group {}", folder.display()))),
            _ => Ok((pids.clone(), format!("{} processes of the group {}", pids.len(), folder.display()))),
        };
    }
    Ok(match address {
        Address::Tcp(address) if here => match listener(address.port()) {
            Some(found) => named(found),
            None => (Vec::new(), format!("the machine; who listens on port {} may not be seen", address.port())),
        },
        Address::Unix(_) => (Vec::new(), "the machine; --pid names the process behind the socket".to_owned()),
        Address::Tcp(_) => (Vec::new(), "only what TCP and timing show: the target is not on this machine".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::process::{Child, Command};

    use super::*;

    /// A process that is ended with the test.
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
        let (proxy, service) = (Sleeper::new(), Sleeper::new());
        let (proxy, service) = (proxy.0.id(), service.0.id());
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
        // Who listens where the requests go is found without being named.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let args = WatchArgs { proxy_pid: vec![proxy], ..WatchArgs::default() };
        let here = Address::Tcp(listener.local_addr().expect("bound"));
        let words = watch(&args, &here).expect("both are there").words;
        assert!(
            words.starts_with("process ") && words.ends_with(&format!("behind the proxy, process {proxy}")),
            "{words}"
        );
    }

    #[test]
    fn a_proxy_that_is_not_there_is_refused() {
        let args = WatchArgs { proxy_pid: vec![u32::MAX], ..WatchArgs::default() };
        let refused = watch(&args, &Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 80))));
        let words = refused.err().expect("there is no such process");
        assert_eq!(words, "--proxy-pid 4294967295: there is no such process, or it may not be seen");
    }

    /// As behind an entry point that is the proxy and starts the service.
    #[test]
    fn a_service_that_the_proxy_started_is_the_service() {
        let service = Sleeper::new();
        let (proxy, service) = (std::process::id(), service.0.id());
        let args = WatchArgs { pid: vec![service], proxy_pid: vec![proxy], ..WatchArgs::default() };
        let elsewhere = Address::Tcp(SocketAddr::from(([192, 0, 2, 1], 80)));
        let watch = watch(&args, &elsewhere).expect("both are there");
        assert_eq!(watch.with_role(Role::Service), vec![service]);
    }

    #[test]
    fn threads_of_the_kernel_serve_nobody() {
        // Process 2 is the parent of them all, where they can be seen.
        let kernel = process::stat(Path::new(PROC), 2).is_ok_and(|stat| stat.kernel);
        let refused = numbers(Path::new(PROC), "--pid", &[2]);
        assert!(!kernel || refused.is_err_and(|words| words.contains("a thread of the kernel")));
    }
}
