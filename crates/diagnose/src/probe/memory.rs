//! How much memory there is and is left: `/proc/meminfo`.

/// The file.
pub const FILE: &str = "proc/meminfo";

/// In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All that the kernel manages.
    pub total: u64,
    /// What programs could still have without swapping, as the kernel estimates it.
    pub available: u64,
    /// Space for swapping.
    pub swap_total: u64,
    /// The part of it that is free.
    pub swap_free: u64,
    /// What may be promised when nothing may be promised twice (`vm.overcommit_memory` = 2).
    pub commit_limit: u64,
    /// What is promised.
    pub committed: u64,
    /// Kernel stacks of all threads.
    pub kernel_stacks: u64,
}

/// Reads the file's text. A kB in it is 1024 bytes.
#[must_use]
pub fn parse(text: &str) -> Option<Memory> {
    let bytes = |name: &str| super::named::<u64>(text, name)?.checked_mul(1024);
    Some(Memory {
        total: bytes("MemTotal")?,
        available: bytes("MemAvailable")?,
        swap_total: bytes("SwapTotal").unwrap_or_default(),
        swap_free: bytes("SwapFree").unwrap_or_default(),
        commit_limit: bytes("CommitLimit").unwrap_or(u64::MAX),
        committed: bytes("Committed_AS").unwrap_or_default(),
        kernel_stacks: bytes("KernelStack").unwrap_or_default(),
    })
}
