//! What a thread stands at: `/proc/PID/task/TID/{stat, wchan, syscall}`. `wchan` is the name of the kernel's function in which
//! it waits, `0` when it runs or this user may not know; `syscall` is the number of the call and its arguments.
//! The call tells more: sockets of all kinds wait in the same function since Linux 4.
//!
//! Sources: proc_pid_syscall(5), proc_pid_wchan(5); numbers of calls in arch/x86/entry/syscalls/syscall_64.tbl and
//! include/uapi/asm-generic/unistd.h, which aarch64 uses. A 32-bit program on a 64-bit kernel has others, and is misread.

/// Whose numbers the calls have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

/// The text of `syscall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It runs, or could.
    Running,
    /// It waits, but in no call: for a page of memory.
    Outside,
    /// It waits in this call.
    In {
        /// Its number.
        number: u64,
        /// Its first five arguments.
        arguments: [u64; 5],
    },
}

/// What a thread stands at, as far as those files alone tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stand {
    /// A lock, or a signal of another thread.
    Lock,
    /// Whatever comes next on any of several files.
    Events,
    /// A new connection.
    Accept,
    /// A disk.
    Disk,
    /// The time.
    Time,
    /// This file: what it is decides.
    File(u32),
    /// The one file that is named at this address of its memory, as a `pollfd`.
    Polled(u64),
    /// Some socket.
    Socket,
    /// Something else, or what may not be known.
    Other,
}

/// Kinds of calls.
#[derive(Clone, Copy)]
enum Kind {
    Lock,
    Events,
    /// One file is waited for as if it were read, none is a sleep: the second argument is their number.
    Poll,
    /// The first argument is their number.
    Select,
    /// The first argument is the file.
    File,
    Accept,
    Disk,
    Time,
    /// Locks a file, with some values of the second argument.
    Control,
}

/// Locks of fcntl(2): F_SETLKW and F_OFD_SETLKW.
const FILE_LOCKS: [u64; 2] = [7, 38];
/// A call that an architecture does not have.
const NONE: u64 = u64::MAX;

/// Calls that wait: name, number on x86-64 and on aarch64.
const CALLS: [(&str, u64, u64, Kind); 48] = [
    ("futex", 202, 98, Kind::Lock),
    ("futex_waitv", 449, 449, Kind::Lock),
    ("futex_wait", 455, 455, Kind::Lock),
    ("semop", 65, 193, Kind::Lock),
    ("semtimedop", 220, 192, Kind::Lock),
    ("flock", 73, 32, Kind::Lock),
    ("fcntl", 72, 25, Kind::Control),
    ("epoll_wait", 232, NONE, Kind::Events),
    ("epoll_pwait", 281, 22, Kind::Events),
    ("epoll_pwait2", 441, 441, Kind::Events),
    ("io_uring_enter", 426, 426, Kind::Events),
    ("poll", 7, NONE, Kind::Poll),
    ("ppoll", 271, 73, Kind::Poll),
    ("select", 23, NONE, Kind::Select),
    ("pselect6", 270, 72, Kind::Select),
    ("accept", 43, 202, Kind::Accept),
    ("accept4", 288, 242, Kind::Accept),
    ("connect", 42, 203, Kind::File),
    ("read", 0, 63, Kind::File),
    ("write", 1, 64, Kind::File),
    ("readv", 19, 65, Kind::File),
    ("writev", 20, 66, Kind::File),
    ("recvfrom", 45, 207, Kind::File),
    ("sendto", 44, 206, Kind::File),
    ("recvmsg", 47, 212, Kind::File),
    ("sendmsg", 46, 211, Kind::File),
    ("recvmmsg", 299, 243, Kind::File),
    ("sendmmsg", 307, 269, Kind::File),
    ("sendfile", 40, 71, Kind::File),
    ("splice", 275, 76, Kind::File),
    ("nanosleep", 35, 101, Kind::Time),
    ("clock_nanosleep", 230, 115, Kind::Time),
    ("fsync", 74, 82, Kind::Disk),
    ("fdatasync", 75, 83, Kind::Disk),
    ("sync_file_range", 277, 84, Kind::Disk),
    ("sync", 162, 81, Kind::Disk),
    ("syncfs", 306, 267, Kind::Disk),
    ("msync", 26, 227, Kind::Disk),
    ("pread64", 17, 67, Kind::Disk),
    ("pwrite64", 18, 68, Kind::Disk),
    ("preadv", 295, 69, Kind::Disk),
    ("pwritev", 296, 70, Kind::Disk),
    ("preadv2", 327, 286, Kind::Disk),
    ("pwritev2", 328, 287, Kind::Disk),
    ("io_getevents", 208, 4, Kind::Disk),
    ("open", 2, NONE, Kind::Disk),
    ("openat", 257, 56, Kind::Disk),
    ("fallocate", 285, 47, Kind::Disk),
];

