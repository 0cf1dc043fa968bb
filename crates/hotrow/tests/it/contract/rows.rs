//! Contents of the rows: every byte follows from key and version, so an answer proves its version
//! and that no part comes from another one.

use std::borrow::Cow;
use std::fmt::Write as _;

use hotrow_measure::random::STEP;
pub(crate) use hotrow_measure::random::mix;
use serde_json::Value;

/// Member in which a record contains its version and payload, if these are embedded.
pub(crate) const PART: &str = "part";

/// Statement that creates the table.
pub(crate) const CREATE: &str =
    "CREATE TABLE items(id INTEGER PRIMARY KEY, version INTEGER NOT NULL, payload TEXT NOT NULL)";

/// Range of payload sizes in bytes, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Returns the row's payload: hexadecimal, with a length that differs between versions.
pub(crate) fn payload(key: u32, version: u64, sizes: Sizes) -> String {
    let seed = mix(u64::from(key) << 40 ^ version);
    let length = sizes.from + (mix(seed) as usize) % (sizes.to - sizes.from + 1);
    let mut text = String::with_capacity(length + 16);
    let mut block = seed;
    while text.len() < length {
        block = block.wrapping_add(0x9e37_79b9_7f4a_7c15);
        // Writing to a string cannot fail.
        _ = write!(text, "{block:016x}");
    }
    text.truncate(length);
    text
}

/// Returns the row as JSON, in the order of the table's columns.
pub(crate) fn body(key: u32, version: u64, sizes: Sizes) -> String {
    format!(
        "{{\"id\":{key},\"version\":{version},\"payload\":\"{}\"}}",
        payload(key, version, sizes)
    )
}

/// Returns a body with an embedded part as [`body`] has it; other bodies unchanged.
pub(crate) fn flattened(body: &[u8]) -> Cow<'_, [u8]> {
    let parts = std::str::from_utf8(body).ok().and_then(|text| {
        let (own, part) = text.split_once(&format!("\"{PART}\":[{{"))?;
        Some(format!("{own}{}}}", part.strip_suffix("}]}")?))
    });
    parts.map_or(Cow::Borrowed(body), |text| Cow::Owned(text.into_bytes()))
}

/// Does the same for a record of a batch.
pub(crate) fn flattened_item(item: &Value) -> Value {
    let mut item = item.clone();
    let Some(own) = item.as_object_mut() else { return item };
    if let Some([Value::Object(part)]) = own.get(PART).and_then(Value::as_array).map(Vec::as_slice)
    {
        let part = part.clone();
        own.remove(PART);
        own.extend(part);
    }
    item
}

/// Returns the version that a body claims; comparison with [`body`] proves it.
pub(crate) fn claimed_version(body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("\"version\":")?;
    rest.split(',').next()?.parse().ok()
}

/// Random number generator, repeatable from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    /// Returns any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns a number below `n`, which must not be 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns true with this chance in per cent.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `all`.
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Returns a number below `n`, mostly a small one.
    pub(crate) fn skewed(&mut self, n: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        ((unit.powi(4) * n as f64) as u64).min(n - 1)
    }
}

#[test]
fn a_body_is_of_one_version_alone() {
    let sizes = Sizes { from: 40, to: 90 };
    let one = body(7, 3, sizes);
    assert_eq!(claimed_version(one.as_bytes()), Some(3));
    assert!(
        one.starts_with("{\"id\":7,\"version\":3,\"payload\":\"")
            && (40..=90).contains(&payload(7, 3, sizes).len())
    );
    assert_ne!(payload(7, 3, sizes), payload(7, 4, sizes));
    assert_ne!(payload(7, 3, sizes), payload(8, 3, sizes));
    assert_eq!(claimed_version(b"{}"), None);
    let nested = one.replace("\"version", "\"part\":[{\"version").replace('}', "}]}");
    assert_eq!(flattened(nested.as_bytes()), one.as_bytes());
    assert_eq!(flattened(one.as_bytes()), one.as_bytes());
}
