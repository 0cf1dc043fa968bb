//! Global transaction identifiers of MySQL.
//!
//! Text form of a set: `uuid[:tag]:1-5:7[:tag2:1-3],uuid2:…`, as `gtid_executed` prints it, with
//! line breaks after commas. Source: MySQL 8.4 Reference Manual, "GTID Format and Storage", "GTID
//! Sets" and "Tagged GTIDs".

use std::collections::BTreeMap;
use std::fmt;

/// Longest name of a tag in bytes.
const TAG_BYTES_MAX: usize = 32;

/// Source of a transaction's number: a server, and from MySQL 8.3 on a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// The server's UUID.
    pub server: u128,
    /// The tag, in lower case, padded with zeros; all zeros: none.
    pub tag: [u8; TAG_BYTES_MAX],
}

/// One transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gtid {
    /// Source of the number.
    pub source: SourceId,
    /// Its number within that source, from 1 on.
    pub number: u64,
}

/// Error of a text that is not a set of GTIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a set of GTIDs is written uuid:1-5:7,uuid:tag:1-3")]
pub struct GtidError;

/// A set of transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GtidSet {
    /// Per source: disjoint intervals in ascending order, both ends included.
    sources: BTreeMap<SourceId, Vec<(u64, u64)>>,
}

