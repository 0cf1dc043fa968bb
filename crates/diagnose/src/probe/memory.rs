//! Total and available memory: `/proc/meminfo`.

/// The file's path.
pub const FILE: &str = "proc/meminfo";

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memory managed by the kernel.
    pub total: u64,
    /// Memory available to programs without swapping, by the kernel's estimate.
    pub available: u64,
    /// Swap space.
    pub swap_total: u64,
    /// Free swap space.
    pub swap_free: u64,
    /// Commit limit without overcommit (`vm.overcommit_memory` = 2).
    pub commit_limit: u64,
    /// Committed memory.
    pub committed: u64,
    /// Kernel stacks of all threads.
    pub kernel_stacks: u64,
}

/// Parses the file. Its kB are 1024 bytes.
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
