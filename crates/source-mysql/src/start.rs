//! Start of a session in the log, chosen so that no change falls between reads and the feed.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use mysql_async::Conn;

use super::catalog_row;
use super::config::Tuning;
use super::connect::driver_error;
use super::server::{Flavor, Identity};
use hotrow_source::feed_loop::{Ended, timely};

/// Waits until everything before an end of the log that was queried is visible to reads sent from
/// now on.
///
/// MariaDB reports the end of what is visible. MySQL reports the log's end, before which
/// transactions may still be in commit. It waits for those.
///
/// # Errors
/// Fails if the server fails or the transactions in commit do not end in time.
pub(crate) async fn visible(
    conn: &mut Conn,
    identity: &Identity,
    tuning: &Tuning,
) -> Result<(), Ended> {
    let mut fence = Fence::of(identity);
    let waiting = async {
        while !fence.is_passed(conn).await? {
            tokio::time::sleep(tuning.fence_every).await;
        }
        Ok(())
    };
    timely(tuning.silence_max, "waiting for transactions in commit", waiting).await
}

/// Transactions that were in commit when it was first asked, and that have not ended. A thread owns
/// the number of a transaction from its write to the log until it is visible.
#[derive(Debug)]
pub(crate) enum Fence {
    /// It was not asked yet.
    New,
    Waiting(HashSet<String>),
    Passed,
}

impl Fence {
    pub(crate) fn of(identity: &Identity) -> Self {
        if identity.flavor == Flavor::MySql { Self::New } else { Self::Passed }
    }

    /// Asks whether all of them have ended.
    ///
    /// # Errors
    /// Fails if the server fails.
    pub(crate) async fn is_passed(&mut self, conn: &mut Conn) -> Result<bool, Ended> {
        if matches!(self, Self::Passed) {
            return Ok(true);
        }
        let sql = "SELECT @@GLOBAL.gtid_owned";
        let row = catalog_row::first(conn, sql).await.map_err(driver_error)?;
        let owned = row.map_or_else(|| Ok(String::new()), |row| row.text(0, "gtid_owned"));
        let mut left = numbers(&owned.map_err(driver_error)?);
        if let Self::Waiting(before) = self {
            left.retain(|number| before.contains(number));
        }
        *self = if left.is_empty() { Self::Passed } else { Self::Waiting(left) };
        Ok(matches!(self, Self::Passed))
    }
}

/// Parses the numbers of `uuid:5#12:6#13,uuid2:7#14`, where a thread id follows each `#`.
fn numbers(owned: &str) -> HashSet<String> {
    let mut numbers = HashSet::new();
    for part in owned.split(',') {
        let mut words = part.trim().split(':');
        let mut source = words.next().unwrap_or("").to_owned();
        for word in words {
            match word.split_once('#') {
                Some((number, _)) => drop(numbers.insert(format!("{source}:{number}"))),
                // A GTID's tag.
                None => source = format!("{source}:{word}"),
            }
        }
    }
    numbers
}

/// Returns a random replica number for the feed: neither 0 nor the server's own.
pub(crate) fn random_server_id(identity: &Identity) -> u32 {
    // Any 32 bits of the hash are random.
    let id = (RandomState::new().hash_one("server_id") as u32).max(1);
    if id == identity.server_id { id ^ 0x8000_0000 | 1 } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_numbers_are_parsed() {
        let set =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<HashSet<_>>();
        assert_eq!(numbers(""), set(&[]));
        assert_eq!(numbers("u:5#12:6#13,\nv:7#1"), set(&["u:5", "u:6", "v:7"]));
        assert_eq!(numbers("u:tag:5#12"), set(&["u:tag:5"]));
    }
}