impl SourceId {
    /// Returns the source of a server's own numbers (`tag`: empty) or of those under a tag.
    ///
    /// # Errors
    /// For a tag that is not up to 32 letters, digits and underscores, beginning with a letter or
    /// underscore.
    pub fn new(server: u128, tag: &str) -> Result<Self, GtidError> {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if tag.len() > TAG_BYTES_MAX
            || !tag.bytes().all(word)
            || tag.starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(GtidError);
        }
        let mut padded = [0; TAG_BYTES_MAX];
        padded[..tag.len()].copy_from_slice(tag.to_ascii_lowercase().as_bytes());
        Ok(Self { server, tag: padded })
    }

    /// Returns the tag; empty: none.
    pub fn tag(&self) -> &str {
        // Of ASCII letters, digits and underscores.
        std::str::from_utf8(&self.tag).unwrap_or_default().trim_end_matches('\0')
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.server);
        let (a, b, c) = (&digits[..8], &digits[8..12], &digits[12..16]);
        write!(f, "{a}-{b}-{c}-{}-{}", &digits[16..20], &digits[20..])?;
        if self.tag().is_empty() { Ok(()) } else { write!(f, ":{}", self.tag()) }
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.number)
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (source, intervals)) in self.sources.iter().enumerate() {
            write!(f, "{}{source}", if i == 0 { "" } else { "," })?;
            for (first, last) in intervals {
                write!(f, ":{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl GtidSet {
    /// Parses the text form; white space between parts is allowed, an empty text is the empty set.
    ///
    /// # Errors
    /// For any other text.
    pub fn parse(text: &str) -> Result<Self, GtidError> {
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            set.parse_server(part)?;
        }
        set.sources.values_mut().for_each(join);
        Ok(set)
    }

    fn parse_server(&mut self, part: &str) -> Result<(), GtidError> {
        let (uuid, rest) = part.split_once(':').ok_or(GtidError)?;
        let server = parse_uuid(uuid.trim())?;
        let mut source = SourceId::new(server, "")?;
        for word in rest.split(':').map(str::trim) {
            if word.starts_with(|c: char| c.is_ascii_digit()) {
                self.sources.entry(source).or_default().push(parse_interval(word)?);
            } else if word.is_empty() {
                return Err(GtidError);
            } else {
                source = SourceId::new(server, word)?;
            }
        }
        Ok(())
    }

    /// Returns the transaction of a set that has one alone.
    pub fn single(&self) -> Option<Gtid> {
        let mut sources = self.sources.iter();
        let (source, intervals) = sources.next()?;
        let [(first, last)] = intervals[..] else { return None };
        let is_single = first == last && sources.next().is_none();
        is_single.then_some(Gtid { source: *source, number: first })
    }

    /// Returns whether the transaction is in the set.
    pub fn contains(&self, gtid: &Gtid) -> bool {
        self.interval(gtid).is_some()
    }

    /// Returns whether all transactions of its source up to this one are in the set.
    pub fn contains_up_to(&self, gtid: &Gtid) -> bool {
        self.interval(gtid).is_some_and(|(first, _)| first == 1)
    }

    fn interval(&self, gtid: &Gtid) -> Option<(u64, u64)> {
        let intervals = self.sources.get(&gtid.source)?;
        let after = intervals.partition_point(|&(first, _)| first <= gtid.number);
        let (first, last) = *intervals.get(after.checked_sub(1)?)?;
        (gtid.number <= last).then_some((first, last))
    }
}

fn parse_uuid(text: &str) -> Result<u128, GtidError> {
    let dashes: Vec<usize> =
        text.bytes().enumerate().filter(|(_, b)| *b == b'-').map(|(i, _)| i).collect();
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if dashes != [8, 13, 18, 23]
        || digits.len() != 32
        || !digits.bytes().all(|b| b.is_ascii_hexdigit())
    {
        return Err(GtidError);
    }
    u128::from_str_radix(&digits, 16).map_err(|_| GtidError)
}

fn parse_interval(text: &str) -> Result<(u64, u64), GtidError> {
    let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse::<u64>().map_err(|_| GtidError),
        false => Err(GtidError),
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = number(first)?;
    let last = number(last)?;
    if first == 0 || last < first { Err(GtidError) } else { Ok((first, last)) }
}

/// Sorts intervals and joins those that touch.
fn join(intervals: &mut Vec<(u64, u64)>) {
    intervals.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(intervals.len());
    for &(first, last) in intervals.iter() {
        match joined.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    *intervals = joined;
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "3E11FA47-71CA-11E1-9E33-C80AA9429563";

    fn gtid(uuid: &str, tag: &str, number: u64) -> Gtid {
        Gtid { source: SourceId::new(parse_uuid(uuid).unwrap(), tag).unwrap(), number }
    }

    #[test]
    fn a_set_contains_its_intervals() {
        let set = GtidSet::parse(&format!("{A}:1-5:7:9-10,\n{B}:3:Blue:1-2:9")).unwrap();
        let inside = [
            gtid(A, "", 1),
            gtid(A, "", 5),
            gtid(A, "", 7),
            gtid(A, "", 10),
            gtid(B, "", 3),
            gtid(B, "blue", 9),
        ];
        assert!(inside.iter().all(|gtid| set.contains(gtid)));
        let outside = [
            gtid(A, "", 6),
            gtid(A, "", 8),
            gtid(A, "", 11),
            gtid(B, "", 1),
            gtid(B, "blue", 3),
            gtid(A, "red", 1),
        ];
        assert!(!outside.iter().any(|gtid| set.contains(gtid)));
        assert!(set.contains_up_to(&gtid(A, "", 4)) && !set.contains_up_to(&gtid(A, "", 7)));
        assert!(!GtidSet::parse("").unwrap().contains(&gtid(A, "", 1)));
    }

    #[test]
    fn a_set_is_written_as_it_is_read() {
        let text = format!("{A}:1-5:7-7,{A}:blue:1-2,{}:3-3", B.to_lowercase());
        assert_eq!(GtidSet::parse(&text).unwrap().to_string(), text);
        assert_eq!(GtidSet::default().to_string(), "");
    }

    #[test]
    fn intervals_are_joined() {
        let set = GtidSet::parse(&format!("{A}:4-6:1-3,{A}:7:6-9")).unwrap();
        assert!(set.contains_up_to(&gtid(A, "", 9)));
        let end = GtidSet::parse(&format!("{A}:1-{}:5", u64::MAX)).unwrap();
        assert!(end.contains(&gtid(A, "", u64::MAX)));
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "x",
            A,
            "3e11fa47:1",
            &format!("{A}:"),
            &format!("{A}:0"),
            &format!("{A}:5-4"),
            &format!("{A}:1-"),
            &format!("{A}:+1"),
            &format!("{A}:1::2"),
            &format!("{A}:a-b:1"),
        ] {
            assert_eq!(GtidSet::parse(bad), Err(GtidError), "{bad}");
        }
    }
}
