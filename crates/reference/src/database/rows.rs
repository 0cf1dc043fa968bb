//! The table's contents.

use super::Row;

/// Number of rows; their ids are 1 to this.
pub const ROWS: i32 = 100_000;
/// Largest number in a row; the smallest is 1.
const NUMBER_MAX: u64 = 10_000;

/// Returns all rows, the same each time.
pub(super) fn rows() -> impl Iterator<Item = Row> {
    (1..=ROWS).map(|id| Row { id, random_number: number(id.unsigned_abs()) })
}

/// Returns a pseudorandom number: SplitMix64 (Steele, Lea and Flood, 2014) of the id.
fn number(id: u32) -> i32 {
    let mut z = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    i32::try_from(z % NUMBER_MAX + 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly() {
        let all: Vec<Row> = rows().collect();
        assert_eq!((all.len(), all[0].id, all[99_999].id), (100_000, 1, ROWS));
        assert!(all.iter().all(|row| (1..=10_000).contains(&row.random_number)));
        let mean = all.iter().map(|row| f64::from(row.random_number)).sum::<f64>() / 100_000.0;
        assert!((mean - 5000.5).abs() < 50.0, "{mean}");
        assert!(
            all.windows(2).filter(|pair| pair[0].random_number < pair[1].random_number).count()
                > 49_000
        );
    }
}
