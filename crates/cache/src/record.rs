//! A record as the cache stores and serves it: one allocation, reference-counted, immutable.

mod coding;
mod expiry;
mod incarnations;
mod lifetime;
mod uses;
mod variants;

use hotrow_measure::clock::Nanos;
use triomphe::ThinArc;
use xxhash_rust::xxh3::xxh3_64;

pub use self::coding::ContentCoding;
use self::lifetime::Lifetime;
pub(crate) use self::uses::HOT_HITS_MIN;
use self::uses::Uses;
use crate::config::CollectionPolicy;
use hotrow_types::columns::{Columns, member_ends};
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::tenant::{Tenant, TenantRow};
use hotrow_types::version::{Position, Version};

/// Average cost of one record beyond key and body, in bytes. 57 in the record itself by its layout
/// (reference count, header, length, hash and position); 15 for the allocator's header and
/// rounding; 33 for the store's tables, measured by `cargo bench -p hotrow-cache`: 29 per entry,
/// and 37 when evicted keys are remembered.
pub const ENTRY_OVERHEAD_BYTES: u64 = 105;

/// Presence of the record in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The body is the record as JSON.
    Found,
    /// The record does not exist; the body is empty. Absence is a version like any other.
    Missing,
}

/// Epoch in which a read was sent. An entry is valid only in its own epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// Raised when the feed may have missed changes, and again when it restarts.
    pub(crate) feed: u32,
    /// Raised when all records of the collection are known to have changed.
    pub(crate) flush: u32,
}

impl Epoch {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.feed) << 32 | u64::from(self.flush)
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        Self { feed: (packed >> 32) as u32, flush: packed as u32 }
    }
}

/// The fields that a lookup needs, and no others, in 24 bytes. With the reference count, the length
/// and an integer key they fit one cache line; the cost of a lookup is the number of lines it waits
/// for.
#[derive(Debug)]
struct Header {
    read_at: Nanos,
    epoch: Epoch,
    /// From `read_at` to the expiry.
    lifetime: Lifetime,
    key_bytes: u16,
    kind: Kind,
    /// Number of hits, up to [`HOT_HITS_MIN`], and what was asked for besides.
    uses: Uses,
}

/// Presence, token, and whether there are variants and ends of members, in one byte.
#[derive(Clone, Copy, Debug)]
struct Kind(u8);

impl Kind {
    const FOUND: u8 = 1 << 2;
    const VARIANTS: u8 = 1 << 3;
    /// The ends of the members are kept.
    const MEMBERS: u8 = 1 << 4;
    /// A standby was read.
    const STANDBY: u8 = 1 << 5;

    fn new(presence: Presence, token: Token, keeps_members: bool) -> Self {
        let found = if presence == Presence::Found { Self::FOUND } else { 0 };
        let members = if keeps_members { Self::MEMBERS } else { 0 };
        Self(token as u8 | found | members)
    }

    fn keeps_members(self) -> bool {
        self.0 & Self::MEMBERS != 0
    }

    fn presence(self) -> Presence {
        if self.0 & Self::FOUND == 0 { Presence::Missing } else { Presence::Found }
    }

    fn of_standby(self, is_of_standby: bool) -> Self {
        Self(if is_of_standby { self.0 | Self::STANDBY } else { self.0 })
    }

    fn with_variants(self) -> Self {
        Self(self.0 | Self::VARIANTS)
    }

    #[inline]
    fn has_variants(self) -> bool {
        self.0 & Self::VARIANTS != 0
    }

    fn token(self) -> Token {
        [Token::None, Token::LogEnd, Token::Behind, Token::Version][usize::from(self.0 & 3)]
    }
}

/// Meaning of a record's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// No position.
    None = 0,
    /// End of the log after the read, which may not have seen all of it: valid as a session token,
    /// not for comparing reads.
    LogEnd = 1,
    /// The same, for a read that lacks a change that the feed had delivered.
    Behind = 2,
    /// Exactly what the read saw.
    Version = 3,
}

/// Bytes between key and body: hash of the body, point of the position and number of its
/// incarnation, both meaningless when the token is `None`. Eight more with the incarnation itself
/// when it has no number. A record of a collection with a tenant column always has these eight, and
/// then the length of its tenant in a byte, 0 for none, and the tenant. So has a record of a
/// collection with views, and after these its members. Other records do not grow.
const MIDDLE: usize = 17;
/// Bytes of an incarnation behind the middle.
const INCARNATION: usize = 8;

