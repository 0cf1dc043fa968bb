//! The few things about a certificate that the TLS library does not tell: names, dates, the hash of its signature.
//!
//! Source: RFC 5280, section 4.1; ITU-T X.690 for DER.

use ring::digest;

const TAG_BOOLEAN: u8 = 0x01;
const TAG_INTEGER: u8 = 0x02;
const TAG_OID: u8 = 0x06;
const TAG_OCTETS: u8 = 0x04;
const TAG_UTC_TIME: u8 = 0x17;
const TAG_TIME: u8 = 0x18;
const TAG_SEQUENCE: u8 = 0x30;
const TAG_SET: u8 = 0x31;
const TAG_VERSION: u8 = 0xa0;
const TAG_EXTENSIONS: u8 = 0xa3;
const TAG_DNS_NAME: u8 = 0x82;
const TAG_IP_ADDRESS: u8 = 0x87;

const OID_COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const OID_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// 1.2.840.113549.1.1: RSA signatures, the last number says which.
const OID_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// 1.2.840.10045.4.3: ECDSA with SHA-2.
const OID_ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
/// 2.16.840.1.101.3.4.2: SHA-2.
const OID_SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];
const RSA_MD5: u8 = 4;
const RSA_SHA1: u8 = 5;
const RSA_PSS: u8 = 10;

/// What a certificate says about whom it is for and when it holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The subject's most specific common name.
    pub(super) common_name: Option<String>,
    /// Alternative names for DNS.
    pub(super) dns: Vec<String>,
    /// Alternative names that are addresses: 4 or 16 bytes.
    pub(super) addresses: Vec<Vec<u8>>,
    /// Seconds since 1970.
    pub(super) not_before: i64,
    pub(super) not_after: i64,
}

/// Reads a certificate. None when it is not one.
pub(super) fn facts(der: &[u8]) -> Option<Facts> {
    let mut tbs = Der(Der(Der(der).take(TAG_SEQUENCE)?).take(TAG_SEQUENCE)?);
    _ = tbs.take(TAG_VERSION);
    tbs.take(TAG_INTEGER)?;
    tbs.take(TAG_SEQUENCE)?;
    tbs.take(TAG_SEQUENCE)?;
    let mut validity = Der(tbs.take(TAG_SEQUENCE)?);
    let (not_before, not_after) = (validity.time()?, validity.time()?);
    let common_name = common_name(tbs.take(TAG_SEQUENCE)?);
    let mut facts = Facts { common_name, not_before, not_after, ..Facts::default() };
    tbs.take(TAG_SEQUENCE)?;
    while let Some((tag, value)) = tbs.next() {
        if tag == TAG_EXTENSIONS {
            facts.alternative_names(Der(value).take(TAG_SEQUENCE)?)?;
        }
    }
    Some(facts)
}

impl Facts {
    fn alternative_names(&mut self, extensions: &[u8]) -> Option<()> {
        let mut extensions = Der(extensions);
        while !extensions.0.is_empty() {
            let mut extension = Der(extensions.take(TAG_SEQUENCE)?);
            if extension.take(TAG_OID)? != OID_ALTERNATIVE_NAME {
                continue;
            }
            _ = extension.take(TAG_BOOLEAN);
            let mut names = Der(Der(extension.take(TAG_OCTETS)?).take(TAG_SEQUENCE)?);
            while let Some((tag, value)) = names.next() {
                match tag {
                    // A name that is no text, or hides a NUL, matches nothing and must not make room for another.
                    TAG_DNS_NAME => self.dns.push(String::from_utf8(value.into()).unwrap_or_default()),
                    TAG_IP_ADDRESS => self.addresses.push(value.into()),
                    _ => {}
                }
            }
        }
        Some(())
    }
}

fn common_name(subject: &[u8]) -> Option<String> {
    let (mut subject, mut found) = (Der(subject), None);
    while let Some(set) = subject.take(TAG_SET) {
        let mut attribute = Der(Der(set).take(TAG_SEQUENCE)?);
        if attribute.take(TAG_OID)? == OID_COMMON_NAME {
            found = attribute.next().and_then(|(_, value)| String::from_utf8(value.into()).ok());
        }
    }
    found
}

