//! Where a session begins in the log, so that no change falls between what is visible and what is delivered.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use super::probe::{self, End};
use super::server::{Flavor, Identity};
use super::session::{Ended, timely};
use super::tuning::Tuning;

/// The place to begin at: everything before it is visible to reads that are sent from now on, and everything after it will
/// be delivered.
///
/// MariaDB tells the end of what is visible. MySQL tells the log's end, where transactions may lie in front of it that are
/// still being committed; those are waited for.
///
/// # Errors
/// When the server fails, or does not come to an end with them.
pub(crate) async fn place(conn: &mut Conn, identity: &Identity, tuning: &Tuning) -> Result<End, Ended> {
    let end = timely(tuning.silence_max, "asking where the log ends", probe::log_end(conn, identity)).await?;
    if identity.flavor == Flavor::MySql {
        timely(tuning.silence_max, "waiting for transactions in commit", fence(conn, tuning.fence_every)).await?;
    }
    Ok(end)
}

/// Waits until no transaction is in commit any more that is now: from when it is written into the log until it is visible,
/// a thread owns its number.
async fn fence(conn: &mut Conn, every: Duration) -> Result<(), Ended> {
    let mut waiting: Option<HashSet<String>> = None;
    loop {
        let owned: Option<String> = conn.query_first("SELECT @@GLOBAL.gtid_owned").await?;
        let owned: HashSet<String> = numbers(&owned.unwrap_or_default());
        let left: HashSet<String> = match waiting {
            None => owned,
            Some(before) => before.intersection(&owned).cloned().collect(),
        };
        if left.is_empty() {
            return Ok(());
        }
        waiting = Some(left);
        tokio::time::sleep(every).await;
    }
}

/// The numbers in `uuid:5#12:6#13,uuid2:7#14`, where the thread stands behind the `#`.
fn numbers(owned: &str) -> HashSet<String> {
    let mut numbers = HashSet::new();
    for part in owned.split(',') {
        let mut words = part.trim().split(':');
        let mut source = words.next().unwrap_or("").to_owned();
        for word in words {
            match word.split_once('#') {
                Some((number, _)) => drop(numbers.insert(format!("{source}:{number}"))),
                // A tag.
                None => source = format!("{source}:{word}"),
            }
        }
    }
    numbers
}

/// A random number for the feed among the server's replicas: not 0, and not the server's own.
pub(crate) fn random_server_id(identity: &Identity) -> u32 {
    // Any 32 bits of it will do.
    let id = (RandomState::new().hash_one("server_id") as u32).max(1);
    if id == identity.server_id { id ^ 0x8000_0000 | 1 } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_numbers_are_told_apart() {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<HashSet<_>>();
        assert_eq!(numbers(""), set(&[]));
        assert_eq!(numbers("u:5#12:6#13,\nv:7#1"), set(&["u:5", "u:6", "v:7"]));
        assert_eq!(numbers("u:tag:5#12"), set(&["u:tag:5"]));
    }
}
