//! Blocking points of threads: `/proc/PID/task/TID/{stat, wchan, syscall}`. `wchan` is the kernel
//! function in which a thread waits, `0` when it runs or this user may not see it; `syscall` is the
//! number of the system call with its arguments. The call is more specific: since Linux 4, sockets
//! of all kinds wait in the same function.
//!
//! Sources: proc_pid_syscall(5), proc_pid_wchan(5); call numbers in
//! arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, which aarch64
//! uses. 32-bit programs on a 64-bit kernel have other numbers and are misread.

/// The architecture of call numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

/// The parsed text of `syscall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallState {
    /// Runnable.
    Running,
    /// Waiting outside of a call: for a memory page.
    Outside,
    /// Waiting in this call.
    In {
        /// Its number.
        number: u64,
        /// Its first five arguments.
        arguments: [u64; 5],
    },
}

/// The blocking point of a thread, as far as those files alone show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockedOn {
    /// A lock, or a signal of another thread.
    Lock,
    /// The next event on any of several files.
    Events,
    /// A new connection.
    Accept,
    /// A disk.
    Disk,
    /// A point in time.
    Time,
    /// This file; its type decides.
    File(u32),
    /// The one file in a `pollfd` at this address of its memory.
    Polled(u64),
    /// An unknown socket.
    Socket,
    /// Something else, or not visible.
    Other,
}

/// Kinds of calls.
#[derive(Clone, Copy)]
enum CallKind {
    Lock,
    Events,
    /// A single file counts as a read, none as a sleep: the second argument is their number.
    Poll,
    /// The first argument is the number of files.
    Select,
    /// The first argument is the file.
    File,
    Accept,
    Disk,
    Time,
    /// Locks a file, with some values of the second argument.
    Control,
}

/// Locking commands of fcntl(2): F_SETLKW and F_OFD_SETLKW.
const FILE_LOCKS: [u64; 2] = [7, 38];
/// A call that an architecture lacks.
const NONE: u64 = u64::MAX;

/// Blocking calls: name, number on x86-64 and on aarch64.
const CALLS: [(&str, u64, u64, CallKind); 48] = [
    ("futex", 202, 98, CallKind::Lock),
    ("futex_waitv", 449, 449, CallKind::Lock),
    ("futex_wait", 455, 455, CallKind::Lock),
    ("semop", 65, 193, CallKind::Lock),
    ("semtimedop", 220, 192, CallKind::Lock),
    ("flock", 73, 32, CallKind::Lock),
    ("fcntl", 72, 25, CallKind::Control),
    ("epoll_wait", 232, NONE, CallKind::Events),
    ("epoll_pwait", 281, 22, CallKind::Events),
    ("epoll_pwait2", 441, 441, CallKind::Events),
    ("io_uring_enter", 426, 426, CallKind::Events),
    ("poll", 7, NONE, CallKind::Poll),
    ("ppoll", 271, 73, CallKind::Poll),
    ("select", 23, NONE, CallKind::Select),
    ("pselect6", 270, 72, CallKind::Select),
    ("accept", 43, 202, CallKind::Accept),
    ("accept4", 288, 242, CallKind::Accept),
    ("connect", 42, 203, CallKind::File),
    ("read", 0, 63, CallKind::File),
    ("write", 1, 64, CallKind::File),
    ("readv", 19, 65, CallKind::File),
    ("writev", 20, 66, CallKind::File),
    ("recvfrom", 45, 207, CallKind::File),
    ("sendto", 44, 206, CallKind::File),
    ("recvmsg", 47, 212, CallKind::File),
    ("sendmsg", 46, 211, CallKind::File),
    ("recvmmsg", 299, 243, CallKind::File),
    ("sendmmsg", 307, 269, CallKind::File),
    ("sendfile", 40, 71, CallKind::File),
    ("splice", 275, 76, CallKind::File),
    ("nanosleep", 35, 101, CallKind::Time),
    ("clock_nanosleep", 230, 115, CallKind::Time),
    ("fsync", 74, 82, CallKind::Disk),
    ("fdatasync", 75, 83, CallKind::Disk),
    ("sync_file_range", 277, 84, CallKind::Disk),
    ("sync", 162, 81, CallKind::Disk),
    ("syncfs", 306, 267, CallKind::Disk),
    ("msync", 26, 227, CallKind::Disk),
    ("pread64", 17, 67, CallKind::Disk),
    ("pwrite64", 18, 68, CallKind::Disk),
    ("preadv", 295, 69, CallKind::Disk),
    ("pwritev", 296, 70, CallKind::Disk),
    ("preadv2", 327, 286, CallKind::Disk),
    ("pwritev2", 328, 287, CallKind::Disk),
    ("io_getevents", 208, 4, CallKind::Disk),
    ("open", 2, NONE, CallKind::Disk),
    ("openat", 257, 56, CallKind::Disk),
    ("fallocate", 285, 47, CallKind::Disk),
];

