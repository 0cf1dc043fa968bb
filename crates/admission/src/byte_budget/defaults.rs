//! Default budgets of a process, derived from the memory that it may use.

const MIB: u64 = 1 << 20;
/// Smallest default budget: less would not fit ordinary answers.
pub const BYTES_MIN: u64 = MIB;
/// Memory of the process beside its cache and budgets: code, stacks, connections.
const BASE_BYTES: u64 = 64 * MIB;
/// Resident bytes per byte of the cache's capacity when the cache is full.
const FULL_CACHE: f64 = 1.3;
/// Inverse of the least share of the limit for budgets, even when the cache's capacity leaves less:
/// a full cache then exceeds the limit, and a warning reports that.
const SHARED_OUT_MIN: u64 = 8;

/// Bounds on the memory of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Most resident bytes: the setting, the control group's limit or the machine's memory; `None`:
    /// unknown.
    pub resident_bytes: Option<u64>,
    /// Remaining bytes of address space (`ulimit -v`); `None`: unlimited.
    pub address_space_bytes: Option<u64>,
    /// The cache's capacity.
    pub cache_bytes: u64,
}

/// Default limits on the bytes of all answers, of all bodies, and of all rows being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// One answer. An address space bounds it only through the total: the mapped size varies from
    /// hour to hour, so an answer that does not fit now may fit later.
    pub answer_bytes: u64,
    /// All answers waiting to be sent.
    pub answers_bytes: u64,
    /// All bodies of requests.
    pub bodies_bytes: u64,
    /// All rows read by queries and not yet taken by a request.
    pub rows_bytes: u64,
}

impl Totals {
    /// Largest defaults: those of a machine with memory to spare.
    pub const LARGEST: Self = Self {
        answer_bytes: 128 * MIB,
        answers_bytes: 256 * MIB,
        bodies_bytes: 64 * MIB,
        rows_bytes: 64 * MIB,
    };

    /// Divides the memory beside cache and process: an eighth for answers, and a sixteenth each for
    /// bodies and rows.
    #[must_use]
    pub fn within(limits: &MemoryLimits) -> Self {
        let cache_bytes = (limits.cache_bytes as f64 * FULL_CACHE) as u64;
        let left = |limit: u64| {
            limit.saturating_sub(cache_bytes.saturating_add(BASE_BYTES)).max(limit / SHARED_OUT_MIN)
        };
        let resident = limits.resident_bytes.map_or(u64::MAX, left);
        let spare = resident.min(limits.address_space_bytes.map_or(u64::MAX, left));
        let part = |of: u64, divisor: u64, most: u64| (of / divisor).clamp(BYTES_MIN, most);
        Self {
            answer_bytes: part(resident, 8, Self::LARGEST.answer_bytes),
            answers_bytes: part(spare, 8, Self::LARGEST.answers_bytes),
            bodies_bytes: part(spare, 16, Self::LARGEST.bodies_bytes),
            rows_bytes: part(spare, 16, Self::LARGEST.rows_bytes),
        }
    }

    /// Returns a capacity of the cache that fits an address space with `left` bytes remaining;
    /// `None` when `capacity` fits.
    ///
    /// Above a resident limit a process is slow or sheds load; beyond its address space it ends.
    /// Only there the capacity is reduced: to a quarter of the remaining space, because the
    /// allocator maps about 64 MiB for each of several threads, used or not.
    pub fn cache_within(capacity: u64, address_space_bytes: u64) -> Option<u64> {
        let most = (address_space_bytes / 4).max(BYTES_MIN);
        (capacity > most).then_some(most)
    }
}
