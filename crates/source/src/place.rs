//! Place of a feed in the log that outlives its sessions. Either the database keeps the log from a
//! place on until the changes before it are stored elsewhere, or the store of the changes names a
//! [`Landmark`] that the feed looks for in the log.
//!
//! Without a place, the end of a session is a loss. With one, the next session delivers what the
//! last one did not, possibly in another process.

use hotrow_types::landmark::Landmark;
use hotrow_types::version::Position;

/// What a feed with a place reports and asks, beside its [`crate::Sink`].
pub trait Place: Sync {
    /// Reports that a feed goes on at `position`, instead of [`crate::Sink::started`]. Changes
    /// before it were delivered to an earlier session, or are missing; reads may not see them
    /// before [`Self::settled`]. `watched`: see [`Self::watching`].
    fn resumed(&self, position: Position, watched: u64);
    /// Reports that every read sees every change before the feed's start.
    fn settled(&self);
    /// Reports what the database delivers from now on, as a digest. It is the same in every process
    /// with the same collections, and never the same again after a table was not delivered for a
    /// time. `None`: changes of a collection are missed now.
    fn watching(&self, watched: Option<u64>);
    /// Returns the position before which the database need not keep the log.
    fn confirmable(&self) -> u64;
    /// Returns the landmark at whose end a feed goes on, if its database keeps no place: changes
    /// before it are stored. `None`: the feed starts anew, which is a loss.
    fn landmark(&self) -> Option<Landmark> {
        None
    }
    /// Reports that every change before the end of a landmark was delivered.
    fn passed(&self, _: Landmark) {}
    /// Returns whether this process may end the session of another that has the place.
    fn is_entitled(&self) -> bool;
    /// Reports what the feed waits for before it can start; `None`: for nothing.
    fn waits_for(&self, what: Option<&str>);
}
