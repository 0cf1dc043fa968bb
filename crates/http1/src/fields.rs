//! Header fields of a request: places in the bytes of its head, in order. Nothing is copied until a
//! request has to wait.

/// Place of one field in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldAt {
    pub(crate) name: u32,
    pub(crate) name_bytes: u32,
    pub(crate) value: u32,
    pub(crate) value_bytes: u32,
}

/// Header fields, borrowed from a head. Names are compared without regard to case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    places: &'a [FieldAt],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8], places: &'a [FieldAt]) -> Self {
        Self { bytes, places }
    }

    /// Returns names and values in the order of the head. Values have no white space around them.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let bytes = self.bytes;
        self.places.iter().map(move |place| {
            let part = |from: u32, length: u32| {
                let from = from as usize;
                &bytes[from..from + length as usize]
            };
            (part(place.name, place.name_bytes), part(place.value, place.value_bytes))
        })
    }

    /// Returns the values of all fields of this name.
    pub fn get_all(self, name: &str) -> impl DoubleEndedIterator<Item = &'a [u8]> + Clone {
        self.iter()
            .filter(move |(candidate, _)| candidate.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// Returns the value of the first field of this name.
    #[must_use]
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.get_all(name).next()
    }

    /// Returns whether there is a field of this name.
    #[must_use]
    pub fn contains(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns a copy that outlives the head.
    #[must_use]
    pub fn to_buf(self) -> FieldsBuf {
        let mut copy = FieldsBuf::default();
        self.iter().for_each(|(name, value)| copy.push(name, value));
        copy
    }
}

/// Header fields that own their bytes.
#[derive(Clone, Debug, Default)]
pub struct FieldsBuf {
    bytes: Vec<u8>,
    places: Vec<FieldAt>,
}

impl FieldsBuf {
    /// Returns the fields.
    pub fn as_fields(&self) -> Fields<'_> {
        Fields { bytes: &self.bytes, places: &self.places }
    }

    /// Appends a field. A head has less than 4 GiB, so places fit in 32 bits.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.places.push(FieldAt {
            name: at,
            name_bytes: name.len() as u32,
            value: at + name.len() as u32,
            value_bytes: value.len() as u32,
        });
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for FieldsBuf {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let mut buf = Self::default();
        fields.into_iter().for_each(|(name, value)| buf.push(name.as_ref(), value.as_ref()));
        buf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_case_and_values_keep_their_order() {
        let fields = FieldsBuf::from_iter([("Via", "a"), ("Age", "1"), ("VIA", "b")]);
        let copy = fields.as_fields().to_buf();
        for fields in [fields.as_fields(), copy.as_fields()] {
            assert_eq!(fields.get_all("via").collect::<Vec<_>>(), [b"a", b"b"]);
            assert_eq!(fields.get_all("via").next_back(), Some(&b"b"[..]));
            assert_eq!(fields.get("aGe"), Some(&b"1"[..]));
            assert!(fields.contains("via") && !fields.contains("vi"));
        }
        assert_eq!(Fields::default().iter().count(), 0);
    }
}
