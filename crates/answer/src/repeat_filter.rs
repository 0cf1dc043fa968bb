//! Which keys a batch has already, asked for each of its ids.

/// A set of hashes with false positives: one bit for each.
///
/// Nearly every id of a batch is new, and one bit says so, where a hash table would be filled to be
/// asked no more. Of the others the hash is searched for among those of the batch: the repeated
/// ids, and one new id in 32 to 16.
#[derive(Debug)]
pub(super) struct RepeatFilter {
    /// A power of two of words.
    bits: Vec<u64>,
}

const WORD: usize = u64::BITS as usize;

/// Least bits for each hash.
const BITS_PER_HASH: usize = 16;

impl RepeatFilter {
    /// Allocates for this number of hashes.
    pub(crate) fn with_capacity(hashes: usize) -> Self {
        Self { bits: vec![0; words(hashes)] }
    }

    /// Adds a hash to `hashes`, all that were added before. Returns `false` if it is not among
    /// them.
    #[inline]
    pub(crate) fn note(&mut self, hash: u64, hashes: &[u64]) -> bool {
        if hashes.len() * BITS_PER_HASH >= self.bits.len() * WORD {
            self.grow(hashes);
        }
        let at = (hash / WORD as u64) as usize & (self.bits.len() - 1);
        let bit = 1 << (hash % WORD as u64);
        let is_seen = self.bits[at] & bit != 0;
        self.bits[at] |= bit;
        is_seen
    }

    #[cold]
    fn grow(&mut self, hashes: &[u64]) {
        self.bits = vec![0; words(2 * hashes.len().max(1))];
        for (i, hash) in hashes.iter().enumerate() {
            self.note(*hash, &hashes[..i]);
        }
    }
}

fn words(hashes: usize) -> usize {
    (hashes * BITS_PER_HASH).div_ceil(WORD).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }

    #[test]
    fn what_was_noted_is_seen_and_most_else_is_not() {
        for capacity in [0, 1, 100, 1_000] {
            let mut seen = RepeatFilter::with_capacity(capacity);
            let mut hashes = Vec::new();
            let mut false_positives = 0;
            for number in 0..1_000 {
                false_positives += u32::from(seen.note(hash(number), &hashes));
                hashes.push(hash(number));
            }
            assert!(false_positives < 100, "{false_positives} with room for {capacity}");
            assert!(hashes.iter().all(|hash| seen.note(*hash, &hashes)), "{capacity}");
        }
    }
}