/// One version of one record: key, middle and body. Cloning adds a reference.
#[derive(Clone, Debug)]
pub struct Record(ThinArc<Header, u8>);

/// Constituents of a record.
pub(crate) struct RecordParts<'a> {
    pub(crate) key: &'a Key,
    /// `None`: the record does not exist.
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) owner: Owner,
    /// See [`CollectionPolicy::has_views`].
    pub(crate) has_views: bool,
    pub(crate) read_at: Nanos,
    pub(crate) expires_at: Nanos,
    pub(crate) version: &'a Version,
    pub(crate) position: Option<Position>,
    pub(crate) visibility: Visibility,
    pub(crate) epoch: Epoch,
}

/// Owner of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Its collection has no tenant column.
    Everybody,
    /// It belongs to this tenant, or to none.
    Tenant(Option<Tenant>),
}

/// Visibility of delivered changes to an answer: it contains every change of its key that the feed
/// had delivered, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// As far as is known.
    Complete,
    /// The read lacks a delivered change, or the feed was lost during it: the answer proves no
    /// position.
    Behind,
}

/// Bytes of the number of members.
const MEMBER_COUNT: usize = 4;
/// Bytes of the end of one member. A record has at most 16 MiB.
const MEMBER_END: usize = 4;

fn bytes_of_view<'a>(members: impl Iterator<Item = &'a [u8]>) -> usize {
    // Braces, and a comma less than members.
    members.fold(1, |bytes, member| bytes + member.len() + 1).max(2)
}

/// Returns the table of members: their number and their ends. A body that is no object has none.
fn members_of(body: &[u8]) -> Vec<u8> {
    let ends = member_ends(body).unwrap_or_default();
    let mut table = Vec::with_capacity(MEMBER_COUNT + MEMBER_END * ends.len());
    table.extend_from_slice(&(ends.len() as u32).to_ne_bytes());
    ends.iter().for_each(|end| table.extend_from_slice(&(*end as u32).to_ne_bytes()));
    table
}

/// Returns the hash of a body, from which its entity tag is made.
pub fn hash_of_body(body: &[u8]) -> u64 {
    xxh3_64(body)
}

/// Splits a row into its owner and its record.
pub(crate) fn owned_row<'a>(
    collection: &CollectionPolicy,
    row: Option<&'a [u8]>,
) -> (Owner, Option<&'a [u8]>) {
    match row {
        row if !collection.has_tenants => (Owner::Everybody, row),
        None => (Owner::Tenant(None), None),
        Some(row) => {
            let TenantRow { tenant, record } = TenantRow::split(row);
            (Owner::Tenant(tenant), Some(record))
        }
    }
}

impl Record {
    pub(crate) fn new(parts: &RecordParts<'_>) -> Self {
        let key = parts.key.as_bytes();
        let body = parts.body.unwrap_or_default();
        let token = match (parts.position, parts.version, parts.visibility) {
            (None, ..) => Token::None,
            (Some(_), _, Visibility::Behind) => Token::Behind,
            (Some(end), Version::Log(seen), Visibility::Complete) if end == *seen => Token::Version,
            (Some(_), _, Visibility::Complete) => Token::LogEnd,
        };
        let presence = if parts.body.is_some() { Presence::Found } else { Presence::Missing };
        let lifetime = match parts.expires_at {
            Nanos::MAX => u64::MAX,
            expires_at => expires_at.0.saturating_sub(parts.read_at.0),
        };
        let header = Header {
            read_at: parts.read_at,
            epoch: parts.epoch,
            lifetime: Lifetime::new(lifetime),
            // KEY_BYTES_MAX fits.
            key_bytes: key.len() as u16,
            kind: Kind::new(presence, token, parts.has_views)
                .of_standby(matches!(parts.version, Version::Replayed { .. })),
            uses: Uses::none(),
        };
        let at = parts.position.map_or(0, |position| position.at);
        let incarnation = parts.position.map(|position| position.incarnation);
        let carried = incarnation.unwrap_or_default().to_ne_bytes();
        let hash = xxh3_64(body).to_ne_bytes();
        let at = at.to_ne_bytes();
        let tenant = match &parts.owner {
            Owner::Tenant(Some(tenant)) => tenant.as_bytes(),
            Owner::Tenant(None) | Owner::Everybody => &[],
        };
        let slice = match &parts.owner {
            Owner::Everybody if !parts.has_views => {
                let number = incarnation.map_or(0, incarnations::number_of);
                let is_carried = number == incarnations::INLINE;
                let carried = if is_carried { &carried[..] } else { &[] };
                [key, &hash, &at, &[number], carried, body].concat()
            }
            Owner::Everybody | Owner::Tenant(_) => {
                // TENANT_BYTES_MAX fits.
                let length = [tenant.len() as u8];
                let members = if parts.has_views { members_of(body) } else { Vec::new() };
                let front = [key, &hash, &at, &[incarnations::OWNED], &carried, &length].concat();
                [&front[..], tenant, &members, body].concat()
            }
        };
        Self(ThinArc::from_header_and_slice(header, &slice))
    }

