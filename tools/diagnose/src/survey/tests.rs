use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::samples::{Link, Wait, WaitReason};

fn watched(pid: u32) -> WatchedProcess {
    WatchedProcess { pid, ..WatchedProcess::default() }
}

/// Real sockets of this process: as a server with unread requests, and as a client.
#[test]
fn peers_and_unread_requests_are_found() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut clients: Vec<TcpStream> =
        (0..4).map(|_| TcpStream::connect(service.local_addr().unwrap()).unwrap()).collect();
    let accepted: Vec<TcpStream> = (0..4).map(|_| service.accept().unwrap().0).collect();
    clients[0].write_all(b"GET /").unwrap();
    let pid = std::process::id();
    let mut samples = Samples {
        processes: vec![WatchedProcess { pid, ..WatchedProcess::default() }],
        ..Samples::default()
    };
    survey(&Root::machine(), &mut samples);
    let process = &samples.processes[0];
    // Other tests of this process may have connections too.
    let to_service =
        process.peers.iter().find(|peer| peer.address == service.local_addr().unwrap());
    assert_eq!(to_service.map(|peer| peer.connections), Some(4), "{process:?}");
    assert!(process.unread_share.is_some_and(|share| share > 0.0 && share <= 0.5), "{process:?}");
    assert!(
        process.files.is_some_and(|files| files.used >= 9 && files.used < files.most),
        "{process:?}"
    );
    assert!(samples.ports.is_some_and(|ports| ports.used >= 4 && ports.most > 1000), "{samples:?}");
    assert_eq!(samples.probe_errors, Vec::new());
    drop(accepted);
}

#[test]
fn a_tree_is_surveyed_and_hidden_data_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let fixture =
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/linux-4.18-el8");
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
    let links = vec![Link { name: "eth0".to_owned(), ..Link::default() }];
    let mut samples =
        Samples { processes: vec![watched(42), watched(43)], links, ..Samples::default() };
    survey(&Root::at(folder.path()), &mut samples);
    let process = &samples.processes[0];
    assert_eq!(process.files, Some(Occupancy { used: 4, most: 1024 }));
    assert_eq!(process.unread_share, Some(1.0), "the one client's request is unread");
    assert_eq!(
        process.peers,
        [Peer { address: "127.0.0.1:8080".parse().unwrap(), connections: 1 }]
    );
    assert_eq!(
        (samples.ports, samples.conntrack, samples.links[0].speed_bits_per_s),
        (None, None, None)
    );
    let hidden: Vec<_> =
        samples.probe_errors.iter().map(|probe_error| probe_error.file.as_str()).collect();
    assert_eq!(hidden, ["proc/43/fd"]);
}

/// The observation of the threads takes long, and connections may end in the meantime, so they must
/// be read before. Here all end when the first thread is observed.
#[test]
fn sockets_are_read_before_threads() {
    let folder = tempfile::tempdir().unwrap();
    let proc = folder.path().join("proc");
    let task = proc.join("42/task/42");
    for made in [&proc.join("net"), &proc.join("42/fd"), &task] {
        std::fs::create_dir_all(made).unwrap();
    }
    let fixture =
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/linux-4.18-el8/proc");
    std::fs::copy(fixture.join("net/tcp"), proc.join("net/tcp")).unwrap();
    std::fs::copy(fixture.join("self/limits"), proc.join("42/limits")).unwrap();
    for (descriptor, link) in [("3", "socket:[4711]"), ("4", "socket:[4712]")] {
        symlink(link, proc.join("42/fd").join(descriptor)).unwrap();
    }
    let (stat, empty) = (task.join("stat"), folder.path().join("empty"));
    std::fs::write(&empty, "").unwrap();
    // The opening of a pipe waits for the other side.
    let made = rustix::fs::mkfifoat(rustix::fs::CWD, &stat, rustix::fs::Mode::from_raw_mode(0o600));
    made.unwrap();
    let root = Root::at(folder.path());
    let ending = std::thread::spawn(move || {
        let waiting = std::fs::OpenOptions::new().write(true).open(&stat).unwrap();
        std::fs::remove_dir_all(proc.join("42/fd")).unwrap();
        std::fs::remove_file(proc.join("net/tcp")).unwrap();
        std::fs::rename(&empty, &stat).unwrap();
        drop(waiting);
    });
    let mut samples = Samples { processes: vec![watched(42)], ..Samples::default() };
    survey(&root, &mut samples);
    let (files, unread) = (samples.processes[0].files, samples.processes[0].unread_share);
    assert_eq!((files.map(|files| files.used), unread), (Some(2), Some(1.0)), "{samples:?}");
    ending.join().unwrap();
}

