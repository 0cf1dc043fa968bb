//! `Accept-Encoding` (RFC 9110 section 12.5.3).
//!
//! Without an acceptable variant the answer has no coding, even if the request excludes that: the
//! RFC permits to disregard the field, and a request that is refused would not lead to the variant.

use hotrow_cache::ContentCoding;

/// Weights in thousandths.
type Weight = u16;

/// What a request accepts. `None`: not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    gzip: Option<Weight>,
    zstd: Option<Weight>,
    identity: Option<Weight>,
    /// `*`: everything that is not listed.
    others: Option<Weight>,
}

impl Accepted {
    /// Parses the values of all fields. A malformed element counts as not listed.
    pub(super) fn parse<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut accepted = Self::default();
        for element in fields.flat_map(|field| field.split(|byte| *byte == b',')) {
            if let Some((name, weight)) = parse_element(element) {
                accepted.list(name, weight);
            }
        }
        accepted
    }

    /// Lists a coding. The greatest weight counts if it is listed twice.
    fn list(&mut self, name: &[u8], weight: Weight) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let place = if is("gzip") || is("x-gzip") {
            &mut self.gzip
        } else if is("zstd") {
            &mut self.zstd
        } else if is("identity") {
            &mut self.identity
        } else if is("*") {
            &mut self.others
        } else {
            return;
        };
        *place = Some(place.map_or(weight, |before| before.max(weight)));
    }

    fn weight(self, coding: ContentCoding) -> Weight {
        let listed = match coding {
            ContentCoding::Gzip => self.gzip,
            ContentCoding::Zstd => self.zstd,
        };
        listed.or(self.others).unwrap_or(0)
    }

    /// Returns the coding with the greatest weight among those of `preferred` that are available,
    /// the first of equals; `None` if the body should have no coding.
    pub(super) fn best(
        self,
        preferred: &[ContentCoding],
        is_available: impl Fn(ContentCoding) -> bool,
    ) -> Option<ContentCoding> {
        // Acceptable unless excluded, but less than what is listed, unless listed itself.
        let identity = self.identity.or(self.others).unwrap_or(0);
        let mut best = None;
        let mut weight_min = identity.max(1);
        for coding in preferred.iter().copied().filter(|coding| is_available(*coding)) {
            let weight = self.weight(coding);
            let is_better = if best.is_none() { weight >= weight_min } else { weight > weight_min };
            if is_better {
                best = Some(coding);
                weight_min = weight;
            }
        }
        best
    }
}

/// Parses `coding [;q=weight]`. `None` if it is malformed.
fn parse_element(element: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let weight = match parts.next() {
        None => 1000,
        Some(parameter) => parse_weight(parameter)?,
    };
    parts.next().is_none().then_some((name, weight))
}

/// Parses `q=` and a number from 0 to 1 with at most three decimals.
fn parse_weight(parameter: &[u8]) -> Option<Weight> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, fraction) = match value.split_first()? {
        (whole, []) => (whole, &[][..]),
        (whole, [b'.', fraction @ ..]) => (whole, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| fraction.get(at).map_or(0, |digit| Weight::from(digit - b'0'));
    let thousandths = 100 * digit(0) + 10 * digit(1) + digit(2);
    match (whole, thousandths) {
        (b'0', thousandths) => Some(thousandths),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ContentCoding::{Gzip, Zstd};
    use proptest::prelude::*;

    use super::*;

    fn best(fields: &[&str]) -> Option<ContentCoding> {
        let fields = fields.iter().map(|field| field.as_bytes());
        Accepted::parse(fields).best(&[Zstd, Gzip], |_| true)
    }

    #[test]
    fn the_greatest_weight_wins_then_the_order_of_the_configuration() {
        for (field, coding) in [
            ("gzip", Some(Gzip)),
            ("GZip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("gzip, zstd", Some(Zstd)),
            ("gzip;q=1, zstd;q=0.9", Some(Gzip)),
            ("gzip;q=0.5, zstd;q=0.501", Some(Zstd)),
            ("gzip ; q=0.5 , zstd;Q=0.4", Some(Gzip)),
            ("deflate, gzip;q=1.0, *;q=0.5", Some(Gzip)),
            ("br, *", Some(Zstd)),
            ("*;q=0", None),
            ("gzip;q=0", None),
            ("gzip;q=0, *", Some(Zstd)),
            ("zstd;q=0, gzip;q=0.001", Some(Gzip)),
            ("identity", None),
            ("br, deflate", None),
            ("", None),
            (",,", None),
        ] {
            assert_eq!(best(&[field]), coding, "{field}");
        }
        assert_eq!(best(&["zstd;q=0.1", "gzip"]), Some(Gzip), "the lines are one list");
        let accepted = Accepted::parse([&b"gzip, zstd"[..]].into_iter());
        assert_eq!(accepted.best(&[Gzip, Zstd], |_| true), Some(Gzip));
        assert_eq!(accepted.best(&[Zstd, Gzip], |coding| coding == Gzip), Some(Gzip));
        assert_eq!(accepted.best(&[], |_| true), None);
    }

    #[test]
    fn identity_counts_if_it_is_listed() {
        for (field, coding) in [
            ("gzip;q=0.5, identity", None),
            ("gzip;q=0.5, identity;q=0.5", Some(Gzip)),
            ("gzip;q=0.5, identity;q=0.4", Some(Gzip)),
            ("gzip;q=0.1, *;q=0.5", Some(Zstd)),
            ("gzip;q=0.1, zstd;q=0, *;q=0.5", None),
            ("gzip, identity;q=0", Some(Gzip)),
            ("identity;q=0", None),
            ("br, identity;q=0", None),
        ] {
            assert_eq!(best(&[field]), coding, "{field}");
        }
    }

    #[test]
    fn malformed_elements_are_not_listed() {
        for field in [
            "gzip;q=",
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.0001",
            "gzip;q=-1",
            "gzip;q=.5",
            "gzip;level=9",
            "gzip;q=1;q=1",
            ";q=1",
            "gzip zstd",
            "\u{e9}",
        ] {
            assert_eq!(best(&[field]), None, "{field}");
        }
        assert_eq!(best(&["zstd;q=x, gzip"]), Some(Gzip), "the others count");
    }

    proptest! {
        #[test]
        fn no_field_panics_or_leads_to_an_excluded_coding(
            field in "[a-z*;=,. 0-9]{0,40}",
            any in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let excluded = format!("{field},gzip;q=0");
            let accepted = Accepted::parse([any.as_slice()].into_iter());
            _ = accepted.best(&[Zstd, Gzip], |_| true);
            let accepted = Accepted::parse([excluded.as_bytes()].into_iter());
            if accepted.gzip == Some(0) {
                prop_assert_ne!(accepted.best(&[Zstd, Gzip], |_| true), Some(Gzip));
            }
        }
    }
}
