//! What costs too much for every sample: whose sockets are whose, how full tables are. One look at the end of a stretch
//! adds it to its [`Samples`].

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;

use crate::probe::limits::{self, ProcessLimits};
use crate::probe::sockets::{self, Socket, State};
use crate::probe::{conntrack, interface, ports};
use crate::root::{Root, Seen, Unseen, Why};
use crate::samples::{Level, Peer, Samples, Watched};

/// Most open files of one process whose links are read.
const LINKS_MAX: usize = 200_000;
/// Most peers of one process that are kept.
const PEERS_MAX: usize = 16;

/// Looks once, and fills in: peers, unread requests and open files of each watched process, ports, the firewall's
/// table, speeds of links. What cannot be seen is added to `unseen`.
pub fn survey(root: &Root, samples: &mut Samples) {
    let mut unseen = Vec::new();
    let sockets = all_sockets(root, &mut unseen);
    samples.ports = fullest_ports(root, &sockets);
    // A table without entries is not in use.
    let table = conntrack::read(root).ok().filter(|table| table.count > 0);
    samples.conntrack = table.map(|table| Level { used: table.count, most: table.max });
    for link in &mut samples.links {
        link.speed_bits_per_s = interface::speed(root, &link.name).ok().map(|speed| speed as f64);
    }
    for process in &mut samples.processes {
        match inodes(root, process.pid) {
            Ok(inodes) => {
                let soft = root.parse(&format!("proc/{}/limits", process.pid), limits::parse).ok().and_then(soft);
                process.files = soft.map(|most| Level { used: inodes.open_files, most });
                look(process, &sockets, &inodes.sockets);
            }
            Err(why) => unseen.push(why),
        }
    }
    samples.unseen.extend(unseen);
}

/// Open files of a process.
struct Inodes {
    open_files: u64,
    sockets: HashSet<u64>,
}

fn inodes(root: &Root, pid: u32) -> Seen<Inodes> {
    let file = format!("proc/{pid}/fd");
    let entries = std::fs::read_dir(root.path(&file));
    let entries = entries.map_err(|error| Unseen { file, why: Why::of(&error) })?;
    let mut inodes = Inodes { open_files: 0, sockets: HashSet::new() };
    for entry in entries.flatten().take(LINKS_MAX) {
        inodes.open_files += 1;
        let link = std::fs::read_link(entry.path()).unwrap_or_default();
        let socket: Option<u64> =
            link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        inodes.sockets.extend(socket);
    }
    Ok(inodes)
}

fn all_sockets(root: &Root, unseen: &mut Vec<Unseen>) -> Vec<Socket> {
    let mut all = Vec::new();
    for file in [sockets::FILE, sockets::FILE_6] {
        match root.parse(file, sockets::parse) {
            Ok(found) => all.extend(found),
            // Without IPv6 there is no second one.
            Err(why) if why.why == Why::Missing && file == sockets::FILE_6 => {}
            Err(why) => unseen.push(why),
        }
    }
    all
}

/// Connections to a port that it listens on are its clients'; the others it opened itself.
fn look(process: &mut Watched, all: &[Socket], own: &HashSet<u64>) {
    let own: Vec<&Socket> = all.iter().filter(|socket| socket.inode != 0 && own.contains(&socket.inode)).collect();
    let listening = own.iter().filter(|socket| socket.state == State::Listening);
    let doors: HashSet<u16> = listening.map(|socket| socket.local.port()).collect();
    let open = own.iter().filter(|socket| socket.state == State::Established);
    let (clients, others): (Vec<&Socket>, Vec<&Socket>) = open.partition(|socket| doors.contains(&socket.local.port()));
    let unread = clients.iter().filter(|socket| socket.unread > 0).count();
    process.unread_share = (!clients.is_empty()).then(|| unread as f64 / clients.len() as f64);
    let mut peers: BTreeMap<SocketAddr, u64> = BTreeMap::new();
    others.iter().for_each(|socket| *peers.entry(socket.peer).or_default() += 1);
    process.peers = peers.into_iter().map(|(address, connections)| Peer { address, connections }).collect();
    process.peers.sort_by_key(|peer| std::cmp::Reverse(peer.connections));
    process.peers.truncate(PEERS_MAX);
}