/// Surveys this process until it reaches the expected state. Returns an error instead of a panic,
/// because threads may wait for their release.
fn await_process(what: &str, holds: impl Fn(&WatchedProcess) -> bool) -> Result<(), String> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let mut samples =
            Samples { processes: vec![watched(std::process::id())], ..Samples::default() };
        survey(&Root::machine(), &mut samples);
        if holds(&samples.processes[0]) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(format!(
                "{what}: {:?}, not seen: {:?}",
                samples.processes[0], samples.probe_errors
            ));
        }
    }
}

/// Returns true if a thread waits for that at least half of the time.
fn waits(process: &WatchedProcess, what: WaitReason) -> bool {
    process.waits.iter().any(|wait| wait.what == what && wait.threads > 0.5)
}

/// Real threads of this process that block at each point until released.
#[test]
fn blocking_points_of_real_threads_are_found() {
    let (service, idle) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let there = service.local_addr().unwrap();
    let client = TcpStream::connect(there).unwrap();
    let accepted = service.accept().unwrap().0;
    let lock = Mutex::new(());
    let guard = lock.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (&client).read(&mut [0]));
        scope.spawn(|| (&accepted).read(&mut [0]));
        scope.spawn(|| idle.accept());
        scope.spawn(|| drop(lock.lock()));
        let all = [
            WaitReason::Peer(Some(there)),
            WaitReason::Client,
            WaitReason::Connection,
            WaitReason::Lock,
        ];
        let found =
            await_process("all four", |process| all.iter().all(|what| waits(process, *what)));
        drop(guard);
        (&client).write_all(b"x").unwrap();
        (&accepted).write_all(b"x").unwrap();
        TcpStream::connect(idle.local_addr().unwrap()).unwrap();
        found.unwrap();
    });
    // One polled file counts as a read one; two could be anything.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let at_other = TcpStream::connect(other.local_addr().unwrap()).unwrap();
    let mut answers = other.accept().unwrap().0;
    std::thread::scope(|scope| {
        scope.spawn(|| poll(&mut [PollFd::new(&at_other, PollFlags::IN)], None));
        scope.spawn(|| {
            poll(
                &mut [PollFd::new(&client, PollFlags::PRI), PollFd::new(&at_other, PollFlags::IN)],
                None,
            )
        });
        let found = await_process("polls", |process| {
            waits(process, WaitReason::Peer(Some(other.local_addr().unwrap())))
                && waits(process, WaitReason::Events)
        });
        answers.write_all(b"x").unwrap();
        found.unwrap();
    });
}

#[test]
fn unread_answers_are_found() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let clients: Vec<TcpStream> =
        (0..2).map(|_| TcpStream::connect(service.local_addr().unwrap()).unwrap()).collect();
    let mut accepted: Vec<TcpStream> = (0..2).map(|_| service.accept().unwrap().0).collect();
    accepted[0].set_nonblocking(true).unwrap();
    // Writes until the client's and the own buffer are full.
    while accepted[0].write(&[0; 1 << 16]).is_ok() {}
    await_process("unsent", |process| {
        process.unsent_share.is_some_and(|share| share > 0.0 && share < 1.0)
    })
    .unwrap();
    drop(clients);
}

