//! Arguments of a command: places in the bytes that arrived. Nothing is copied until a command has
//! to wait.

/// Place of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// Arguments of a command, its name first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    places: &'a [Place],
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(bytes: &'a [u8], places: &'a [Place]) -> Self {
        Self { bytes, places }
    }

    /// Returns the number of arguments.
    #[must_use]
    #[inline]
    pub fn len(self) -> usize {
        self.places.len()
    }

    /// Returns whether there are none: an empty line, or an empty array.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.places.is_empty()
    }

    /// Returns the argument of this number; `None`: there are fewer.
    #[must_use]
    #[inline]
    pub fn get(self, at: usize) -> Option<&'a [u8]> {
        let place = self.places.get(at)?;
        self.bytes.get(place.from as usize..place.to as usize)
    }

    /// Returns the command's name; empty if there are no arguments.
    #[must_use]
    #[inline]
    pub fn name(self) -> &'a [u8] {
        self.get(0).unwrap_or_default()
    }

    /// Returns the arguments from this number on.
    pub fn from(self, at: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let bytes = self.bytes;
        let places = self.places.get(at..).unwrap_or_default();
        places
            .iter()
            .map(move |place| bytes.get(place.from as usize..place.to as usize).unwrap_or_default())
    }

    /// Returns a copy that outlives the bytes.
    #[must_use]
    pub fn to_buf(self) -> ArgumentsBuf {
        let mut copy = ArgumentsBuf::default();
        self.from(0).for_each(|argument| copy.push(argument));
        copy
    }
}

/// Arguments that own their bytes.
#[derive(Clone, Debug, Default)]
pub struct ArgumentsBuf {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl ArgumentsBuf {
    /// Returns the arguments.
    pub fn as_arguments(&self) -> Arguments<'_> {
        Arguments { bytes: &self.bytes, places: &self.places }
    }

    fn push(&mut self, argument: &[u8]) {
        // A command has less than 4 GiB: see `Limits`.
        let from = self.bytes.len() as u32;
        self.bytes.extend_from_slice(argument);
        self.places.push(Place { from, to: from + argument.len() as u32 });
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for ArgumentsBuf {
    fn from_iter<I: IntoIterator<Item = T>>(arguments: I) -> Self {
        let mut buf = Self::default();
        arguments.into_iter().for_each(|argument| buf.push(argument.as_ref()));
        buf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_same_arguments() {
        let own = ArgumentsBuf::from_iter(["GET", "", "a:1"]);
        let copy = own.as_arguments().to_buf();
        for arguments in [own.as_arguments(), copy.as_arguments()] {
            assert_eq!((arguments.len(), arguments.name()), (3, &b"GET"[..]));
            assert_eq!(arguments.from(1).collect::<Vec<_>>(), [&b""[..], b"a:1"]);
            assert_eq!(arguments.get(3), None);
            assert_eq!(arguments.from(4).len(), 0);
        }
        assert!(Arguments::default().is_empty() && Arguments::default().name().is_empty());
    }
}