/// Beginnings of the kernel's functions in which threads wait, of kernels from 3.10 to 6.18.
const FUNCTIONS: [(&str, Stand); 29] = [
    ("futex_", Stand::Lock),
    ("flock_lock", Stand::Lock),
    ("fcntl_setlk", Stand::Lock),
    ("locks_lock", Stand::Lock),
    ("ep_poll", Stand::Events),
    ("do_epoll", Stand::Events),
    ("poll_schedule_timeout", Stand::Events),
    ("do_select", Stand::Events),
    ("io_cqring_wait", Stand::Events),
    ("inet_csk_accept", Stand::Accept),
    ("inet_csk_wait_for_connect", Stand::Accept),
    ("sk_wait_data", Stand::Socket),
    ("tcp_recvmsg", Stand::Socket),
    ("sk_stream_wait", Stand::Socket),
    ("inet_stream_connect", Stand::Socket),
    ("hrtimer_nanosleep", Stand::Time),
    ("do_nanosleep", Stand::Time),
    ("jbd2_", Stand::Disk),
    ("wait_on_page", Stand::Disk),
    ("folio_wait", Stand::Disk),
    ("wait_on_buffer", Stand::Disk),
    ("__wait_on_buffer", Stand::Disk),
    ("blkdev_issue_flush", Stand::Disk),
    ("io_schedule", Stand::Disk),
    ("submit_bio_wait", Stand::Disk),
    ("blk_", Stand::Disk),
    ("rq_qos_wait", Stand::Disk),
    ("wbt_wait", Stand::Disk),
    ("xfs_log", Stand::Disk),
];

impl Arch {
    /// This machine's; none of others, whose calls are not known here.
    #[must_use]
    pub fn own() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }
}

/// Reads the text of `syscall`: `running`, or `number argument … stack instruction`, with number -1 outside of calls.
#[must_use]
pub fn parse_syscall(text: &str) -> Option<Call> {
    let mut words = text.split_ascii_whitespace();
    let number = match words.next()? {
        "running" => return Some(Call::Running),
        "-1" => return Some(Call::Outside),
        number => number.parse().ok()?,
    };
    let mut arguments = [0; 5];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(Call::In { number, arguments })
}

/// Where a thread stands; none of one that runs, has ended or is a kernel's own that idles. `state` is that of `stat`, `function`
/// the text of `wchan`, empty when it may not be known; so may the call be.
#[must_use]
pub fn stand(state: char, function: &str, call: Option<Call>, arch: Option<Arch>) -> Option<Stand> {
    if matches!(state, 'R' | 'Z' | 'X' | 'I') || call == Some(Call::Running) {
        return None;
    }
    let called = match (call, arch) {
        (Some(Call::In { number, arguments }), Some(arch)) => by_call(number, arguments, arch),
        _ => None,
    };
    if state == 'D' {
        // Uninterruptible: a disk, but for the locks of a process's memory and of files.
        let lock = function.starts_with("rwsem_down") && !matches!(called, Some(Stand::Disk | Stand::File(_)));
        return Some(match (lock, call) {
            (false, _) => Stand::Disk,
            (true, Some(_)) => Stand::Lock,
            (true, None) => Stand::Other,
        });
    }
    let by_function = || FUNCTIONS.iter().find(|(name, _)| function.starts_with(name)).map(|(_, stand)| *stand);
    Some(called.or_else(by_function).unwrap_or(Stand::Other))
}