/// Creates a tree with one process: its threads' state, function and call, and its sockets.
fn tree_of_threads(threads: &[(u32, char, Option<&str>, Option<&str>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |file: String, text: &str| {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for (tid, state, function, call) in threads {
        let stat = format!(
            "{tid} (a) {state} 1 7 7 0 -1 4194560 1 2 3 4 150 50 7 3 20 0 1 0 987654 1000000 321 \
             0\n"
        );
        put(format!("proc/7/task/{tid}/stat"), &stat);
        function.iter().for_each(|text| put(format!("proc/7/task/{tid}/wchan"), text));
        call.iter().for_each(|text| put(format!("proc/7/task/{tid}/syscall"), text));
    }
    let el8 = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/linux-4.18-el8/proc/net/tcp");
    put("proc/net/tcp".to_owned(), &std::fs::read_to_string(el8).unwrap());
    std::fs::create_dir_all(folder.path().join("proc/7/fd")).unwrap();
    for (descriptor, inode) in [(3, 4711), (4, 4712), (5, 4713), (6, 99)] {
        symlink(format!("socket:[{inode}]"), folder.path().join(format!("proc/7/fd/{descriptor}")))
            .unwrap();
    }
    folder
}

fn surveyed(folder: &tempfile::TempDir) -> Samples {
    let mut samples = Samples { processes: vec![watched(7)], ..Samples::default() };
    survey(&Root::at(folder.path()), &mut samples);
    samples
}

/// As an ordinary user sees its own threads if only a tracer may read their calls
/// (`kernel.yama.ptrace_scope`).
#[test]
fn without_calls_fewer_waits_are_reported() {
    let folder = tree_of_threads(&[
        (7, 'S', Some("ep_poll"), None),
        (8, 'S', Some("futex_wait_queue_me"), None),
        (9, 'S', Some("sk_wait_data"), None),
        (10, 'D', Some("jbd2_log_wait_commit"), None),
        (11, 'R', Some("0"), None),
    ]);
    let samples = surveyed(&folder);
    let found = |what| {
        samples.processes[0].waits.iter().find(|wait| wait.what == what).map(|wait| wait.threads)
    };
    assert_eq!((found(WaitReason::Events), found(WaitReason::Lock)), (Some(1.0), Some(1.0)));
    assert_eq!(
        (found(WaitReason::Disk), found(WaitReason::Other)),
        (Some(1.0), Some(1.0)),
        "a client's or a peer's"
    );
    assert_eq!(samples.processes[0].waits.len(), 4);
    assert_eq!(samples.probe_errors, Vec::new());
    // Without clients it can only be the peer's.
    std::fs::remove_file(folder.path().join("proc/7/fd/3")).unwrap();
    std::fs::remove_file(folder.path().join("proc/7/fd/4")).unwrap();
    let peer = surveyed(&folder).processes[0].peers[0].address;
    let waits = &surveyed(&folder).processes[0].waits;
    assert!(
        waits.contains(&Wait { what: WaitReason::Peer(Some(peer)), threads: 1.0 }),
        "{waits:?}"
    );
}

#[test]
fn threads_that_may_not_be_seen_are_named_once() {
    let hidden =
        surveyed(&tree_of_threads(&[(7, 'S', Some("0"), None), (8, 'S', Some("0"), None)]));
    assert_eq!(hidden.processes[0].waits, []);
    let files: Vec<_> =
        hidden.probe_errors.iter().map(|probe_error| probe_error.file.as_str()).collect();
    assert_eq!(files, ["proc/7/task/7/syscall"]);
}

/// Real connections of this process, with data in both directions.
#[test]
fn the_kernel_reports_own_connections() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        // Some machines have no IPv6.
        let Ok(service) = TcpListener::bind(address) else { continue };
        let mut clients: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(service.local_addr().unwrap()).unwrap()).collect();
        let mut accepted: Vec<TcpStream> = (0..3).map(|_| service.accept().unwrap().0).collect();
        for (client, accepted) in clients.iter_mut().zip(&mut accepted) {
            client.write_all(b"ask").unwrap();
            accepted.read_exact(&mut [0; 3]).unwrap();
            accepted.write_all(b"answer").unwrap();
            client.read_exact(&mut [0; 6]).unwrap();
        }
        let own: HashSet<u64> =
            clients.iter().map(|client| rustix::fs::fstat(client).unwrap().st_ino).collect();
        let found = connections::of(&own).unwrap();
        assert_eq!(found.count, 3, "{found:?}");
        assert!(
            found.rtt >= found.rtt_min
                && found.rtt > Duration::ZERO
                && found.rtt < Duration::from_secs(60),
            "{found:?}"
        );
        assert!(found.receiver_limited <= 1.0 && found.send_buffer_limited <= 1.0, "{found:?}");
        assert_eq!(connections::of(&HashSet::new()), None);
    }
}

/// A listener with room for two that never accepts, and clients that keep connecting.
#[test]
fn a_full_accept_queue_is_seen_from_both_ends() {
    use rustix::net::{
        AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
    };
    let open = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
    };
    let listener = open();
    bind(&listener, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    listen(&listener, 2).unwrap();
    let there = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
    // While the kernel has room for half-open connections, it answers the first segment of some.
    let clients: Vec<_> = (0..20).map(|_| open()).collect();
    for client in &clients {
        let _ = connect(client, &there);
    }
    await_process("a full queue", |process| {
        let queue =
            process.accept_queue.is_some_and(|queue| queue.is_full() && queue.most == Some(2));
        queue && process.untaken_share.is_some_and(|share| share > 0.0)
    })
    .unwrap();
}
