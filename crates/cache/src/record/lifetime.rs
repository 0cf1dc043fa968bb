//! A lifetime in 32 bits: 26 bits of precision and an exponent, rounded down.

/// Bits of precision.
const MANTISSA_BITS: u32 = 26;

/// A duration in nanoseconds, at most 2^-25 of it shorter than what it was made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime(u32);

impl Lifetime {
    /// Keeps a duration. An endless one (`u64::MAX`) stays endless.
    pub(super) fn new(nanos: u64) -> Self {
        if nanos == u64::MAX {
            return Self(u32::MAX);
        }
        let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(MANTISSA_BITS);
        // 26 bits, and at most 38 as the exponent.
        Self((nanos >> shift) as u32 | shift << MANTISSA_BITS)
    }

    /// Returns the duration in nanoseconds.
    pub(super) fn nanos(self) -> u64 {
        if self.0 == u32::MAX {
            return u64::MAX;
        }
        u64::from(self.0 & ((1 << MANTISSA_BITS) - 1)) << (self.0 >> MANTISSA_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_exact_up_to_half_a_minute() {
        for seconds in 0..=34 {
            assert_eq!(Lifetime::new(seconds * 1_000_000_000).nanos(), seconds * 1_000_000_000);
        }
        assert_eq!(Lifetime::new(u64::MAX).nanos(), u64::MAX);
    }

    proptest::proptest! {
        #[test]
        fn it_is_never_longer_and_hardly_shorter(nanos: u64, shift in 0_u32..64) {
            let nanos = nanos >> shift;
            let kept = Lifetime::new(nanos).nanos();
            assert!(kept <= nanos && nanos - kept <= nanos >> 25, "{nanos}: {kept}");
        }
    }
}
