//! SipHash with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
//! 2012; the 128-bit form is that of the authors' reference). With one and three rounds, as in the
//! standard library's protection against hash flooding.

/// The secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct SipKey(pub(super) [u64; 2]);

impl SipKey {
    /// Hashes `data` with `C` rounds per eight bytes and `D` at the end.
    #[inline]
    pub(super) fn hash<const C: usize, const D: usize>(&self, data: &[u8]) -> u128 {
        let [k0, k1] = self.0;
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let (words, rest) = data.as_chunks::<8>();
        for word in words {
            absorb::<C>(&mut v, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The last byte holds the length's lowest byte; a rest has fewer than eight bytes.
        last[7] = data.len() as u8;
        absorb::<C>(&mut v, u64::from_le_bytes(last));
        v[2] ^= 0xee;
        let low = squeeze::<D>(&mut v);
        v[1] ^= 0xdd;
        let high = squeeze::<D>(&mut v);
        u128::from(high) << 64 | u128::from(low)
    }
}

#[inline]
fn absorb<const ROUNDS: usize>(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    (0..ROUNDS).for_each(|_| round(v));
    v[0] ^= word;
}

#[inline]
fn squeeze<const ROUNDS: usize>(v: &mut [u64; 4]) -> u64 {
    (0..ROUNDS).for_each(|_| round(v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline]
fn round(v: &mut [u64; 4]) {
    let [a, b, c, d] = v;
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    /// The first vectors of the reference implementation: key 00 01 … 0f, messages of 0, 1 and 2
    /// bytes 00 01 …, 2 and 4 rounds.
    #[test]
    fn the_hash_matches_the_reference_vectors() {
        let key = SipKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let expected: [[u8; 16]; 3] = [
            [
                0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
                0x02, 0x93,
            ],
            [
                0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22,
                0xfc, 0x45,
            ],
            [
                0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3, 0x8b, 0xde, 0xf6, 0x0a,
                0xff, 0xe4,
            ],
        ];
        for (length, expected) in expected.iter().enumerate() {
            let message: Vec<u8> = (0..length as u8).collect();
            assert_eq!(key.hash::<2, 4>(&message).to_le_bytes(), *expected, "{length}");
        }
    }

    #[test]
    fn every_byte_and_the_length_count() {
        let key = SipKey([1, 2]);
        let other = SipKey([1, 3]);
        let mut seen = std::collections::HashSet::new();
        for length in 0..40 {
            let zeros = vec![0; length];
            assert!(
                seen.insert(key.hash::<1, 3>(&zeros)) && seen.insert(other.hash::<1, 3>(&zeros))
            );
            for at in 0..length {
                let mut changed = zeros.clone();
                changed[at] = 1;
                assert!(seen.insert(key.hash::<1, 3>(&changed)), "{length} {at}");
            }
        }
    }
}