    /// Returns whether the database had the record.
    pub fn presence(&self) -> Presence {
        self.0.header.header.kind.presence()
    }

    /// Returns the record as JSON; empty when it does not exist.
    pub fn body(&self) -> &[u8] {
        &self.0.slice[self.body_at()..self.body_end()]
    }

    /// Returns the XXH3 hash of the body, the source of the ETag; equal on all instances.
    pub fn body_hash(&self) -> u64 {
        self.number_at(self.key_len())
    }

    /// Returns the tenant to which the record belongs, as [`Tenant::as_bytes`]. `None`: it belongs
    /// to none, or its collection has no tenant column.
    pub fn tenant(&self) -> Option<&[u8]> {
        let at = self.tenant_at()?;
        let tenant = &self.0.slice[at..at + usize::from(self.0.slice[at - 1])];
        (!tenant.is_empty()).then_some(tenant)
    }

    /// Returns the record with these columns alone. Its members are searched for if their ends are
    /// not kept.
    pub fn view(&self, columns: &Columns) -> Vec<u8> {
        let members: Vec<&[u8]> = columns.members(self.body(), self.member_ends()).collect();
        let mut view = Vec::with_capacity(bytes_of_view(members.iter().copied()));
        view.push(b'{');
        for (i, member) in members.into_iter().enumerate() {
            if i > 0 {
                view.push(b',');
            }
            view.extend_from_slice(member);
        }
        view.push(b'}');
        view
    }

    /// Returns the length of [`Record::view`].
    pub fn view_bytes(&self, columns: &Columns) -> usize {
        bytes_of_view(columns.members(self.body(), self.member_ends()))
    }

    pub(crate) fn member_ends(&self) -> impl Iterator<Item = usize> {
        let (kept, found) = match self.tenant_at() {
            Some(at) if self.0.header.header.kind.keeps_members() => {
                let table = at + usize::from(self.0.slice[at - 1]) + MEMBER_COUNT;
                (&self.0.slice[table..self.body_at()], Vec::new())
            }
            _ => (&[][..], member_ends(self.body()).unwrap_or_default()),
        };
        let kept = kept.chunks_exact(MEMBER_END).map(|end| {
            let end: [u8; MEMBER_END] = std::array::from_fn(|i| end[i]);
            u32::from_ne_bytes(end) as usize
        });
        kept.chain(found)
    }

    /// Returns the end of the log when the record was read; `None` where the engine has no log.
    #[inline]
    pub fn position(&self) -> Option<Position> {
        if self.token() == Token::None {
            return None;
        }
        let incarnation = incarnations::by_number(self.incarnation_number())
            .unwrap_or_else(|| self.number_at(self.key_len() + MIDDLE));
        Some(Position { incarnation, at: self.number_at(self.key_len() + 8) })
    }

    /// Returns whether the read lacks a change that the feed had delivered. Then it proves no
    /// position, not even the log's end (Race B).
    pub fn is_behind(&self) -> bool {
        self.token() == Token::Behind
    }

    /// Returns the point up to which the record reflects every commit, if the read itself proves
    /// that.
    pub fn reflects(&self) -> Option<Position> {
        self.position().filter(|_| self.token() == Token::Version)
    }