/// The hash for `tls-server-end-point`: that of the certificate's signature, SHA-256 instead of MD5 and SHA-1. None for
/// signatures without one (Ed25519).
/// Source: RFC 5929, section 4.1.
pub(super) fn signature_hash(der: &[u8]) -> Option<&'static digest::Algorithm> {
    let mut certificate = Der(Der(der).take(TAG_SEQUENCE)?);
    certificate.take(TAG_SEQUENCE)?;
    let mut algorithm = Der(certificate.take(TAG_SEQUENCE)?);
    let (&which, family) = algorithm.take(TAG_OID)?.split_last()?;
    match (family, which) {
        (OID_RSA, RSA_MD5 | RSA_SHA1 | 11) | (OID_ECDSA, 2) => Some(&digest::SHA256),
        (OID_RSA, 12) | (OID_ECDSA, 3) => Some(&digest::SHA384),
        (OID_RSA, 13) | (OID_ECDSA, 4) => Some(&digest::SHA512),
        (OID_RSA, RSA_PSS) => pss_hash(algorithm.take(TAG_SEQUENCE)?),
        _ => None,
    }
}

/// Source: RFC 4055, section 3.1: `[0] hashAlgorithm`, SHA-1 when left out.
fn pss_hash(parameters: &[u8]) -> Option<&'static digest::Algorithm> {
    let Some(hash) = Der(parameters).take(TAG_VERSION) else { return Some(&digest::SHA256) };
    let (&which, family) = Der(Der(hash).take(TAG_SEQUENCE)?).take(TAG_OID)?.split_last()?;
    match (family, which) {
        (OID_SHA2, 1) => Some(&digest::SHA256),
        (OID_SHA2, 2) => Some(&digest::SHA384),
        (OID_SHA2, 3) => Some(&digest::SHA512),
        _ => None,
    }
}

/// Bytes in DER, read from the front.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut len = usize::from(first);
        if first >= 0x80 {
            // No certificate has elements of 16 MiB.
            let count = usize::from(first & 0x7f);
            if !(1..=3).contains(&count) {
                return None;
            }
            let (bytes, after) = rest.split_at_checked(count)?;
            len = bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
            rest = after;
        }
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// The next element if it has this tag; else nothing is taken.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        if *self.0.first()? == tag { self.next().map(|(_, value)| value) } else { None }
    }

    fn time(&mut self) -> Option<i64> {
        let (tag, value) = self.next()?;
        let text = std::str::from_utf8(value).ok()?.strip_suffix('Z')?;
        let (year, rest) = match tag {
            TAG_UTC_TIME => {
                let (year, rest) = text.split_at_checked(2)?;
                let year = digits(year)?;
                (if year < 50 { 2000 + year } else { 1900 + year }, rest)
            }
            TAG_TIME => text.split_at_checked(4).and_then(|(year, rest)| Some((digits(year)?, rest)))?,
            _ => return None,
        };
        let part = |i: usize| rest.get(2 * i..2 * i + 2).and_then(digits);
        let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
        Some((days_from_1970(year, month, day) * 24 + hour) * 3600 + minute * 60 + second)
    }
}

fn digits(text: &str) -> Option<i64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Days between 1970-01-01 and a date of the Gregorian calendar: whole years from March on, so that the leap day is the
/// last of a year.
fn days_from_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leaps + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        assert_eq!(days_from_1970(1970, 1, 1), 0);
        assert_eq!(days_from_1970(2000, 2, 29), 11_016);
        assert_eq!(days_from_1970(2100, 3, 1), 47_541);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = (facts(&bytes), signature_hash(&bytes));
            // With a plausible start it gets further.
            let mut wrapped = vec![TAG_SEQUENCE, 120, TAG_SEQUENCE, 100];
            wrapped.extend_from_slice(&bytes);
            let _ = (facts(&wrapped), signature_hash(&wrapped));
        }
    }
}