/// Prefixes of the kernel functions in which threads wait, from 3.10 to 6.18.
const FUNCTIONS: [(&str, BlockedOn); 29] = [
    ("futex_", BlockedOn::Lock),
    ("flock_lock", BlockedOn::Lock),
    ("fcntl_setlk", BlockedOn::Lock),
    ("locks_lock", BlockedOn::Lock),
    ("ep_poll", BlockedOn::Events),
    ("do_epoll", BlockedOn::Events),
    ("poll_schedule_timeout", BlockedOn::Events),
    ("do_select", BlockedOn::Events),
    ("io_cqring_wait", BlockedOn::Events),
    ("inet_csk_accept", BlockedOn::Accept),
    ("inet_csk_wait_for_connect", BlockedOn::Accept),
    ("sk_wait_data", BlockedOn::Socket),
    ("tcp_recvmsg", BlockedOn::Socket),
    ("sk_stream_wait", BlockedOn::Socket),
    ("inet_stream_connect", BlockedOn::Socket),
    ("hrtimer_nanosleep", BlockedOn::Time),
    ("do_nanosleep", BlockedOn::Time),
    ("jbd2_", BlockedOn::Disk),
    ("wait_on_page", BlockedOn::Disk),
    ("folio_wait", BlockedOn::Disk),
    ("wait_on_buffer", BlockedOn::Disk),
    ("__wait_on_buffer", BlockedOn::Disk),
    ("blkdev_issue_flush", BlockedOn::Disk),
    ("io_schedule", BlockedOn::Disk),
    ("submit_bio_wait", BlockedOn::Disk),
    ("blk_", BlockedOn::Disk),
    ("rq_qos_wait", BlockedOn::Disk),
    ("wbt_wait", BlockedOn::Disk),
    ("xfs_log", BlockedOn::Disk),
];

impl Arch {
    /// Returns this machine's architecture; `None` for others, whose numbers are not in the table.
    #[must_use]
    pub fn own() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }
}

/// Parses `running`, or `number argument … stack instruction`, with number -1 outside of calls.
pub fn parse_syscall(text: &str) -> Option<SyscallState> {
    let mut words = text.split_ascii_whitespace();
    let number = match words.next()? {
        "running" => return Some(SyscallState::Running),
        "-1" => return Some(SyscallState::Outside),
        number => number.parse().ok()?,
    };
    let mut arguments = [0; 5];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(SyscallState::In { number, arguments })
}

/// Returns the blocking point of a thread; `None` when it runs, has ended, or is an idle kernel
/// thread. `state` is that of `stat`, `function` the text of `wchan`, empty when not visible; the
/// call may be missing too.
pub fn blocked_on(
    state: char,
    function: &str,
    call: Option<SyscallState>,
    arch: Option<Arch>,
) -> Option<BlockedOn> {
    if matches!(state, 'R' | 'Z' | 'X' | 'I') || call == Some(SyscallState::Running) {
        return None;
    }
    let called = match (call, arch) {
        (Some(SyscallState::In { number, arguments }), Some(arch)) => {
            by_call(number, arguments, arch)
        }
        _ => None,
    };
    if state == 'D' {
        // Uninterruptible: a disk, except for locks of a process's memory and of files.
        let lock = function.starts_with("rwsem_down")
            && !matches!(called, Some(BlockedOn::Disk | BlockedOn::File(_)));
        return Some(match (lock, call) {
            (false, _) => BlockedOn::Disk,
            (true, Some(_)) => BlockedOn::Lock,
            (true, None) => BlockedOn::Other,
        });
    }
    let by_function = || {
        FUNCTIONS
            .iter()
            .find(|(name, _)| function.starts_with(name))
            .map(|(_, blocked_on)| *blocked_on)
    };
    Some(called.or_else(by_function).unwrap_or(BlockedOn::Other))
}

