//! Incarnations of logs by number: records name one in a byte instead of eight.
//!
//! A process meets few incarnations: one per start of a database server. The table is append-only
//! and of the whole process, so that a record can be read without its cache. When it is full,
//! records carry the incarnation itself.

use std::sync::OnceLock;

/// Number of incarnations that the table holds.
const HELD_MAX: usize = 254;
/// In place of a number: the record carries its incarnation, and then its tenant.
pub(super) const OWNED: u8 = HELD_MAX as u8;
/// Number of every incarnation that the table does not hold: the record carries it.
pub(super) const INLINE: u8 = OWNED + 1;

static HELD: [OnceLock<u64>; HELD_MAX] = [const { OnceLock::new() }; HELD_MAX];

/// Returns the number of an incarnation, adding it if there is room, else [`INLINE`].
pub(super) fn number_of(incarnation: u64) -> u8 {
    let at = HELD.iter().position(|held| *held.get_or_init(|| incarnation) == incarnation);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(INLINE)
}

/// Returns an incarnation by its number; `None` for [`INLINE`] and [`OWNED`].
pub(super) fn by_number(number: u8) -> Option<u64> {
    HELD.get(usize::from(number))?.get().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable_and_the_table_is_bounded() {
        let numbers: Vec<u8> = (0..400).map(|i| number_of(1_000_000 + i)).collect();
        for (i, number) in (0..400).zip(numbers) {
            let incarnation = 1_000_000 + i;
            assert_eq!(number_of(incarnation), number);
            assert!(number == INLINE || by_number(number) == Some(incarnation));
        }
        assert_eq!(number_of(u64::MAX), INLINE);
        assert_eq!((by_number(INLINE), by_number(OWNED)), (None, None));
    }
}