/// The address to which the most ports of the range for outgoing connections are taken.
fn fullest_ports(root: &Root, all: &[Socket]) -> Option<Level> {
    let ports = ports::read(root).ok()?;
    let range = ports.first..=ports.last;
    let mut taken: BTreeMap<SocketAddr, u64> = BTreeMap::new();
    for socket in all.iter().filter(|socket| socket.state != State::Listening && range.contains(&socket.local.port())) {
        *taken.entry(socket.peer).or_default() += 1;
    }
    Some(Level { used: taken.into_values().max().unwrap_or(0), most: ports.count() })
}

fn soft(limits: ProcessLimits) -> Option<u64> {
    limits.open_files.soft
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::samples::Link;

    /// Real sockets of this process: as a server with unread requests, and as a client.
    #[test]
    fn peers_and_unread_requests_are_found() {
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients: Vec<TcpStream> =
            (0..4).map(|_| TcpStream::connect(service.local_addr().unwrap()).unwrap()).collect();
        let accepted: Vec<TcpStream> = (0..4).map(|_| service.accept().unwrap().0).collect();
        clients[0].write_all(b"GET /").unwrap();
        let pid = std::process::id();
        let mut samples = Samples { processes: vec![Watched { pid, ..Watched::default() }], ..Samples::default() };
        survey(&Root::machine(), &mut samples);
        let process = &samples.processes[0];
        // Other tests of this process may have connections too.
        let to_service = process.peers.iter().find(|peer| peer.address == service.local_addr().unwrap());
        assert_eq!(to_service.map(|peer| peer.connections), Some(4), "{process:?}");
        assert!(process.unread_share.is_some_and(|share| share > 0.0 && share <= 0.5), "{process:?}");
        assert!(process.files.is_some_and(|files| files.used >= 9 && files.used < files.most), "{process:?}");
        assert!(samples.ports.is_some_and(|ports| ports.used >= 4 && ports.most > 1000), "{samples:?}");
        assert_eq!(samples.unseen, Vec::new());
        drop(accepted);
    }

    #[test]
    fn a_tree_is_surveyed_and_what_is_hidden_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let fixture = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/linux-4.18-el8");
        for (file, from) in [("proc/net/tcp", "proc/net/tcp"), ("proc/42/limits", "proc/self/limits")] {
            std::fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
            std::fs::copy(fixture.join(from), folder.path().join(file)).unwrap();
        }
        std::fs::create_dir_all(folder.path().join("proc/42/fd")).unwrap();
        for (descriptor, link) in
            [("0", "/dev/null"), ("3", "socket:[4711]"), ("4", "socket:[4712]"), ("5", "socket:[4713]")]
        {
            symlink(link, folder.path().join("proc/42/fd").join(descriptor)).unwrap();
        }
        let watched = |pid| Watched { pid, ..Watched::default() };
        let links = vec![Link { name: "eth0".to_owned(), ..Link::default() }];
        let mut samples = Samples { processes: vec![watched(42), watched(43)], links, ..Samples::default() };
        survey(&Root::at(folder.path()), &mut samples);
        let process = &samples.processes[0];
        assert_eq!(process.files, Some(Level { used: 4, most: 1024 }));
        assert_eq!(process.unread_share, Some(1.0), "the one client's request lies there");
        assert_eq!(process.peers, [Peer { address: "127.0.0.1:8080".parse().unwrap(), connections: 1 }]);
        assert_eq!((samples.ports, samples.conntrack, samples.links[0].speed_bits_per_s), (None, None, None));
        let hidden: Vec<_> = samples.unseen.iter().map(|unseen| unseen.file.as_str()).collect();
        assert_eq!(hidden, ["proc/43/fd"]);
    }
}
