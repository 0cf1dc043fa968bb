//! Choice of the sampling rate.

use super::sampling::SamplingRate;
use super::{FACTORS, FACTORS_SUM};

/// Entries that the smallest copy must have room for: smaller copies of the policy behave unlike
/// the store.
pub const COPY_ENTRIES_MIN: f64 = 1_000.0;
/// Lowest rate, unless memory demands a lower one.
pub const RATE_MIN: f64 = 1.0 / 256.0;
/// Highest rate: above it the simulation would cost too much.
pub const RATE_MAX: f64 = 1.0 / 8.0;
/// Most memory of all copies together, in bytes.
pub const MEMORY_BYTES_MAX: u64 = 10 << 20;
/// Most by which experience may lower the rate that the mean weight asks for. Copies that exceed
/// their memory have far more entries than the mean weight says, the smallest too.
const LOWERED_MAX: f64 = 8.0;
/// Cost of an entry of a copy: slot 28, links 8, bucket 4 to 8, remembered keys about 6.
const ENTRY_COST_BYTES: f64 = 52.0;

/// Reason for which the rate cannot be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unplanned {
    /// Even at [`RATE_MAX`] the smallest copy would be too small.
    TooSmall {
        /// Entries that the capacity holds.
        entries: u64,
        /// Entries that it must hold.
        entries_min: u64,
    },
    /// Copies at an eighth of the rate need more than [`MEMORY_BYTES_MAX`].
    Memory,
}

/// Chooses the rate for a capacity and the mean weight of its entries, in bytes. `rate_max` is a
/// bound from experience: the copies needed too much memory at a higher one.
///
/// # Errors
/// The reason, if there is no such rate.
pub fn plan(
    capacity_bytes: u64,
    mean_bytes: u64,
    rate_max: Option<SamplingRate>,
) -> Result<SamplingRate, Unplanned> {
    let entries = (capacity_bytes / mean_bytes.max(1)) as f64;
    let needed = COPY_ENTRIES_MIN / (FACTORS[0] * entries).max(1.0);
    if needed > RATE_MAX {
        let entries_min = (COPY_ENTRIES_MIN / FACTORS[0] / RATE_MAX) as u64;
        return Err(Unplanned::TooSmall { entries: entries as u64, entries_min });
    }
    // Half of it: weights vary.
    let affordable =
        MEMORY_BYTES_MAX as f64 / 2.0 / (FACTORS_SUM * entries.max(1.0) * ENTRY_COST_BYTES);
    let share = needed.max(RATE_MIN.min(affordable));
    match rate_max {
        Some(most) if most.share() * LOWERED_MAX < needed => Err(Unplanned::Memory),
        Some(most) => Ok(SamplingRate::from_share(share).min(most)),
        None => Ok(SamplingRate::from_share(share)),
    }
}