    /// Returns whether a row, or its absence, is what the record says.
    pub(crate) fn equals_row(&self, collection: &CollectionPolicy, row: Option<&[u8]>) -> bool {
        let (owner, body) = owned_row(collection, row);
        let is_same_owner = match &owner {
            Owner::Everybody => true,
            Owner::Tenant(tenant) => tenant.as_ref().map(Tenant::as_bytes) == self.tenant(),
        };
        is_same_owner && body == (self.presence() == Presence::Found).then(|| self.body())
    }

    /// Returns the time at which the read was sent.
    pub fn read_at(&self) -> Nanos {
        self.0.header.header.read_at
    }

    /// Returns whether a standby was read: the record may lack what committed shortly before.
    pub(crate) fn is_of_standby(&self) -> bool {
        self.0.header.header.kind.0 & Kind::STANDBY != 0
    }

    /// Returns the collection of the record.
    pub fn collection(&self) -> CollectionId {
        CollectionId(u16::from_be_bytes([self.0.slice[0], self.0.slice[1]]))
    }

    /// Counts a hit. Hits of two threads at once may count as one; a hot record is not written to
    /// any more.
    #[inline]
    pub(crate) fn note_use(&self) {
        self.0.header.header.uses.note_hit();
    }

    /// Returns whether it was hit [`HOT_HITS_MIN`] times.
    pub(crate) fn is_hot(&self) -> bool {
        self.0.header.header.uses.hits() >= HOT_HITS_MIN
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.0.header.header.epoch
    }

    /// Returns what the read saw, as far as the record keeps it.
    pub(crate) fn version(&self) -> Version {
        self.reflects().map_or(Version::Unknown, Version::Log)
    }

    /// Returns the encoded key, as [`Key::as_bytes`] does.
    #[inline]
    pub fn key_bytes(&self) -> &[u8] {
        &self.0.slice[..self.key_len()]
    }

    /// Returns the weight of the entry: key, body, tenant, variants and bookkeeping, in bytes.
    pub(crate) fn weight_bytes(&self) -> u64 {
        let carried =
            if self.incarnation_number() == incarnations::INLINE { INCARNATION } else { 0 };
        (self.0.slice.len() - MIDDLE - carried) as u64 + ENTRY_OVERHEAD_BYTES
    }

    fn token(&self) -> Token {
        self.0.header.header.kind.token()
    }

    fn incarnation_number(&self) -> u8 {
        self.0.slice[self.key_len() + MIDDLE - 1]
    }

    #[inline]
    fn body_at(&self) -> usize {
        // One comparison where the incarnation has a number: nearly always, without tenants.
        if self.incarnation_number() < incarnations::OWNED {
            self.key_len() + MIDDLE
        } else {
            self.body_behind_incarnation()
        }
    }

    #[cold]
    fn body_behind_incarnation(&self) -> usize {
        match self.tenant_at() {
            None => self.key_len() + MIDDLE + INCARNATION,
            Some(at) => {
                let members_at = at + usize::from(self.0.slice[at - 1]);
                if !self.0.header.header.kind.keeps_members() {
                    return members_at;
                }
                let count = self.0.slice[members_at..].first_chunk::<MEMBER_COUNT>();
                // `members_of` put the number there.
                let count = count.map_or(0, |count| u32::from_ne_bytes(*count));
                members_at + MEMBER_COUNT + count as usize * MEMBER_END
            }
        }
    }

    /// Returns the place of the tenant, behind its length; `None` without a tenant column.
    fn tenant_at(&self) -> Option<usize> {
        let is_owned = self.incarnation_number() == incarnations::OWNED;
        is_owned.then(|| self.key_len() + MIDDLE + INCARNATION + 1)
    }

    #[inline]
    fn body_end(&self) -> usize {
        if self.0.header.header.kind.has_variants() {
            coding::body_end(&self.0.slice)
        } else {
            self.0.slice.len()
        }
    }

    /// Returns the number stored at an offset.
    fn number_at(&self, offset: usize) -> u64 {
        // `new` put eight bytes there.
        self.0.slice[offset..].first_chunk::<8>().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    #[inline]
    fn key_len(&self) -> usize {
        usize::from(self.0.header.header.key_bytes)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
