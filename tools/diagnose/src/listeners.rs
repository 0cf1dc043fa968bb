//! The process that listens on a TCP port: `/proc/net/tcp`, `/proc/net/tcp6` and `/proc/PID/fd`.

use std::path::Path;

/// State of a listening socket in the kernel's tables (include/net/tcp_states.h).
const LISTEN: &str = "0A";

/// A listening process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its process id.
    pub pid: u32,
    /// Its name from `/proc/PID/comm`; at most 15 bytes.
    pub name: String,
}

/// Returns the first process that listens on a port; see [`all_on_port`].
pub fn on_port(proc: &Path, port: u16) -> Option<Listener> {
    all_on_port(proc, port).into_iter().next()
}

/// Returns the processes that listen on a port of this network namespace: several that share a
/// socket or the port (prefork workers, `SO_REUSEPORT`), the lowest id first. Empty when there is
/// none, or it is not visible: other users' descriptors require privileges. `proc` is `/proc`, or a
/// copy of it in a test.
pub fn all_on_port(proc: &Path, port: u16) -> Vec<Listener> {
    let tables = ["net/tcp", "net/tcp6"]
        .map(|table| std::fs::read_to_string(proc.join(table)).unwrap_or_default());
    let sockets: Vec<String> = tables.iter().flat_map(|table| listening(table, port)).collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| holds(proc, *pid, &sockets))
        .collect();
    pids.sort_unstable();
    let listener = |pid: u32| {
        let comm = proc.join(pid.to_string()).join("comm");
        let name = std::fs::read_to_string(comm).unwrap_or_default();
        Listener { pid, name: name.trim_end().to_owned() }
    };
    pids.into_iter().map(listener).collect()
}

/// Returns the sockets that listen on the port, as named by the links in `/proc/PID/fd`.
///
/// Lines are `sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode …`; addresses
/// are `HEX:HEX`.
fn listening(table: &str, port: u16) -> Vec<String> {
    let socket = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local) = words.get(1)?.rsplit_once(':')?;
        let here = u16::from_str_radix(local, 16).ok()? == port && *words.get(3)? == LISTEN;
        here.then(|| words.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    table.lines().skip(1).filter_map(socket).collect()
}

fn holds(proc: &Path, pid: u32, sockets: &[String]) -> bool {
    let Ok(descriptors) = std::fs::read_dir(proc.join(pid.to_string()).join("fd")) else {
        return false;
    };
    let mut links =
        descriptors.flatten().filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok());
    links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1
   2: broken
";

    #[test]
    fn only_listening_sockets_of_the_port_are_taken() {
        assert_eq!(listening(TABLE, 8080), ["socket:[4711]"]);
        assert!(listening(TABLE, 0xC001).is_empty());
        assert!(listening("", 8080).is_empty());
    }

    #[test]
    fn the_holder_is_found() {
        let proc = tempfile::tempdir().unwrap();
        for folder in ["net", "self", "12/fd"] {
            std::fs::create_dir_all(proc.path().join(folder)).unwrap();
        }
        std::fs::write(proc.path().join("net/tcp"), TABLE).unwrap();
        assert_eq!(on_port(proc.path(), 8080), None, "no process shows the socket");
        std::os::unix::fs::symlink("socket:[4711]", proc.path().join("12/fd/3")).unwrap();
        std::fs::write(proc.path().join("12/comm"), "nginx\n").unwrap();
        assert_eq!(
            on_port(proc.path(), 8080),
            Some(Listener { pid: 12, name: "nginx".to_owned() })
        );
    }

    #[test]
    fn a_real_listener_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(on_port(Path::new("/proc"), port).map(|l| l.pid), Some(std::process::id()));
        drop(listener);
        assert_eq!(on_port(Path::new("/proc"), port), None);
    }
}