fn by_call(number: u64, arguments: [u64; 5], arch: Arch) -> Option<BlockedOn> {
    let on = |x86_64, aarch64| match arch {
        Arch::X86_64 => x86_64,
        Arch::Aarch64 => aarch64,
    };
    let (.., kind) =
        CALLS.iter().find(|(_, x86_64, aarch64, _)| on(*x86_64, *aarch64) == number)?;
    let [first, second, ..] = arguments;
    Some(match kind {
        CallKind::Lock => BlockedOn::Lock,
        CallKind::Control if FILE_LOCKS.contains(&second) => BlockedOn::Lock,
        CallKind::Control => BlockedOn::Other,
        CallKind::Poll if second == 0 => BlockedOn::Time,
        CallKind::Poll if second == 1 => BlockedOn::Polled(first),
        CallKind::Select if first == 0 => BlockedOn::Time,
        CallKind::Events | CallKind::Poll | CallKind::Select => BlockedOn::Events,
        CallKind::Accept => BlockedOn::Accept,
        // Negative descriptors make the call fail, so no thread waits there.
        CallKind::File => BlockedOn::File(u32::try_from(first & u64::from(u32::MAX)).ok()?),
        CallKind::Disk => BlockedOn::Disk,
        CallKind::Time => BlockedOn::Time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, first: u64, second: u64) -> Option<SyscallState> {
        Some(SyscallState::In { number, arguments: [first, second, 0, 0, 0] })
    }

    #[test]
    fn the_call_is_read() {
        let recv = "45 0x5 0x7f5ba3e8c980 0x1 0x0 0x0 0x0 0x7f5ba248fa10 0x7f5ba4528974\n";
        let expected = SyscallState::In { number: 45, arguments: [5, 0x7f5b_a3e8_c980, 1, 0, 0] };
        assert_eq!(parse_syscall(recv), Some(expected));
        assert_eq!(parse_syscall("running\n"), Some(SyscallState::Running));
        assert_eq!(
            parse_syscall("-1 0x7ffd3a9ddf48 0x7f5ba4528974\n"),
            Some(SyscallState::Outside)
        );
        for text in
            ["", "x", "-2 0x1", "45 0x5 0x6", "45 5 5 5 5 5", "45 0xg 0x1 0x1 0x1 0x1", "1e9 0x1"]
        {
            assert_eq!(parse_syscall(text), None, "{text:?}");
        }
    }

    #[test]
    fn calls_are_known_on_both_architectures() {
        for (name, x86_64, aarch64, _) in CALLS {
            let here = blocked_on('S', "", call(x86_64, 3, 2), Some(Arch::X86_64));
            assert!(name == "fcntl" || here != Some(BlockedOn::Other), "{name}");
            if aarch64 != NONE {
                assert_eq!(
                    blocked_on('S', "", call(aarch64, 3, 2), Some(Arch::Aarch64)),
                    here,
                    "{name}"
                );
            }
        }
        let x86 = |number, first, second| {
            blocked_on('S', "wait_woken", call(number, first, second), Some(Arch::X86_64))
        };
        assert_eq!(x86(45, 5, 0), Some(BlockedOn::File(5)));
        assert_eq!(
            (x86(7, 0xff00, 1), x86(7, 0xff00, 0)),
            (Some(BlockedOn::Polled(0xff00)), Some(BlockedOn::Time))
        );
        assert_eq!(
            (x86(23, 0, 0), x86(23, 9, 0)),
            (Some(BlockedOn::Time), Some(BlockedOn::Events))
        );
        assert_eq!((x86(72, 3, 7), x86(72, 3, 1)), (Some(BlockedOn::Lock), Some(BlockedOn::Other)));
        assert_eq!(
            (x86(9999, 5, 0), blocked_on('S', "wait_woken", call(45, 5, 0), None)),
            (Some(BlockedOn::Other), Some(BlockedOn::Other))
        );
    }

    #[test]
    fn the_function_completes_the_call() {
        let by_function = |function| blocked_on('S', function, None, Some(Arch::X86_64));
        for (function, expected) in [
            ("futex_wait_queue_me", BlockedOn::Lock),
            ("futex_do_wait", BlockedOn::Lock),
            ("do_epoll_wait", BlockedOn::Events),
            ("poll_schedule_timeout.constprop.0", BlockedOn::Events),
            ("inet_csk_accept", BlockedOn::Accept),
            ("sk_wait_data", BlockedOn::Socket),
            ("hrtimer_nanosleep", BlockedOn::Time),
            ("wait_woken", BlockedOn::Other),
            ("unix_stream_read_generic", BlockedOn::Other),
            ("0", BlockedOn::Other),
            ("", BlockedOn::Other),
        ] {
            assert_eq!(by_function(function), Some(expected), "{function}");
        }
        let interrupted = call(219, 0, 0);
        assert_eq!(
            blocked_on('S', "hrtimer_nanosleep", interrupted, Some(Arch::X86_64)),
            Some(BlockedOn::Time)
        );
    }

    #[test]
    fn running_threads_wait_for_nothing_and_uninterruptible_ones_for_a_disk() {
        assert_eq!(blocked_on('R', "0", call(45, 5, 0), Some(Arch::X86_64)), None);
        assert_eq!(blocked_on('S', "0", Some(SyscallState::Running), Some(Arch::X86_64)), None);
        assert_eq!(blocked_on('Z', "0", None, None), None);
        let still = |function, call| blocked_on('D', function, call, Some(Arch::X86_64));
        assert_eq!(still("0", call(74, 13, 0)), Some(BlockedOn::Disk));
        assert_eq!(
            still("folio_wait_bit_common", Some(SyscallState::Outside)),
            Some(BlockedOn::Disk)
        );
        assert_eq!(
            still("rwsem_down_write_slowpath", call(1, 13, 0)),
            Some(BlockedOn::Disk),
            "the file's own lock"
        );
        assert_eq!(
            still("rwsem_down_read_slowpath", Some(SyscallState::Outside)),
            Some(BlockedOn::Lock),
            "the memory's lock"
        );
        assert_eq!(still("rwsem_down_read_slowpath", None), Some(BlockedOn::Other));
    }
}