fn by_call(number: u64, arguments: [u64; 5], arch: Arch) -> Option<Stand> {
    let on = |x86_64, aarch64| match arch {
        Arch::X86_64 => x86_64,
        Arch::Aarch64 => aarch64,
    };
    let (.., kind) = CALLS.iter().find(|(_, x86_64, aarch64, _)| on(*x86_64, *aarch64) == number)?;
    let [first, second, ..] = arguments;
    Some(match kind {
        Kind::Lock => Stand::Lock,
        Kind::Control if FILE_LOCKS.contains(&second) => Stand::Lock,
        Kind::Control => Stand::Other,
        Kind::Poll if second == 0 => Stand::Time,
        Kind::Poll if second == 1 => Stand::Polled(first),
        Kind::Select if first == 0 => Stand::Time,
        Kind::Events | Kind::Poll | Kind::Select => Stand::Events,
        Kind::Accept => Stand::Accept,
        // Negative ones make the call fail, so nobody stands there.
        Kind::File => Stand::File(u32::try_from(first & u64::from(u32::MAX)).ok()?),
        Kind::Disk => Stand::Disk,
        Kind::Time => Stand::Time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, first: u64, second: u64) -> Option<Call> {
        Some(Call::In { number, arguments: [first, second, 0, 0, 0] })
    }

    #[test]
    fn the_call_is_read() {
        let recv = "45 0x5 0x7f5ba3e8c980 0x1 0x0 0x0 0x0 0x7f5ba248fa10 0x7f5ba4528974\n";
        let expected = Call::In { number: 45, arguments: [5, 0x7f5b_a3e8_c980, 1, 0, 0] };
        assert_eq!(parse_syscall(recv), Some(expected));
        assert_eq!(parse_syscall("running\n"), Some(Call::Running));
        assert_eq!(parse_syscall("-1 0x7ffd3a9ddf48 0x7f5ba4528974\n"), Some(Call::Outside));
        for text in ["", "x", "-2 0x1", "45 0x5 0x6", "45 5 5 5 5 5", "45 0xg 0x1 0x1 0x1 0x1", "1e9 0x1"] {
            assert_eq!(parse_syscall(text), None, "{text:?}");
        }
    }

    #[test]
    fn calls_are_known_on_both_architectures() {
        for (name, x86_64, aarch64, _) in CALLS {
            let here = stand('S', "", call(x86_64, 3, 2), Some(Arch::X86_64));
            assert!(name == "fcntl" || here != Some(Stand::Other), "{name}");
            if aarch64 != NONE {
                assert_eq!(stand('S', "", call(aarch64, 3, 2), Some(Arch::Aarch64)), here, "{name}");
            }
        }
        let x86 = |number, first, second| stand('S', "wait_woken", call(number, first, second), Some(Arch::X86_64));
        assert_eq!(x86(45, 5, 0), Some(Stand::File(5)));
        assert_eq!((x86(7, 0xff00, 1), x86(7, 0xff00, 0)), (Some(Stand::Polled(0xff00)), Some(Stand::Time)));
        assert_eq!((x86(23, 0, 0), x86(23, 9, 0)), (Some(Stand::Time), Some(Stand::Events)));
        assert_eq!((x86(72, 3, 7), x86(72, 3, 1)), (Some(Stand::Lock), Some(Stand::Other)));
        assert_eq!(
            (x86(9999, 5, 0), stand('S', "wait_woken", call(45, 5, 0), None)),
            (Some(Stand::Other), Some(Stand::Other))
        );
    }

    #[test]
    fn the_function_tells_what_the_call_does_not() {
        let by_function = |function| stand('S', function, None, Some(Arch::X86_64));
        for (function, expected) in [
            ("futex_wait_queue_me", Stand::Lock),
            ("futex_do_wait", Stand::Lock),
            ("do_epoll_wait", Stand::Events),
            ("poll_schedule_timeout.constprop.0", Stand::Events),
            ("inet_csk_accept", Stand::Accept),
            ("sk_wait_data", Stand::Socket),
            ("hrtimer_nanosleep", Stand::Time),
            ("wait_woken", Stand::Other),
            ("unix_stream_read_generic", Stand::Other),
            ("0", Stand::Other),
            ("", Stand::Other),
        ] {
            assert_eq!(by_function(function), Some(expected), "{function}");
        }
        let interrupted = call(219, 0, 0);
        assert_eq!(stand('S', "hrtimer_nanosleep", interrupted, Some(Arch::X86_64)), Some(Stand::Time));
    }

    #[test]
    fn who_runs_waits_for_nothing_and_who_may_not_be_woken_for_a_disk() {
        assert_eq!(stand('R', "0", call(45, 5, 0), Some(Arch::X86_64)), None);
        assert_eq!(stand('S', "0", Some(Call::Running), Some(Arch::X86_64)), None);
        assert_eq!(stand('Z', "0", None, None), None);
        let still = |function, call| stand('D', function, call, Some(Arch::X86_64));
        assert_eq!(still("0", call(74, 13, 0)), Some(Stand::Disk));
        assert_eq!(still("folio_wait_bit_common", Some(Call::Outside)), Some(Stand::Disk));
        assert_eq!(still("rwsem_down_write_slowpath", call(1, 13, 0)), Some(Stand::Disk), "the file's own lock");
        assert_eq!(still("rwsem_down_read_slowpath", Some(Call::Outside)), Some(Stand::Lock), "the memory's lock");
        assert_eq!(still("rwsem_down_read_slowpath", None), Some(Stand::Other));
    }
}
